-- Part of the script of the queued kinds: op 3 tells how the key stands, as
-- rlock__parse_info reads it; op 4 takes all holds away, whoever has them; op 5
-- sets how many permits there are, `new_permits`, or 0 for as many as each holder
-- says itself. The last two answer how many holds there were, or 0, and serve the
-- queue.
--: new_permits = ARGV[6]
if op > '2' then
  local light, heavy = between('(' .. now, '+inf'), between('(-inf', '(' .. -now)
  local held = (#light + #heavy) / 2
  count_holders()
  local first = call('ZRANGE', queue, '0', '0')[1]
  if first and first:match(pattern) then
    weight(first)
  end
  if op == '3' then
    local ends = math.max(light[#light] or now, -(heavy[2] or -now))
    return ('%d %d %d %d %d %s'):format(held, ends - now, call('ZCARD', queue),
      math.max(permits - used, 0), call('ZRANK', queue, me) or -1,
      ((light[1] or heavy[1] or ''):gsub(':%d+.$', '')))
  end
  if op == '4' then
    drop(between(-now .. '', now .. ''), true)
    drop(light)
    drop(heavy)
    for i = 1, #light, 2 do
      notify(light[i])
    end
    for i = 1, #heavy, 2 do
      notify(heavy[i])
    end
  else
    held = 0
    local member, day_ms = 'permits:' .. new_permits, '86400000'
    local lives = touch(day_ms)
    if new_permits ~= '0' then
      call('ZADD', holders, '-inf', member)
      if not lives then
        call('PEXPIRE', holders, day_ms)
      end
    end
    if two[2] == '-inf' and two[1] ~= member then
      call('ZREM', holders, two[1])
    end
  end
  two = {me, 0, me, 0}
  count_holders()
  offer()
  return held
end
