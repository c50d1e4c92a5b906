-- Redisson's wire: how the key stands, as on the string wire.
--: key = KEYS[1], call = redis.call
local holder = call('HKEYS', key)[1]
if not holder then
  return '0 0 -1 1 -1 '
end
return '1 ' .. call('PTTL', key) .. ' -1 0 -1 ' .. holder
