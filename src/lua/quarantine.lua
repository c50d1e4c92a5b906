-- Answers for how many ms more the server grants no lock. The marker says which
-- process last had which history of the data, and when that was first seen, in
-- ms of the server's clock: see INFO. A server that was started anew is another
-- process; so is a replica that was promoted, or it has been a replica: then its
-- history goes on with another one. A primary without replicas begins a history
-- that goes on with none, and has lost nothing. A time that is still to come
-- means that the clock was set back. A client that knows for how long a node of
-- a cluster has been the same says so: the marker may have left with its slot.
--: marker = KEYS[1], quarantine_ms = ARGV[1], known_run = ARGV[2], known_history = ARGV[3], known_ms = ARGV[4], call = redis.call
-- include time.lua
local server, data = call('INFO', 'server'), call('INFO', 'replication')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local run = server:match('run_id:(%x+)')
local history, former = data:match('master_replid:(%x+).-master_replid2:(%x+)')
local text = call('GET', marker) or '0 0 0'
local old_run, old_history, since = text:match('^(%x+) (%x+) (%d+)$')
if not history or not run or not since then
  return {err = 'ERR ' .. (since and 'INFO names no run_id or master_replid' or 'its marker is another key')}
end
if run ~= old_run or history ~= old_history and former:match('[^0]') or since + 0 > now_ms then
  since = string.format('%.0f', now_ms)
end
if run == known_run and history == known_history and now_ms - known_ms < since + 0 then
  since = string.format('%.0f', now_ms - known_ms)
end
if text ~= run .. ' ' .. history .. ' ' .. since then
  call('SET', marker, run .. ' ' .. history .. ' ' .. since)
end
return math.max(since + quarantine_ms - now_ms, 0)
