-- Who holds a key, and who waits in its queue, at most 100 of each, whatever its
-- kind: of each `h` or `w`, the ms until a hold ends (-1 never), how many bytes
-- the token has, and the token.
--: key = KEYS[1], queue = KEYS[2], call = redis.call
local what, all = call('TYPE', key).ok, ''
local function add(sort, left, token)
  all = all .. sort .. ' ' .. left .. ' ' .. #token .. ' ' .. token
end
if what == 'string' then
  add('h', call('PTTL', key), call('GET', key))
elseif what == 'hash' and call('HLEN', key) == 1 then
  add('h', call('PTTL', key), call('HKEYS', key)[1])
elseif what == 'zset' and queue then
  -- include time.lua
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local function between(from, to)
    local some = call('ZRANGEBYSCORE', key, from, to, 'WITHSCORES', 'LIMIT', '0', '100')
    for i = 1, #some, 2 do
      local left = math.abs(some[i + 1]) - now
      add('h', math.max(math.floor(left), 0), (some[i]:gsub(':%d+.$', '')))
    end
  end
  between('(-inf', '(' .. -now)
  between('(' .. now, '+inf')
end
if queue and call('TYPE', queue).ok == 'zset' then
  for _, member in ipairs(call('ZRANGE', queue, '0', '99')) do
    add('w', -1, (member:gsub(':%d+.$', '')))
  end
end
return all
