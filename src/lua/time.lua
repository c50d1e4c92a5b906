-- Part of other scripts, before anything is written: the server's clock. Some
-- services forbid TIME in scripts.
local time = redis.pcall('TIME')
if time.err then
  return {err = 'ERR fences, queues and quarantine need TIME in scripts: ' .. time.err}
end
