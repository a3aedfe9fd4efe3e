package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	driver "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// A part is kept as "version index rows complete json": the version of the
// record that it came with and its place in that commit, by which parts are in
// the order of commit, and what the scripts need. The key is the field's name.
func writePart(p store.Part) (string, error) {
	complete := 0
	if p.Complete {
		complete = 1
	}
	key := p.Key
	p.Key = ""
	raw, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("encode part %s: %w", key, err)
	}
	return fmt.Sprintf("%d %d %s", p.Rows, complete, raw), nil
}

// A placed part knows when it was committed.
type placed struct {
	version, index int64
	store.Part
}

func readPart(key, text string) (placed, error) {
	words := strings.SplitN(text, " ", 5)
	var p placed
	var err error
	if len(words) < 5 {
		return p, fmt.Errorf("part %s: its record is cut off", key)
	}
	if p.version, err = strconv.ParseInt(words[0], 10, 64); err != nil {
		return p, fmt.Errorf("part %s: %w", key, err)
	}
	if p.index, err = strconv.ParseInt(words[1], 10, 64); err != nil {
		return p, fmt.Errorf("part %s: %w", key, err)
	}
	if err := json.Unmarshal([]byte(words[4]), &p.Part); err != nil {
		return p, fmt.Errorf("decode part %s: %w", key, err)
	}
	p.Key = key
	return p, nil
}

// commitScript records parts, charges their account, and raises the totals.
//
//	ARGV[6..12]  totals over all committed rows: rows, failed, cut inputs, cut
//	             outputs, input tokens, output tokens, copies
//	ARGV[13..]   ten for each part: key, shard, record, and what the ledger gains in seven totals
//
// It checks the fence. A part whose key is known is skipped, also when it was
// merged away. It answers ok, missing, lease, over or forgot.
//
// The first write is an HSET, which a server without memory refuses: later
// ones of the same script are not refused then.
var commitScript = jobScript(`
local names = {'rows', 'failed', 'cut_inputs', 'cut_outputs', 'input', 'output', 'copied'}
local job = redis.call('HMGET', JOB, 'status', 'session', 'epoch', 'version', 'account', 'rate', 'key', unpack(names))
local no = refused(job[1], job[2], job[3])
if no then return no end

-- more compares decimals that are not negative.
local function more(a, b)
  if #a ~= #b then return #a > #b end
  return a > b
end
local version = string.format('%.0f', job[4] + 1)
local set = {'version', version}
for i, name in ipairs(names) do
  local old, new = job[7 + i], ARGV[5 + i]
  if not old or more(new, old) then set[#set + 1], set[#set + 2] = name, new end
end
local parts, shards, merged = P .. 'parts:' .. ID, P .. 'shards:' .. ID, P .. 'merged:' .. ID
local fresh, seen = {}, {}
for i = 13, #ARGV, 10 do
  local key = ARGV[i]
  if not seen[key] and redis.call('HEXISTS', parts, key) == 0 and redis.call('SISMEMBER', merged, key) == 0 then
    seen[key] = true
    fresh[#fresh + 1] = i
  end
end
if #fresh == 0 and #set == 2 then return {'ok', holds()} end
redis.call('HSET', JOB, unpack(set))

local day = math.floor(redis.call('TIME')[1] / 86400)
local usage, rate, known = P .. 'usage:' .. day .. ':' .. job[5], job[6], false
local keyed, key = P .. 'keyusage:' .. day .. ':' .. job[5], job[7]
-- add adds to a sum, which stays at its end rather than wrap round.
local function add(sums, name, n)
  local sum = redis.pcall('HINCRBY', sums, name, n)
  if type(sum) == 'table' then redis.call('HSET', sums, name, '9223372036854775807') end
end
local function charge(name, n)
  if n == '0' or rate == '' then return end
  if not known then
    known = true
    if redis.call('EXISTS', usage) == 0 then redis.call('ZADD', P .. 'days:' .. job[5], day, day) end
  end
  add(usage, name .. rate, n)
  if key then add(keyed, name .. #key .. ':' .. key .. rate, n) end
end
for index, i in ipairs(fresh) do
  if ARGV[i + 3] ~= '0' then redis.call('HDEL', JOB, 'adopters') end
  redis.call('HSET', parts, ARGV[i], version .. ' ' .. index .. ' ' .. ARGV[i + 2])
  redis.call('ZADD', shards, ARGV[i + 1], ARGV[i])
  for n, name in ipairs({` + quoted(counters) + `}) do charge(name, ARGV[i + 2 + n]) end
end
return {'ok', wrote()}
`)

// quoted lists strings for Lua.
func quoted(names []string) string { return "'" + strings.Join(names, "', '") + "'" }

// CommitParts records parts, what they add to the ledger, and the totals over
// all committed rows. Totals that are behind the record's come from a late
// repeat and lower nothing.
func (s *Store) CommitParts(ctx context.Context, f store.Fence, parts []store.Part, totals store.Totals) error {
	args := appendTotals(nil, totals)
	for _, p := range parts {
		err := p.Check()
		var text string
		if err == nil {
			text, err = writePart(p)
		}
		if err != nil {
			return fmt.Errorf("commit parts of job %s: %w", f.JobID, err)
		}
		charged := p.Totals
		if p.Carried {
			charged = store.Totals{}
		}
		args = appendTotals(append(args, p.Key, p.Shard, text), charged)
	}
	a, _, err := s.run(ctx, commitScript, f, "", args...)
	if err == nil {
		err = fenced(f, a)
	}
	if err != nil {
		return fmt.Errorf("commit parts: %w", err)
	}
	return nil
}

// appendTotals adds seven arguments in the order of counters.
func appendTotals(args []any, t store.Totals) []any {
	for _, n := range []int64{t.Rows, t.Failed, t.TruncatedRows, t.TruncatedOutputs, t.InputTokens, t.OutputTokens, t.Deduplicated} {
		args = append(args, max(n, 0))
	}
	return args
}

// replaceScript swaps the parts of a shard for a complete one.
//
//	ARGV[6]  key of the complete part
//	ARGV[7]  shard
//	ARGV[8]  record of the complete part
//	ARGV[9]  rows that it holds
//
// It checks the fence, and that the shard's parts hold as many rows. It answers
// ok, also where the complete part is there or was replaced in
// turn, missing, lease, over, forgot, or conflict, the number of parts, and the rows that they hold.
var replaceScript = jobScript(`
local job = redis.call('HMGET', JOB, 'status', 'session', 'epoch')
local no = refused(job[1], job[2], job[3])
if no then return no end
local key, shard = ARGV[6], ARGV[7]
local parts, shards, merged = P .. 'parts:' .. ID, P .. 'shards:' .. ID, P .. 'merged:' .. ID
if redis.call('SISMEMBER', merged, key) == 1 then return {'ok', holds()} end
local old = redis.call('ZRANGEBYSCORE', shards, shard, shard)
local rows = 0
for _, name in ipairs(old) do
  local held, complete = string.match(redis.call('HGET', parts, name), '^%d+ %d+ (%d+) (%d) ')
  if name == key and complete == '1' then return {'ok', holds()} end
  rows = rows + tonumber(held)
end
if #old == 0 or rows ~= tonumber(ARGV[9]) then
  return {'conflict', tostring(#old), string.format('%.0f', rows)}
end
local version = string.format('%.0f', redis.call('HINCRBY', JOB, 'version', 1))
redis.call('HDEL', JOB, 'adopters')
for i = 1, #old, 500 do
  local last = math.min(i + 499, #old)
  redis.call('HDEL', parts, unpack(old, i, last))
  redis.call('ZREM', shards, unpack(old, i, last))
  redis.call('SADD', merged, unpack(old, i, last))
end
redis.call('HSET', parts, key, version .. ' 1 ' .. ARGV[8])
redis.call('ZADD', shards, shard, key)
return {'ok', wrote()}
`)

// ReplaceParts swaps the parts of a shard for the complete one. A complete
// part that is recorded already, or has been replaced in turn, is left alone.
func (s *Store) ReplaceParts(ctx context.Context, f store.Fence, complete store.Part) error {
	what := "replace parts of job " + f.JobID
	if err := complete.Check(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if !complete.Complete {
		return fmt.Errorf("%s, shard %d: part %s is not complete", what, complete.Shard, complete.Key)
	}
	text, err := writePart(complete)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	a, _, err := s.run(ctx, replaceScript, f, "", complete.Key, complete.Shard, text, complete.Rows)
	if err == nil && a.word() == wordConflict {
		err = fmt.Errorf("shard %d: %s parts hold %s rows, the complete one %d: %w",
			complete.Shard, a.text(1), a.text(2), complete.Rows, rowmill.ErrConflict)
	} else if err == nil {
		err = fenced(f, a)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// ListParts returns a job's parts by shard, then in the order of commit.
func (s *Store) ListParts(ctx context.Context, jobID string) ([]store.Part, error) {
	var job *driver.IntCmd
	var found *driver.MapStringStringCmd
	if err := s.read(ctx, func(p driver.Pipeliner) {
		job = p.Exists(ctx, s.job(jobID))
		found = p.HGetAll(ctx, s.key("parts", jobID))
	}); err != nil {
		return nil, fmt.Errorf("list parts: %w", err)
	}
	if job.Val() == 0 {
		return nil, fmt.Errorf("list parts: job %s: %w", jobID, rowmill.ErrNotFound)
	}
	var list []placed
	for key, text := range found.Val() {
		p, err := readPart(key, text)
		if err != nil {
			return nil, fmt.Errorf("list parts of job %s: %w", jobID, err)
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b placed) int {
		for _, difference := range []int64{int64(a.Shard - b.Shard), a.version - b.version, a.index - b.index} {
			if difference != 0 {
				return int(max(min(difference, 1), -1))
			}
		}
		return 0
	})
	var parts []store.Part
	for _, p := range list {
		parts = append(parts, p.Part)
	}
	return parts, nil
}

// dropScript removes the part records of a job that is over. It answers ok,
// missing, foreign, forgot, or conflict and the status where the job is not over.
var dropScript = jobScript(`
local job = redis.call('HMGET', JOB, 'status', 'head')
local status = job[1]
if not status then return {'missing'} end
if foreign(status, job[2]) then return {'foreign'} end
if not over[status] then return {'conflict', status} end
local no = forgot()
if no then return no end
local gone = redis.call('UNLINK', P .. 'parts:' .. ID, P .. 'shards:' .. ID, P .. 'merged:' .. ID)
if gone == 0 then return {'ok', holds()} end
redis.call('HINCRBY', JOB, 'version', 1)
return {'ok', wrote()}
`)

// DropParts removes the part records of a job that is over.
func (s *Store) DropParts(ctx context.Context, jobID string) error {
	f := store.Fence{JobID: jobID}
	a, _, err := s.run(ctx, dropScript, f, "")
	if err == nil && a.word() == wordConflict {
		err = fmt.Errorf("job %s is %s: %w", jobID, a.text(1), rowmill.ErrConflict)
	} else if err == nil {
		err = fenced(f, a)
	}
	if err != nil {
		return fmt.Errorf("drop parts: %w", err)
	}
	return nil
}
