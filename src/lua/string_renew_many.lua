-- String wire: renews many keys, whose tokens differ in their ends only.
-- Answers a 1 for each key that was renewed and a 0 for each that has to be
-- asked for alone. The server remembers for client tracking what is read after
-- the writes; up to Redis 7 it does so with all keys of the script at each
-- command that reads, so there are only two of them. GT is of Redis 7.0:
-- https://redis.io/docs/latest/commands/pexpire/
local call, renewed, head, lease_ms = redis.call, {}, ARGV[1], ARGV[2]
local holders = call('MGET', unpack(KEYS))
for i, key in ipairs(KEYS) do
  renewed[i] = '0'
  if holders[i] == head .. ARGV[i + 2] then
    call('PEXPIRE', key, lease_ms, 'GT')
    renewed[i] = '1'
  end
end
call('EXISTS', unpack(KEYS))
return table.concat(renewed)
