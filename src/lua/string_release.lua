-- String wire: releases. Answers 1, 0 if another has the key, -1 if nobody has
-- it.
--: key = KEYS[1], token = ARGV[1], call = redis.call
local holder = call('GET', key)
if holder ~= token then
  return holder and 0 or -1
end
return call('DEL', key)
