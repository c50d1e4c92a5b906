-- Part of other scripts. A lease that ends later than the key's time to live
-- makes that longer. No script makes one shorter, or gives one to a key that
-- has none. PEXPIRE works on a server that is out of memory.
local left_ms = call('PTTL', key)
if left_ms >= 0 and left_ms < tonumber(lease_ms) then
  call('PEXPIRE', key, lease_ms)
end
