package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	driver "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// Every script of a job takes
//
//	KEYS[1]  the job's hash
//	ARGV[1]  prefix of all keys
//	ARGV[2]  job id
//	ARGV[3]  session of the caller, or empty
//	ARGV[4]  epoch of the caller; behind blanks, where the call has a store.Writer, how
//	         many of its writes were acknowledged, and its name
//	ARGV[5]  token of the call, the same in each of its attempts
//
// and answers with a list whose first element is one of the words below. Behind
// ok comes how many writes of its writer's the record holds, if the script
// writes one: the job's hash counts them in a field for each writer. The
// other keys of a script follow from the prefix, the job and the account; Redis
// Cluster, which would ask for them beforehand, is refused by Open.
const (
	wordOK       = "ok"
	wordMissing  = "missing"  // there is no such job
	wordLease    = "lease"    // session or epoch do not own it, or the session is over
	wordOver     = "over"     // the job is; its status follows
	wordStale    = "stale"    // what the caller had read has changed
	wordForgot   = "forgot"   // the record lacks writes of the writer's; how many it holds follows
	wordConflict = "conflict" // see the script
	wordForeign  = "foreign"  // a newer version of the program wrote the job
)

// wordNewer leads a guard's refusal.
const wordNewer = "NEWER"

// guard begins every script that writes. Where somebody has raised the schema
// version of the records since the store was opened it refuses the rest, so
// that this program does no harm from that moment. meta is
// the key of the hash with that version, in Lua.
func guard(meta string) string {
	return fmt.Sprintf(`
do
  local schema = redis.call('HGET', %s, 'schema')
  if schema and tonumber(schema) > %d then return redis.error_reply('-%s schema version ' .. schema) end
end
`, meta, store.SchemaVersion, wordNewer)
}

// guarded makes a script that is not of a job: its last key is that of meta.
func guarded(body string) *driver.Script { return driver.NewScript(guard("KEYS[#KEYS]") + body) }

// preamble begins every script of a job.
//
// Numbers stay strings: Lua's are doubles, which end at 2^53.
var preamble = `
local P, ID, SESSION, TOKEN = ARGV[1], ARGV[2], ARGV[3], ARGV[5]
local EPOCH, ACKED, WRITER = string.match(ARGV[4], '^(%S*) ?(%d*) ?(%S*)$')
local JOB = KEYS[1]
` + guard("P .. 'meta'") + `
local over = ` + statusTable(rowmill.Status.Terminal) + `
local known = ` + statusTable(func(rowmill.Status) bool { return true }) + `

-- foreign says that the job is of a newer version of the program.
local function foreign(status, head)
  return not known[status] or (cjson.decode(head).schema_version or 0) > ` + strconv.Itoa(store.SchemaVersion) + `
end

local function alive(session)
  return session ~= '' and redis.call('EXISTS', P .. 'session:' .. session) == 1
end

-- holds is how many writes of the caller's the record has, wrote counts another,
-- and forgot says that there were more.
local function holds() return WRITER ~= '' and redis.call('HGET', JOB, '` + writerField + `' .. WRITER) or '0' end
local function wrote()
  if WRITER == '' then return '0' end
  return string.format('%.0f', redis.call('HINCRBY', JOB, '` + writerField + `' .. WRITER, 1))
end
local function forgot()
  if WRITER ~= '' and tonumber(holds()) < tonumber(ACKED) then return {'forgot', holds()} end
end

-- refused says why the caller may not write to the job, or nothing.
local function refused(status, session, epoch)
  if not status then return {'missing'} end
  if session ~= SESSION or epoch ~= EPOCH or not alive(SESSION) then return {'lease'} end
  if over[status] then return {'over', status} end
  return forgot()
end

-- wait and unwait move a job into and out of the jobs without a session.
local function wait(account, order)
  redis.call('ZADD', P .. 'waiting:' .. account, 0, order)
  redis.call('SADD', P .. 'waiters', account)
end
local function unwait(account, order)
  redis.call('ZREM', P .. 'waiting:' .. account, order)
  if redis.call('EXISTS', P .. 'waiting:' .. account) == 0 then redis.call('SREM', P .. 'waiters', account) end
end
`

// writerField leads the names of the fields that count the writes of a writer.
const writerField = "w:"

// statusTable lists states as a Lua table.
func statusTable(in func(rowmill.Status) bool) string {
	var entries []string
	for _, status := range rowmill.Statuses() {
		if in(status) {
			entries = append(entries, fmt.Sprintf("[%q]=true", status))
		}
	}
	return "{" + strings.Join(entries, ", ") + "}"
}

// jobScript makes a script of a job.
func jobScript(body string) *driver.Script { return driver.NewScript(preamble + body) }

// An answer is what a script returned.
type answer []any

// word is the first element.
func (a answer) word() string { return a.text(0) }

// text is an element that is a string, or else empty.
func (a answer) text(i int) string {
	if i >= len(a) {
		return ""
	}
	text, _ := a[i].(string)
	return text
}

// list is an element that is a list of strings, nil standing for none.
func (a answer) list(i int) answer {
	if i >= len(a) {
		return nil
	}
	list, _ := a[i].([]any)
	return list
}

// pairs reads a list of names and values, one behind the other.
func (a answer) pairs() map[string]string {
	pairs := make(map[string]string, len(a)/2)
	for i := 0; i+1 < len(a); i += 2 {
		pairs[a.text(i)] = a.text(i + 1)
	}
	return pairs
}

// newToken returns a name for one call.
func newToken() string { return uuid.NewString() }

// run runs a script of a job that writes. doubt says that an earlier attempt of
// this very call may have been executed.
func (s *Store) run(ctx context.Context, script *driver.Script, f store.Fence, token string, args ...any) (a answer, doubt bool, err error) {
	return s.send(ctx, true, script, f, token, args...)
}

// send is run for a script that writes or only reads.
func (s *Store) send(ctx context.Context, write bool, script *driver.Script, f store.Fence, token string, args ...any) (a answer, doubt bool, err error) {
	epoch, w := decimal(f.Epoch), store.WriterOf(ctx)
	if w != nil {
		epoch += " " + decimal(w.Acked()) + " " + w.Name()
	}
	head := []any{s.config.Prefix, f.JobID, f.Session, epoch, token}
	doubt, err = s.try(ctx, write, func(ctx context.Context) error {
		list, err := script.Run(ctx, s.client, []string{s.job(f.JobID)}, append(head, args...)...).Slice()
		a = list
		return err
	})
	if err == nil && write && w != nil && a.word() == wordOK {
		n, bad := strconv.ParseInt(a.text(1), 10, 64)
		if bad != nil {
			return a, doubt, fmt.Errorf("job %s: the number of writes of %s: %w", f.JobID, w.Name(), bad)
		}
		w.Ack(n)
	}
	return a, doubt, err
}

// fenced is the error in the answer to an owner's write, or nil.
func fenced(f store.Fence, a answer) error {
	switch a.word() {
	case wordOK:
		return nil
	case wordMissing:
		return fmt.Errorf("job %s: %w", f.JobID, rowmill.ErrNotFound)
	case wordLease:
		return fmt.Errorf("job %s, session %q, epoch %d: %w", f.JobID, f.Session, f.Epoch, rowmill.ErrLeaseLost)
	case wordOver:
		return fmt.Errorf("job %s is %s: %w", f.JobID, a.text(1), rowmill.ErrTerminal)
	case wordForeign:
		return fmt.Errorf("job %s: %w", f.JobID, store.ErrNewer)
	case wordForgot:
		return fmt.Errorf("job %s holds %s writes of who was told of more: %w", f.JobID, a.text(1), store.ErrForgotten)
	}
	return fmt.Errorf("job %s: the Redis script answered %q", f.JobID, a)
}

// The names of keys; doc.go lists what they hold. An account or a job id is
// always the last part of a name, or behind its length, so that no two names
// meet.
func (s *Store) key(parts ...string) string       { return s.config.Prefix + strings.Join(parts, ":") }
func (s *Store) withMeta(keys ...string) []string { return append(keys, s.key("meta")) } // for a guarded script
func (s *Store) job(id string) string             { return s.key("job", id) }
func (s *Store) session(id string) string         { return s.key("session", id) }
func (s *Store) idem(account, k string) string {
	return s.key("idem", fmt.Sprint(len(account)), account, k)
}
