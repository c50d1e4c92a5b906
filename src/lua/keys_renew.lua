-- Several keys: renews all, or says that one is another's (0) or nobody's (-1).
-- The EXISTS at the end is for client tracking, as the PTTL of one key.
--: token = ARGV[1], lease_ms = ARGV[2], longest_ms = ARGV[3]
--: again = 'SET', how = 'XX'
local call = redis.call
for i, key in ipairs(KEYS) do
  local holder = call('GET', key)
  if holder ~= token then
    return holder and 0 or -1
  end
end
for i, key in ipairs(KEYS) do
  -- include extend.lua
end
call('EXISTS', unpack(KEYS))
return 1
