package redis

import (
	"context"
	"fmt"
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
//	ARGV[4]  epoch of the caller
//	ARGV[5]  token of the call, the same in each of its attempts
//
// and answers with a list whose first element is one of the words below. The
// other keys of a script follow from the prefix, the job and the account; Redis
// Cluster, which would ask for them beforehand, is refused by Open.
const (
	wordOK       = "ok"
	wordMissing  = "missing"  // there is no such job
	wordLease    = "lease"    // session or epoch do not own it, or the session is over
	wordOver     = "over"     // the job is; its status follows
	wordStale    = "stale"    // what the caller had read has changed
	wordConflict = "conflict" // see the script
)

// preamble begins every script of a job.
//
// Numbers stay strings: Lua's are doubles, which end at 2^53.
var preamble = `
local P, ID, SESSION, EPOCH, TOKEN = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local JOB = KEYS[1]
local over = ` + overTable() + `

local function alive(session)
  return session ~= '' and redis.call('EXISTS', P .. 'session:' .. session) == 1
end

-- refused says why the caller may not write to the job, or nothing.
local function refused(status, session, epoch)
  if not status then return {'missing'} end
  if session ~= SESSION or epoch ~= EPOCH or not alive(SESSION) then return {'lease'} end
  if over[status] then return {'over', status} end
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

// overTable lists the states that end a job as a Lua table.
func overTable() string {
	var entries []string
	for _, status := range rowmill.Statuses() {
		if status.Terminal() {
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

// newToken returns a name for one call.
func newToken() string { return uuid.NewString() }

// run runs a script of a job that writes. doubt says that an earlier attempt of
// this very call may have been executed.
func (s *Store) run(ctx context.Context, script *driver.Script, f store.Fence, token string, args ...any) (a answer, doubt bool, err error) {
	return s.send(ctx, true, script, f, token, args...)
}

// send is run for a script that writes or only reads.
func (s *Store) send(ctx context.Context, write bool, script *driver.Script, f store.Fence, token string, args ...any) (a answer, doubt bool, err error) {
	head := []any{s.config.Prefix, f.JobID, f.Session, f.Epoch, token}
	doubt, err = s.try(ctx, write, func(ctx context.Context) error {
		list, err := script.Run(ctx, s.client, []string{s.job(f.JobID)}, append(head, args...)...).Slice()
		a = list
		return err
	})
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
	}
	return fmt.Errorf("job %s: the Redis script answered %q", f.JobID, a)
}

// The names of keys; doc.go lists what they hold. An account or a job id is
// always the last part of a name, or behind its length, so that no two names
// meet.
func (s *Store) key(parts ...string) string { return s.config.Prefix + strings.Join(parts, ":") }
func (s *Store) job(id string) string       { return s.key("job", id) }
func (s *Store) session(id string) string   { return s.key("session", id) }
func (s *Store) idem(account, k string) string {
	return s.key("idem", fmt.Sprint(len(account)), account, k)
}
