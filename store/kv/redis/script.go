package redis

import driver "github.com/redis/go-redis/v9"

// script performs all reads and writes of tables. In one step it checks the read set of
// a transaction, writes, and reads.
//
//	ARGV[1]  prefix of all names
//	ARGV[2]  token of the call, empty for a call that only reads
//	ARGV[3…] lists, each after its length, of
//	         checks    name of the table, key, id that the value must have; empty for no value
//	         sessions  name of a session that must be alive
//	         adds      table, key, head of the checksum (kv.KeyChecksum), and for each counter that
//	                   grows 9 bytes: its index and its upper and lower half
//	         puts      table, key, checksum and value
//	         deletes   table, key
//	         gets      table, key
//	         scans     table, "1" for a reverse scan, first, last, most entries or -1
//
// It answers in three ways: "stale", with the table and the key of a failed check, or
// the name of a session that has ended; "damaged", with the table and the key of
// counters; or "ok", the server's clock in microseconds, the id of the transaction, a
// list of values, and for each scan a list of keys and values. A repeated call with the
// same token gets the same answer and writes nothing.
//
// The halves of counters are 32-bit numbers, because Lua numbers are exact only up to
// 2^53. The first write is a SET, because a server without free memory refuses SET; the
// server accepts all writes after it.
var script = driver.NewScript(`
local A, call, P, token, n = ARGV, redis.call, ARGV[1], ARGV[2], 2
local function list(width, f)
  local first = n + 2
  n = n + 1 + width * A[n + 1]
  for i = first, n, width do f(A[i], A[i + 1], A[i + 2], A[i + 3], A[i + 4]) end
end
local function order(t) return P .. 'o:' .. string.sub(t, #P + 3) end
local at = call('TIME')
local now = at[1] * 1000000 + at[2]
local did = token ~= '' and call('GET', P .. 'did:' .. token)
if did then return {'ok', string.format('%.0f', now), did, {}, {}} end

local stop
list(3, function(t, k, id)
  if string.sub(call('HGET', t, k) or '', 1, 8) ~= id then stop = {'stale', t, k} end
end)
list(1, function(session) if call('EXISTS', session) == 0 then stop = {'stale', session, ''} end end)
if stop then return stop end

-- sealed puts counters behind their checksum: the first bytes of a hash.
local function sealed(head, counters)
  return struct.pack('>BI4', 1, tonumber(string.sub(redis.sha1hex(head .. counters), 1, 8), 16)) .. counters
end
-- plus adds two signed numbers of 64 bits. After an overflow the sum is their limit.
local function plus(h1, l1, h2, l2)
  local l = l1 + l2
  local h = (h1 + h2 + (l >= 4294967296 and 1 or 0)) % 4294967296
  local neg1, neg2, neg = h1 >= 2147483648, h2 >= 2147483648, h >= 2147483648
  if neg1 == neg2 and neg ~= neg1 then
    if neg1 then return 2147483648, 0 else return 2147483647, 4294967295 end
  end
  return h, l % 4294967296
end
local puts = {}
list(4, function(t, k, head, more)
  local old, halves = call('HGET', t, k), {}
  if old then
    halves = {struct.unpack('>' .. string.rep('I4', (#old - 13) / 4), old, 14)}
    halves[#halves] = nil -- not a number: the position where unpack has stopped
    if sealed(head, string.sub(old, 14)) ~= string.sub(old, 9) then stop = {'damaged', t, k} end
  end
  for p = 1, #more, 9 do
    local i, h, l = struct.unpack('>BI4I4', more, p)
    for j = #halves + 1, 2 * i + 2 do halves[j] = 0 end
    halves[2 * i + 1], halves[2 * i + 2] = plus(halves[2 * i + 1], halves[2 * i + 2], h, l)
  end
  puts[#puts + 1] = {t, k, sealed(head, struct.pack('>' .. string.rep('I4', #halves), unpack(halves)))}
end)
if stop then return stop end
list(3, function(t, k, v) puts[#puts + 1] = {t, k, v} end)
local id = ''
if token ~= '' then
  local last = string.format('%.0f', math.max((call('GET', P .. 'id') or 0) + 1, now))
  id = struct.pack('>I8', tonumber(last))
  call('SET', P .. 'id', last)
  call('SET', P .. 'did:' .. token, id, 'PX', 60000)
end
for _, put in ipairs(puts) do
  if call('HSET', put[1], put[2], id .. put[3]) == 1 then call('ZADD', order(put[1]), 0, put[2]) end
end
list(2, function(t, k) if call('HDEL', t, k) == 1 then call('ZREM', order(t), k) end end)

local gets, scans = {}, {}
list(2, function(t, k) gets[#gets + 1] = call('HGET', t, k) end)
list(5, function(t, reverse, first, last, most)
  local keys, found
  if reverse == '1' then keys = call('ZRANGE', order(t), last, first, 'BYLEX', 'REV', 'LIMIT', 0, most)
  else keys = call('ZRANGE', order(t), first, last, 'BYLEX', 'LIMIT', 0, most) end
  found = {}
  for _, k in ipairs(keys) do found[#found + 1] = k found[#found + 1] = call('HGET', t, k) end
  scans[#scans + 1] = found
end)
return {'ok', string.format('%.0f', now), id, gets, scans}
`)
