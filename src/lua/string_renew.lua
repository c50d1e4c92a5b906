-- String wire: renews, or with lease 0 only looks. Answers 1, 0 if another has
-- the key, -1 if nobody has it. The server remembers for client tracking what
-- is read after the last write: so the PTTL at the end, and not before (Redis
-- 7.0).
--: key = KEYS[1], token = ARGV[1], lease_ms = ARGV[2], longest_ms = ARGV[3], call = redis.call
--: again = 'SET', how = 'XX'
local holder = call('GET', key)
if holder ~= token then
  return holder and 0 or -1
end
-- include extend.lua
call('PTTL', key)
return 1
