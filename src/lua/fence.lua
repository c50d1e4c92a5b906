-- Part of other scripts. The next fencing token: the server's clock in
-- microseconds, or one more than the last if that is more. `fences` of them in
-- a row are taken, for holds that are handed over inside the client. The
-- counter outlives the lease by a day. What is no number of ours is refused: it
-- could make fences fall.
local fence = '0'
if counter then
  local last = pcall('GET', counter) or '0'
  if type(last) == 'table' then
    return last
  end
  if not last:match('^%d+$') or last + fences >= 2 ^ 53 then
    return {err = 'ERR the fence counter is no number below 2^53'}
  end
  -- include time.lua
  fence = time[1] * 1000000 + time[2]
  if last + 1 > fence then
    fence = last + 1
  end
  call('SET', counter, string.format('%.0f', fence + fences - 1), 'PX', lease_ms + 86400000)
  fence = string.format('%.0f', fence)
end
