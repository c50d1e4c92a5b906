-- Redisson's wire: releases, and wakes the waiters. Answers as the string wire
-- does.
--: key = KEYS[1], token = ARGV[1], channel = ARGV[2], sharded = ARGV[3]
--: call = redis.call, pcall = redis.pcall
if call('HEXISTS', key, token) == 0 then
  return call('EXISTS', key) - 1
end
call('DEL', key)
-- include publish.lua
return 1
