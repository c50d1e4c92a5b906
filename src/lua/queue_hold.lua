-- Part of the scripts of the queued kinds: what a member weighs, and how it becomes
-- a holder.

-- What a member weighs. One of another sort makes the request wrong: a GET of
-- what is no string ends the script as if the key were of another type, with
-- nothing written but that dead holds are gone. A release serves nobody then.
local function weight(member, any)
  local number, its_sort = member:match(pattern)
  if its_sort == sort or any and its_sort then
    return number + 0
  end
  if op ~= '2' then
    call('GET', holders)
    call('GET', queue)
  end
  wrong = true
  return 0
end

-- Makes the holders' time to live no shorter than ms. True, or what kept it
-- from that. On a server that is out of memory only the first write of a script
-- is refused, and only if it may need memory: so this one comes first. Before
-- Redis 7.0, which does not know GT and lets such an error count for nothing, a
-- ZREM of nobody is that first write.
local function touch(ms)
  local result = pcall('PEXPIRE', holders, ms, 'GT')
  if result == 1 then
    return true
  end
  if result ~= 0 then
    pcall('ZREM', holders, me .. sort)
  end
  result = call('PTTL', holders)
  return result == -1 or result >= ms + 0
end

-- Makes a member a holder until `ends`. Nothing, or the error. `lives`: the
-- time to live is long enough already.
local function hold(member, number, ends, ms, lives)
  local new = pcall('ZADD', holders, ((number > 1 or sort == 'f') and -ends or ends) .. '', member)
  if type(new) == 'table' then
    return new
  end
  lives = lives or pcall('PEXPIRE', holders, ms)
  if type(lives) ~= 'table' then
    return
  end
  if new == 1 then
    call('ZREM', holders, member)
  end
  return lives
end
