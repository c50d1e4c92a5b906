-- Part of the scripts of the queued kinds.
-- `holders` is a sorted set: each holder with the time at which its lease ends,
-- in ms of the server's clock, negative if it is fair or weighs more than one.
-- An offer ends half a ms earlier: a hold never ends between two ms.
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
local used, permits, changed, first_end, mine, wrong, head
-- include time.lua
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local sort, pattern = me:sub(-1), '^[%x-]+:%d+:(%d+)([fws])$'
