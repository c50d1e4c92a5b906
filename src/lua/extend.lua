-- Part of other scripts. A lease that ends later than the key's time to live
-- makes that longer. A time to live above the longest lease that this token was
-- asked for comes from a clock that was set back, or from somebody's hand, and is
-- cut to that lease. No script makes one shorter otherwise, or gives one to a key
-- that has none. What is told as held is written even if nothing is to be changed: a
-- primary that was made a replica would confirm what the new one does not have,
-- and WAIT knows of what was written only. So a key that was made persistent by
-- hand gets its token again, by `again` and `how`. PEXPIRE works on a server
-- that is out of memory, that does not.
local left_ms = call('PTTL', key)
if lease_ms ~= '0' then
  if left_ms < 0 then
    call(again, key, token, how)
  else
    call('PEXPIRE', key, math.max(math.min(left_ms, longest_ms), lease_ms))
  end
end
