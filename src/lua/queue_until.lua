-- Part of the scripts of the queued kinds: until when a hold lasts that was to end
-- at a time, and is renewed. It never ends earlier than it was to, but where a
-- clock was set back: see extend.lua. It ends at another time in any case, so
-- that something is written.
local function renewed(ends)
  local most = now + longest_ms
  return ends > most and most or math.max(now + lease_ms, math.floor(ends) + 1)
end
