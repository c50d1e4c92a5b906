-- Several keys, all or none: KEYS are the keys, after them their fence counters
-- if `fences` says that fences are wanted. The fence is above every counter's,
-- and becomes the value of each. Answers as for one key.
--: token = ARGV[1], lease_ms = ARGV[2], fences = ARGV[3], longest_ms = math.huge
--: again = 'SET', how = 'XX'
local call, keys, holders, fence = redis.call, #KEYS, {}, '0'
if fences then
  keys = keys / 2
end
for i = 1, keys do
  holders[i] = call('GET', KEYS[i])
  if holders[i] and holders[i] ~= token then
    return call('PTTL', KEYS[i])
  end
end
if fences then
  -- include time.lua
  fence = time[1] * 1000000 + time[2]
  for i = keys + 1, #KEYS do
    local last = call('GET', KEYS[i]) or '0'
    if not last:match('^%d+$') or last + fences >= 2 ^ 53 then
      return {err = 'ERR the fence counter is no number below 2^53'}
    end
    if last + 1 > fence then
      fence = last + 1
    end
  end
  local next_last = string.format('%.0f', fence + fences - 1)
  fence = string.format('%.0f', fence)
  for i = keys + 1, #KEYS do
    call('SET', KEYS[i], next_last, 'PX', lease_ms + 86400000)
  end
end
for i = 1, keys do
  if not holders[i] then
    call('SET', KEYS[i], token, 'PX', lease_ms)
  else
    local key = KEYS[i]
    -- include extend.lua
  end
end
return fence
