-- Queued kinds: renews, or with lease 0 only looks. Answers 1, or -1 if the
-- member holds no more. A renewal writes even if nothing is to be changed, as in
-- extend.lua: the end is another one. The ZSCORE at the end is for client
-- tracking, as the PTTL of a mutex.
--: lease_ms = ARGV[6], longest_ms = ARGV[7]
-- include queue_head.lua
-- include queue_hold.lua
-- include queue_until.lua
local ends = math.abs(call('ZSCORE', holders, me) or 0)
if ends <= now then
  return -1
end
if lease_ms ~= '0' then
  ends = renewed(ends)
  local failed = hold(me, weight(me), ends, ends - now, touch(ends - now))
  if failed then
    return failed
  end
end
call('ZSCORE', holders, me)
return 1
