-- Redisson's wire: acquires. A hash whose field is the token, as RLock has it.
-- Answers as the string wire does. A hash that may not be given a time to live
-- goes again.
--: key = KEYS[1], counter = KEYS[2]
--: token = ARGV[1], lease_ms = ARGV[2], fences = ARGV[3], longest_ms = math.huge
--: call = redis.call, pcall = redis.pcall
--: again = 'HSET', how = 1
local mine = call('HEXISTS', key, token) == 1
if not mine and call('EXISTS', key) == 1 then
  return call('PTTL', key)
end
-- include fence.lua
if mine then
  -- include extend.lua
else
  call('HSET', key, token, 1)
  local expires = pcall('PEXPIRE', key, lease_ms)
  if type(expires) == 'table' then
    call('DEL', key)
    return expires
  end
end
return fence
