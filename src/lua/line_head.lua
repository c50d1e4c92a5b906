-- Part of the scripts of the queued kinds.
-- `holders` is a sorted set: each holder with the time at which its lease ends,
-- in ms of the server's clock, negative if it is fair or weighs more than one.
-- So what they weigh together is counted without looking at each. Where the
-- number of permits was changed, permits:<n> stands there too, at -inf. `queue`
-- is a sorted set: the waiters in their order, with half a place more for one
-- whose client cannot be notified.
-- A member is <client>:<number>:<weight><sort>; the sort is f (fair), w (read
-- and write) or s (semaphore). `me` is the member that the request is about.
-- One sort is on a key at a time: who holds has found no other there, and none
-- at the head of the queue. So what is read anyway tells another sort, and what
-- is nobody's.
local call, pcall, holders, queue, op, me, scores =
  redis.call, redis.pcall, KEYS[1], KEYS[2], ARGV[1], ARGV[2], 'WITHSCORES'
local time, used, permits, changed, first_end, mine, wrong, head = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local sort, pattern = me:sub(-1), '^[%x-]+:%d+:(%d+)([fws])$'

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
