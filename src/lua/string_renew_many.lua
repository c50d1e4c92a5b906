-- String wire: renews many keys, whose tokens differ in their ends only.
-- Answers a 1 for each key that was renewed and a 0 for each that has to be
-- asked for alone. It writes in any case, as extend.lua does. The server remembers
-- for client tracking what is read after the writes; up to Redis 7 it does so with
-- all keys of the script at each command that reads, so there are only two of
-- them, unless a lease is shorter than the time to live. GT is of Redis 7.0:
-- https://redis.io/docs/latest/commands/pexpire/
local call, renewed, head, lease_ms = redis.call, {}, ARGV[1], ARGV[2]
local holders = call('MGET', unpack(KEYS))
for i, key in ipairs(KEYS) do
  renewed[i] = '0'
  if holders[i] == head .. ARGV[i + 2] then
    local left_ms = call('PEXPIRE', key, lease_ms, 'GT') == 0 and call('PTTL', key) or 0
    if left_ms > 0 then
      call('PEXPIRE', key, left_ms)
    end
    renewed[i] = '1'
  end
end
call('EXISTS', unpack(KEYS))
return table.concat(renewed)
