-- Redisson's wire: takes the lock from whoever has it, and wakes the waiters.
-- Answers how many holds there were.
--: key = KEYS[1], channel = ARGV[1], sharded = ARGV[2]
--: call = redis.call, pcall = redis.pcall
if call('HLEN', key) == 0 then
  return 0
end
call('DEL', key)
-- include publish.lua
return 1
