-- String wire: renews many keys, whose tokens differ in their ends only, or with
-- lease 0 only looks: what comes late must not cut a lease that is longer since.
-- Answers a 1 for each key that was renewed and a 0 for each that has to be
-- asked for alone, as one without a time to live: of a 1 with a lease something
-- was written, as extend.lua does. The server remembers for client tracking what
-- is read after the writes; up to Redis 7 it does so with all keys of the script
-- at each command that reads, so there are only two of them, unless a lease is
-- shorter than the time to live. GT is of Redis 7.0:
-- https://redis.io/docs/latest/commands/pexpire/
local call, renewed, head, lease_ms, longest_ms = redis.call, {}, ARGV[1], ARGV[2], ARGV[3]
local holders = call('MGET', unpack(KEYS))
for i, key in ipairs(KEYS) do
  renewed[i] = '0'
  if holders[i] == head .. ARGV[i + 3] then
    renewed[i] = call('PEXPIRE', key, lease_ms, 'GT')
    local left_ms = renewed[i] == 0 and call('PTTL', key) or 0
    if left_ms > 0 then
      renewed[i] = lease_ms == '0' and 1 or call('PEXPIRE', key, math.min(left_ms, longest_ms))
    end
  end
end
call('EXISTS', unpack(KEYS))
return table.concat(renewed)
