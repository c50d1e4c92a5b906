-- Redisson's wire: releases, and wakes the waiters. A user who may not publish
-- still releases: the message is a courtesy. Answers as the string wire does.
--: key = KEYS[1], token = ARGV[1], channel = ARGV[2]
--: call = redis.call, pcall = redis.pcall
if call('HEXISTS', key, token) == 0 then
  return call('EXISTS', key) - 1
end
call('DEL', key)
pcall('PUBLISH', channel, '0')
return 1
