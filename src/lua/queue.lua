-- Queued kinds: op 0 acquires, op 2 releases; above that it is a question, or an
-- operator: see queue_question.lua.
-- An acquire answers the fence, with a + after it if the next in the queue is
-- of the same client; or, as an integer, the ms until a holder's lease ends. A
-- release answers 1, or -1 if its member held no more.
-- `stand`: how a waiter stands in the queue: 1; 1.5 if its client cannot be
-- notified; 0 not at all. `writer`: the member that is no obstacle, or empty.
-- `follower`: of a release, who asks right after it and need not be notified.
--: permits_said = ARGV[3], offer_ms = ARGV[4], channels = ARGV[5]
--: lease_ms = ARGV[6], follower = ARGV[6]
--: stand = ARGV[7], writer = ARGV[8], fences = ARGV[9], counter = KEYS[3]
--: longest_ms = math.huge
-- include queue_head.lua

-- The short ways come first, before any function is made. To acquire a key that
-- nobody holds or waits for, without a fence:
if op == '0' and not counter and call('EXISTS', holders, queue) == 0 then
  local ends = now + lease_ms
  local negative = sort == 'f' or me:match(':(%d+)%a$') + 0 > 1
  local new = pcall('ZADD', holders, (negative and -ends or ends) .. '', me)
  local lives = type(new) == 'number' and pcall('PEXPIRE', holders, lease_ms)
  if type(lives) == 'table' then
    call('ZREM', holders, me)
  end
  return type(lives) == 'number' and '0' or lives or new
end
-- To release a key that nobody waits for:
if op == '2' and call('EXISTS', queue) == 0 then
  local ends = math.abs(call('ZSCORE', holders, me) or 0)
  call('ZREM', holders, me)
  return ends > now and 1 or -1
end

-- include queue_hold.lua
-- include queue_two.lua
local my_end = math.abs(two[1] == me and two[2] or two[3] and call('ZSCORE', holders, me) or 0)

-- include queue_until.lua

-- Grants the hold, with its fence.
local function grant(new)
  local ends = renewed(my_end)
  local ms = changed and '86400000' or ends - now
  local lives = not new and touch(ms)
  -- include fence.lua
  lives = hold(me, weight(me), ends, ms, lives)
  if lives or new then
    return lives or fence
  end
  local next_member = pcall('ZRANGE', queue, '0', '0')[1]
  return next_member and next_member:sub(1, 36) == me:sub(1, 36) and fence .. '+' or fence
end

-- Even a first attempt may find its token there, if it is executed late, after
-- the second.
if op == '0' then
  if not two[1] and call('EXISTS', queue) == 0 then
    return grant(true)
  end
  if my_end > now then
    return grant()
  end
end

-- What is wrong with the key or its queue is no matter of a release: it only
-- serves nobody.
if op == '2' then
  if my_end == 0 then
    call('ZREM', queue, me)
  else
    call('ZREM', holders, me)
    -- An offer that a waiter let pass stands there until there is room for
    -- others, and the waiter may be in the queue again.
    if my_end <= now then
      pcall('ZREM', queue, me)
    end
  end
  if two[1] == me and not two[3] then
    two = {}
  end
  head = pcall('ZRANGE', queue, '0', '0', scores)
  if not head[1] then
    return my_end > now and 1 or -1
  end
end

-- include queue_offer.lua
-- include queue_question.lua

count_holders()
if op == '2' then
  if not wrong then
    offer()
  end
  return my_end > now and 1 or -1
end

local next_to_writer
if used < permits and two[1] then
  drop(between(-now .. '', now .. ''), true)
end
if writer ~= '' and math.abs(call('ZSCORE', holders, writer) or 0) > now then
  next_to_writer = true
  call('ZREM', queue, me)
end
-- An offer that was just made goes again where the fence is refused.
if next_to_writer or offer() and used + weight(me) <= permits or mine then
  local result = grant()
  if mine and type(result) == 'table' then
    call('ZREM', holders, me)
  end
  return result
end

-- Into the queue, at its end, or with another half of a place. The first write
-- needs no memory.
if stand ~= '0' then
  local ms = offer_ms * 30 .. ''
  call('PEXPIRE', queue, ms)
  local last = member_at('-1')[2]
  if call('ZADD', queue, 'NX', math.floor((last or 0) + 1) + stand - 1 .. '', me) == 0 then
    call('ZADD', queue, math.floor(call('ZSCORE', queue, me)) + stand - 1 .. '', me)
  end
  if not last then
    call('PEXPIRE', queue, ms)
  end
end
local ends = two[3] and tonumber(between('(' .. now, '+inf', 'LIMIT', '0', '1')[2])
ends = math.min(ends or first_end or 0, first_end or ends or 0)
return ends > 0 and math.ceil(ends - now) or -1
