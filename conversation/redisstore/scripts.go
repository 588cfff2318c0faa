package redisstore

import "github.com/redis/go-redis/v9"

// A conversation's record is a line of revision, life in milliseconds, and the last signs of activity and of life (nanoseconds since 1970, 19
// digits, so that they compare as text: they are too large for Lua's numbers), and then the JSON of conversation.EncodeConversation. Scripts
// work with the line and never read the JSON.
//
// The index has the ids of all conversations, ordered as bytes. A conversation whose time is over is there until it is come across.
//
// Where a script makes the name of a key by itself, it is in the same hash slot as those that it was given.

// scripts are what must happen at once. Those that write conversations publish what they wrote.
type scripts struct {
	put, touch, remove, page, heads, putGeneration, incarnation, announce, leave, claim, unclaim *redis.Script
}

const luaHeader = `
local function header(v)
	if not v then return nil end
	return string.match(v, '^(%d+) (%d+) (%d+) (%d+)\n')
end
local function write(key, v, life)
	if life == '0' then redis.call('SET', key, v) else redis.call('SET', key, v, 'PX', life) end
end
`

// luaIDs reads a page of the index: KEYS index; ARGV prefix of records, lower bound, length. What has expired leaves the index.
const luaIDs = `
local ids = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[2], '+', 'LIMIT', 0, ARGV[3])
local function gone(id) redis.call('ZREM', KEYS[1], id) end
`

func newScripts() scripts {
	return scripts{
		// KEYS record, index; ARGV id, expected revision, new revision, life, active, renewed, JSON, channel, origin.
		put: redis.NewScript(luaHeader + `
local active, renewed = ARGV[5], ARGV[6]
local rev, _, a, n = header(redis.call('GET', KEYS[1]))
if (rev or '0') ~= ARGV[2] then return 0 end
if a and a > active then active = a end
if n and n > renewed then renewed = n end
local v = ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. active .. ' ' .. renewed .. '\n' .. ARGV[7]
write(KEYS[1], v, ARGV[4])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
redis.call('PUBLISH', ARGV[8], 'c ' .. ARGV[9] .. '\n' .. v)
return 1`),

		// KEYS index; ARGV prefix of records, channel, message, then id, active and renewed of each.
		touch: redis.NewScript(luaHeader + `
local changed = 0
for i = 4, #ARGV, 3 do
	local key = ARGV[1] .. ARGV[i]
	local v = redis.call('GET', key)
	local rev, life, active, renewed = header(v)
	if rev and (ARGV[i+1] > active or ARGV[i+2] > renewed) then
		if ARGV[i+1] > active then active = ARGV[i+1] end
		if ARGV[i+2] > renewed then renewed = ARGV[i+2] end
		local json = string.sub(v, string.find(v, '\n', 1, true) + 1)
		write(key, rev .. ' ' .. life .. ' ' .. active .. ' ' .. renewed .. '\n' .. json, life)
		changed = changed + 1
	end
end
if changed > 0 then redis.call('PUBLISH', ARGV[2], ARGV[3]) end
return changed`),

		// KEYS record, index; ARGV id, expected revision, channel, message. Returns 0 when there is none, -1 when it is another revision.
		remove: redis.NewScript(luaHeader + `
local rev = header(redis.call('GET', KEYS[1]))
if not rev then
	redis.call('ZREM', KEYS[2], ARGV[1])
	return 0
end
if rev ~= ARGV[2] then return -1 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 1`),

		// Returns the last id of the page, then id and record of each that is there.
		page: redis.NewScript(luaIDs + `
local out = {ids[#ids] or ''}
for _, id in ipairs(ids) do
	local v = redis.call('GET', ARGV[1] .. id)
	if v then out[#out+1] = id; out[#out+1] = v else gone(id) end
end
return out`),

		// The same with the line of each record alone.
		heads: redis.NewScript(luaIDs + `
local out = {ids[#ids] or ''}
for _, id in ipairs(ids) do
	local v = redis.call('GETRANGE', ARGV[1] .. id, 0, 80)
	if v ~= '' then out[#out+1] = id; out[#out+1] = v else gone(id) end
end
return out`),

		// KEYS generation; ARGV expected number, new number, JSON, channel, message.
		putGeneration: redis.NewScript(`
local v = redis.call('GET', KEYS[1])
local number = v and string.match(v, '^(%d+)\n') or '0'
if number ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2] .. '\n' .. ARGV[3])
redis.call('PUBLISH', ARGV[4], ARGV[5])
return 1`),

		// KEYS incarnation; ARGV a new one.
		incarnation: redis.NewScript(`
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return redis.call('GET', KEYS[1])`),

		// KEYS set of replicas, incarnation; ARGV prefix of replicas, id, JSON, lease, a new incarnation. Returns the incarnation, then the JSON of
		// each replica.
		announce: redis.NewScript(`
redis.call('SET', ARGV[1] .. ARGV[2], ARGV[3], 'PX', ARGV[4])
redis.call('SADD', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[5], 'NX')
local out = {redis.call('GET', KEYS[2])}
for _, id in ipairs(redis.call('SMEMBERS', KEYS[1])) do
	local v = redis.call('GET', ARGV[1] .. id)
	if v then out[#out+1] = v else redis.call('SREM', KEYS[1], id) end
end
return out`),

		// KEYS set of replicas; ARGV prefix of replicas, id.
		leave: redis.NewScript(`
redis.call('SREM', KEYS[1], ARGV[2])
return redis.call('DEL', ARGV[1] .. ARGV[2])`),

		// KEYS claim; ARGV prefix of replicas, replica, life. The claim of a replica without a lease is void.
		claim: redis.NewScript(`
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[2] and redis.call('EXISTS', ARGV[1] .. holder) == 1 then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1`),

		// KEYS claim; ARGV replica.
		unclaim: redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`),
	}
}
