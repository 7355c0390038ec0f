-- SPDX-License-Identifier: MIT
-- The fencing guard for Redis 5+ and Valkey (docs/fencing.md): refuses writers whose permit has passed on to somebody
-- else. Check and write are one script, so nothing can come between them:
--
--     EVALSHA <sha> 2 permit_fence:{backups} report:{backups}   57 3   3 SET report:{backups} text
--             keys: the fence, then all that is written         |  |   how many words the command has, and the words;
--                                                           token  |   and so on for further commands
--                                                                  place
--
-- KEYS[1] is the fence of one semaphore: a hash, field = place, value = the largest token that has passed there. It
-- must never expire or be evicted. In a cluster it must live in the slot of what is written: hence {...}.
--
-- The place is one of
--     3   3,4            slots, as in PERMIT_SLOTS: passes if no larger token has passed on any, and raises all
--     resource:NAME      for counted semaphores: a maximum of its own for what is written; right only where one holder
--                        at a time writes it
--     floor              for counted semaphores: passes if the token is not below the highest floor that was told
--     raise_floor        tells a floor, in the place of the token: what a holder does first
--
-- Answers what the last command answered, or OK if there was none. The error STALE: somebody has written there with a
-- newer token: write no more. INVALID: the arguments make no sense. After either nothing has been changed.

-- Tokens are below 2^53: Lua's numbers hold them exactly.
local function number(text, digits)
  return text and #text <= digits and text:match('^[1-9]%d*$') and tonumber(text)
end

local fence, token, place = KEYS[1], number(ARGV[1], 16), ARGV[2]

local function invalid(why)
  return redis.error_reply('INVALID ' .. why)
end

local function stale(where, newer)
  return redis.error_reply('STALE token ' .. ARGV[1] .. ': ' .. where .. ' of ' .. fence .. ' has seen ' .. newer)
end

local function seen(field)
  return tonumber(redis.call('HGET', fence, field) or '0')
end

if not (fence and token and token < 2 ^ 53 and place) then
  return invalid('give the key of the fence, token and place')
end

-- The commands are looked at before anything is written.
local commands, at = {}, 3
while ARGV[at] do
  local words = number(ARGV[at], 4)
  if not words or not ARGV[at + words] then
    return invalid('a command is not as long as it says')
  end
  commands[#commands + 1] = { at + 1, at + words }
  at = at + words + 1
end

local fields, where = {}, ''
if place == 'floor' then
  local floor = seen('floor')
  if floor == 0 then
    return invalid('no floor was told yet')
  elseif token < floor then
    return stale('the floor', string.format('%.0f', floor))
  end
elseif place == 'raise_floor' then
  if token > seen('floor') then
    redis.call('HSET', fence, 'floor', ARGV[1])
  end
elseif place:match('^resource:.') then
  fields[1] = place
else
  for slot in (place .. ','):gmatch('([^,]*),') do
    if not number(slot, 9) then
      return invalid('the place is slots (3 or 3,4), resource:NAME, floor or raise_floor')
    end
    fields[#fields + 1] = slot
    where = 'slot '
  end
end

local raise = {}
for _, field in ipairs(fields) do
  local newest = seen(field)
  if token < newest then
    return stale(where .. field, string.format('%.0f', newest))
  elseif token > newest then
    raise[#raise + 1] = field
  end
end
for _, field in ipairs(raise) do
  redis.call('HSET', fence, field, ARGV[1])
end

local answer = redis.status_reply('OK')
for _, command in ipairs(commands) do
  answer = redis.call(unpack(ARGV, command[1], command[2]))
end
return answer
