-- Part of the scripts of the queued kinds: the first two holders, and the
-- member of the queue at a rank. What is nobody's in the queue, a key of our
-- own, is taken away.
local two = call('ZRANGE', holders, '0', '1', scores)
local function member_at(rank, found)
  found = found or call('ZRANGE', queue, rank, rank, scores)
  while found[1] and not found[1]:match(pattern) do
    call('ZREM', queue, found[1])
    found = call('ZRANGE', queue, rank, rank, scores)
  end
  return found
end
