-- Redisson's wire: renews, or with lease 0 only looks. Answers as the string
-- wire does.
--: key = KEYS[1], token = ARGV[1], lease_ms = ARGV[2], longest_ms = ARGV[3], call = redis.call
--: again = 'HSET', how = 1
if call('HEXISTS', key, token) == 0 then
  return call('EXISTS', key) - 1
end
-- include extend.lua
call('PTTL', key)
return 1
