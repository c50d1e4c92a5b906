-- Wakes Redisson's waiters. A user who may not publish still releases: the
-- message is a courtesy. In a cluster of Redis 7 and newer Redisson from 3.22.1
-- on listens to the sharded channel of the same name.
pcall('PUBLISH', channel, '0')
if sharded then
  pcall('SPUBLISH', channel, '0')
end
