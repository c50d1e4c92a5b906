-- Part of other scripts. A lease that ends later than the key's time to live
-- makes that longer. No script makes one shorter, or gives one to a key that
-- has none. A renewal writes even if nothing is to be changed: a primary that
-- was made a replica would confirm what the new one does not have, and WAIT
-- knows of what was written only. PEXPIRE works on a server that is out of
-- memory.
local left_ms = call('PTTL', key)
if left_ms >= 0 and lease_ms ~= '0' then
  call('PEXPIRE', key, math.max(left_ms, lease_ms))
end
