-- String wire: acquires. Answers the fence as a string, "0" without one; or, as
-- an integer, the ms that are left of another's hold. The fence comes first and
-- the lock last: what a user may not do ends a script with what it did before.
--: key = KEYS[1], counter = KEYS[2]
--: token = ARGV[1], lease_ms = ARGV[2], fences = ARGV[3], longest_ms = math.huge
--: call = redis.call, pcall = redis.pcall
--: again = 'SET', how = 'XX'
local holder = call('GET', key)
if holder and holder ~= token then
  return call('PTTL', key)
end
-- include fence.lua
if holder then
  -- include extend.lua
else
  call('SET', key, token, 'PX', lease_ms)
end
return fence
