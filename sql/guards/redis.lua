-- SPDX-License-Identifier: MIT
-- Fencing guard for Redis 5+ and Valkey (docs/fencing.md): refuses writers whose permit has passed to another client. One
-- script checks and writes, so no other command can run in between:
--
--     EVALSHA <sha> 2 permit_fence:{backups} report:{backups}   57 3   3 SET report:{backups} text
--             keys: the fence, then every key written           |  |   number of words of the command, then the words;
--                                                           token  |   the same for further commands
--                                                                  place
--
-- KEYS[1] is the fence of one semaphore: a hash, field = place, value = the largest token that has passed there. It must
-- never expire or be evicted. In a cluster it must be in the same hash slot as the keys written: use {...} in the names.
--
-- The place is one of
--     3   3,4            slots, as in PERMIT_SLOTS: passes if no larger token has passed on any, and raises all
--     resource:NAME      for counted semaphores: a separate mark for the resource that is written; correct only if one
--                        holder at a time writes it
--     floor              for counted semaphores: passes if the token is not below the highest floor raised so far
--     raise_floor        raises the floor, given in place of the token; a holder does this first
--
-- Returns the reply of the last command, or OK if there was none. The error STALE: a newer holder has written there; stop
-- writing. INVALID: invalid arguments. After either error nothing has been changed.

local fence, token, place, last = KEYS[1], ARGV[1], ARGV[2], #ARGV

-- Fast path for nearly all calls: one command, of a writer that has written before and finds its own token.
if last > 3 and fence and tonumber(ARGV[3]) == last - 3 and redis.call('HGET', fence, place) == token then
  return redis.call(unpack(ARGV, 4))
end

local function invalid(why)
  return redis.error_reply('INVALID ' .. why)
end

-- Check all commands before the first write.
local at = 3
while at <= last do
  local words = tonumber(ARGV[at]) or 0
  if words < 1 or words % 1 ~= 0 or at + words > last then
    return invalid('a command is not as long as it says')
  end
  at = at + words + 1
end

local function seen(field)
  return tonumber(redis.call('HGET', fence, field) or '0')
end

local function stale(where, newer)
  return redis.error_reply(string.format('STALE token %s: %s of %s has seen %.0f', token, where, fence, newer))
end

-- The largest token that any semaphore can have issued by now, plus a day for wrong clocks: a token of epoch e is
-- e * 1024 or slightly more, and epochs are milliseconds since 2026. A larger one would lock out all writers permanently.
-- (One that passes by mistake locks them out until a `permitctl fence bump` a day later.) The limit is below 2^53: Lua's
-- numbers hold tokens exactly.
local limit = (math.max(tonumber(redis.call('TIME')[1]) - 1767225600, 0) + 86400) * 1024000
local wanted = token and #token <= 16 and token:match('^[1-9]%d*$') and tonumber(token)
if not (fence and place and wanted) then
  return invalid('give the key of the fence, a token and a place')
elseif wanted > limit then
  return invalid('the token cannot have been given out yet')
end

local fields, kind = {}, ''
if place == 'floor' then
  local floor = seen(place)
  if floor == 0 then
    return invalid('no floor was told yet')
  elseif wanted < floor then
    return stale('the floor', floor)
  end
elseif place == 'raise_floor' then
  if wanted > seen('floor') then
    redis.call('HSET', fence, 'floor', token)
  end
elseif place:match('^resource:.') then
  fields[1] = place
else
  kind = 'slot '
  for slot in (place .. ','):gmatch('([^,]*),') do
    if #slot > 9 or not slot:match('^[1-9]%d*$') then
      return invalid('a place is slots (3 or 3,4), resource:NAME, floor or raise_floor')
    end
    fields[#fields + 1] = slot
  end
end

local raise = {}
for _, field in ipairs(fields) do
  local newest = seen(field)
  if wanted < newest then
    return stale(kind .. field, newest)
  elseif wanted > newest then
    raise[#raise + 1] = field
  end
end
for _, field in ipairs(raise) do
  redis.call('HSET', fence, field, token)
end

if last < 3 then
  return redis.status_reply('OK')
end
local answer
at = 3
while at <= last do
  answer = redis.call(unpack(ARGV, at + 1, at + ARGV[at]))
  at = at + ARGV[at] + 1
end
return answer
