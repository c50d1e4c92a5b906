-- Several keys: lets all go that are still ours. Answers 1 only if all were. A
-- key that is of another type by now does not keep the others: its error is the
-- answer.
--: token = ARGV[1]
local result = 1
for i, key in ipairs(KEYS) do
  local holder = redis.pcall('GET', key)
  if holder == token then
    redis.call('DEL', key)
  elseif type(holder) == 'table' then
    result = holder
  elseif result == 1 then
    result = holder and 0 or -1
  end
end
return result
