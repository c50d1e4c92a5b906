-- String wire: takes the lock from whoever has it. Answers how many holds there
-- were.
--: key = KEYS[1], call = redis.call
return call('GET', key) and call('DEL', key) or 0
