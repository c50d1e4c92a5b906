-- Part of the scripts of the queued kinds: who holds, and an offer to the head
-- of the queue.
--: permits_said = ARGV[3], offer_ms = ARGV[4], channels = ARGV[5], follower = ARGV[6]
local function between(least, most, ...)
  return call('ZRANGEBYSCORE', holders, least, most, scores, ...)
end

-- Notes one holder, or the number of permits.
local function note(member, score)
  if score == '-inf' then
    changed = true
    permits = (sort == 's' and member:match('^permits:(%d+)$') or weight('')) + 0
    return
  end
  local ends = math.abs(score)
  local number = weight(member, ends <= now)
  if ends > now then
    used, first_end = used + number, ends
  end
end

-- Counts what all holders weigh together, by as few looks as there can be: dead
-- holds may stand before live ones.
local function count_holders()
  used, permits = 0, permits_said + 0
  if two[1] then
    note(two[1], two[2])
  end
  if not two[3] then
    return
  end
  note(two[3], two[4])
  if not first_end then
    local live = between('(' .. now, '+inf', 'LIMIT', '0', '1')
    if live[1] then
      note(live[1], live[2])
    end
  end
  used = call('ZCOUNT', holders, '(' .. now, '+inf')
  local heavy = between('-inf', '(' .. -now)
  for i = 1, #heavy, 2 do
    note(heavy[i], heavy[i + 1])
  end
end

-- Takes holders away, none if one of them is nobody's. Where one is an offer that
-- was not accepted, the others of its client would not be either, and each would
-- cost as long: unless it is this client, which lives. So all positions of that
-- client go, and it is told so: it may live again by then, and joins again. The
-- queue is read once, however many they are.
local function drop(members, any)
  local expelled, waiters = {}
  for i = 1, #members, 2 do
    weight(members[i], any)
  end
  for i = 1, #members, 2 do
    local client, ends = members[i]:sub(1, 36), math.abs(members[i + 1])
    call('ZREM', holders, members[i])
    if ends % 1 ~= 0 and ends <= now and client ~= me:sub(1, 36) and not expelled[client] then
      expelled[client], waiters = true, waiters or call('ZRANGE', queue, '0', '-1')
      pcall('PUBLISH', channels .. client, '0:' .. holders)
    end
  end
  for i = 1, waiters and #waiters or 0 do
    if expelled[waiters[i]:sub(1, 36)] then
      call('ZREM', queue, waiters[i])
    end
  end
end

-- Notifies the client of a member: <number>:<key> on the client's channel.
-- Whether anybody heard.
local function notify(member)
  return pcall('PUBLISH', channels .. member:sub(1, 36),
    member:match(':(%d+):') .. ':' .. holders) ~= 0
end

-- While there is room the head of the queue becomes a holder for offer_ms, and
-- its client is notified, to ask and get its lease. One whom nobody hears is
-- skipped; so is one that weighs more than there are permits. So holds are
-- given in one place only, and an offer that is not accepted is a hold that
-- expired, and that stays to be seen: see drop. True if the queue is empty.
local function offer()
  local stays_ms = offer_ms * 2
  while used < permits do
    local first = member_at('0', head)
    head = nil
    local member = first[1]
    if not member then
      return true
    end
    local number = weight(member)
    if wrong then
      return
    end
    if number <= permits then
      if used + number > permits or
        hold(member, number, now + offer_ms - 0.5, stays_ms, two[1] and touch(stays_ms)) then
        return
      end
      used, two = used + number, {member, 0, member, 0}
      if member == me then
        mine = true
      elseif member ~= follower and first[2] % 1 == 0 and not notify(member) then
        used = used - number
        call('ZREM', holders, member)
      end
    end
    call('ZREM', queue, member)
  end
end
