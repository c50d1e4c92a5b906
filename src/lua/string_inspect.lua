-- String wire: how the key stands, in numbers as rlock__parse_info reads them,
-- and the holder's token. A key of another type ends it with WRONGTYPE.
--: key = KEYS[1], call = redis.call
local holder = call('GET', key)
if not holder then
  return '0 0 -1 1 -1 '
end
return '1 ' .. call('PTTL', key) .. ' -1 0 -1 ' .. holder
