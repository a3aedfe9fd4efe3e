package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/contain"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/store"
)

// errStale says that what a call rests on has changed since it was read.
var errStale = errors.New("others changed it at the same time")

// untilFresh repeats a call for as long as it is errStale, and pauses longer
// each time: of those that meet one succeeds each time, and the others must not
// keep the server from it. What is given up has not taken effect.
func (s *Store) untilFresh(ctx context.Context, call func() error) error {
	err := retry.Contention.Do(ctx, call, func(err error) bool { return errors.Is(err, errStale) }, nil)
	if errors.Is(err, errStale) {
		err = fmt.Errorf("%w: %w: try again", rowmill.ErrUnavailable, err)
	}
	return err
}

// swapScript writes a record back that was read before.
//
//	ARGV[6]  version that was read
//	ARGV[7]  rows that the parts must hold, or empty
//	ARGV[8]  order among the held jobs where the job is over from now on, else empty
//	ARGV[9]  when something of the job is to be removed, ms since 1970; "-" for never; empty where that is as it was
//	ARGV[10] number of fields to remove
//	ARGV[11] those fields, then names and values of the fields to set
//
// Without a session it is a client's write. It answers ok and behind the number
// of writes the new version, missing, lease, forgot, stale where the version is
// another, or conflict and the rows that the parts hold. The hash keeps the token, by which a repeated attempt
// knows its own write.
var swapScript = jobScript(`
local job = redis.call('HMGET', JOB, 'version', 'token', 'session', 'epoch', 'account', 'order')
if not job[1] then return {'missing'} end
if job[2] == TOKEN then return {'ok', holds(), job[1]} end
if SESSION ~= '' and (job[3] ~= SESSION or job[4] ~= EPOCH or not alive(SESSION)) then return {'lease'} end
local no = forgot()
if no then return no end
if job[1] ~= ARGV[6] then return {'stale'} end
if ARGV[7] ~= '' then
  -- Exact: no part holds 2^53 rows, nor does the job, and a sum beyond that
  -- stays beyond it.
  local rows = 0
  for _, part in ipairs(redis.call('HVALS', P .. 'parts:' .. ID)) do
    rows = rows + tonumber(string.match(part, '^%d+ %d+ (%d+) '))
  end
  if rows ~= tonumber(ARGV[7]) then return {'conflict', string.format('%.0f', rows)} end
end
local version, removed = string.format('%.0f', job[1] + 1), tonumber(ARGV[10])
redis.call('HSET', JOB, 'version', version, 'token', TOKEN, unpack(ARGV, 11 + removed))
if removed > 0 then redis.call('HDEL', JOB, unpack(ARGV, 11, 10 + removed)) end
if ARGV[9] == '-' then redis.call('ZREM', P .. 'due', ID)
elseif ARGV[9] ~= '' then redis.call('ZADD', P .. 'due', ARGV[9], ID) end
if ARGV[8] ~= '' then
  redis.call('ZADD', P .. 'held:' .. job[5], 0, ARGV[8])
  redis.call('SADD', P .. 'holders', job[5])
  redis.call('HSET', JOB, 'reserved', '0')
  redis.call('SREM', P .. 'reserved:' .. job[5], ID)
  if job[3] == '' then unwait(job[5], job[6]) else redis.call('HDEL', P .. 'owned', ID) end
end
return {'ok', wrote(), version}
`)

// An edit is a change of a record by a function.
type edit struct {
	what  string      // for errors
	fence store.Fence // with a session: an owner's write
	spec  bool        // the specification may change
	// change returns false where there is nothing to write.
	change func(*store.Record) (write bool, err error)
}

// edit reads a record, changes it and writes it back unless it was changed in
// between, again and again.
func (s *Store) edit(ctx context.Context, e edit) (rec store.Record, err error) {
	err = s.untilFresh(ctx, func() error {
		rec, err = s.editOnce(ctx, e)
		return err
	})
	if errors.Is(err, errStale) {
		err = fmt.Errorf("%s: %w", e.what, err)
	}
	return rec, err
}

func (s *Store) editOnce(ctx context.Context, e edit) (store.Record, error) {
	before, alive, now, err := s.load(ctx, e.fence.JobID, e.fence.Session)
	if err != nil {
		return store.Record{}, fmt.Errorf("%s: %w", e.what, err)
	}
	rec, err := before.record()
	if err != nil {
		return store.Record{}, fmt.Errorf("%s: %w", e.what, err)
	}
	if err := rec.CheckVersion(); err != nil {
		return store.Record{}, fmt.Errorf("%s: %w", e.what, err)
	}
	if e.fence.Session != "" {
		if err := owns(e.fence, rec, alive); err != nil {
			return store.Record{}, fmt.Errorf("%s: %w", e.what, err)
		}
	}
	if err := before.whole(ctx, e.fence.JobID); err != nil {
		return store.Record{}, fmt.Errorf("%s: %w", e.what, err)
	}
	was := state{rec.Job.Status, due(rec)}
	var write bool
	err = contain.Run(func() (err error) {
		write, err = e.change(&rec)
		return err
	})
	if err != nil || !write {
		return rec, err
	}
	rec.End(was.status, now)
	after, err := s.swap(ctx, e, before, rec, was)
	if err != nil && !errors.Is(err, errStale) {
		err = fmt.Errorf("%s: %w", e.what, err)
	}
	return after, err
}

// owns checks a fence against a record that was read. The scripts check it
// again when they write.
func owns(f store.Fence, rec store.Record, alive bool) error {
	switch {
	case !alive || rec.Session != f.Session || rec.Epoch != f.Epoch:
		return fenced(f, answer{wordLease})
	case rec.Job.Status.Terminal():
		return fenced(f, answer{wordOver, string(rec.Job.Status)})
	}
	return nil
}

// A state is what the indexes of jobs go by.
type state struct {
	status rowmill.Status
	due    string
}

// due is when something of a job is to be removed, as the scripts take it.
func due(rec store.Record) string {
	at, due := rec.Due()
	if !due {
		return "-"
	}
	return decimal(at.UnixMilli())
}

// swap writes rec in place of what was read before, when its state was another.
func (s *Store) swap(ctx context.Context, e edit, before fields, rec store.Record, was state) (store.Record, error) {
	after, err := encode(rec, before)
	if err != nil {
		return store.Record{}, err
	}
	if same, err := after.sameSpec(before); err != nil || !same && !e.spec {
		return store.Record{}, cmp.Or(err, errors.New("its account and specification cannot change"))
	}
	ends := rec.Job.Status.Terminal() && !was.status.Terminal()
	recount := ""
	if ends && rec.Job.Status == rowmill.StatusSucceeded && rec.Job.RunType != rowmill.RunEstimate {
		if rec.Job.NumRows == nil {
			return store.Record{}, fmt.Errorf("its rows were never counted: %w", rowmill.ErrConflict)
		}
		recount = decimal(min(*rec.Job.NumRows, store.MaxRows+1)) // no parts hold that many
	}
	over := ""
	if ends {
		over = order(rec.EndedAt(), rec.Job.ID)
		after["reserved"] = "0"
	}
	next := due(rec)
	if next == was.due {
		next = ""
	}
	set, unset := after.changes(before)
	args := append([]any{before["version"], recount, over, next, len(unset)}, append(unset, set...)...)
	a, doubt, err := s.run(ctx, swapScript, e.fence, newToken(), args...)
	switch {
	case err != nil:
		return store.Record{}, err
	case a.word() == wordOK:
		after["version"] = a.text(2)
		return after.record()
	case a.word() == wordStale && doubt:
		// An attempt of ours may be what changed it: running change on top of
		// that could count twice.
		s.unknown.Inc()
		return store.Record{}, store.ErrOutcomeUnknown
	case a.word() == wordStale:
		return store.Record{}, errStale
	case a.word() == wordConflict:
		return store.Record{}, fmt.Errorf("its parts hold %s rows of %d: %w", a.text(1), *rec.Job.NumRows, rowmill.ErrConflict)
	}
	return store.Record{}, fenced(e.fence, a)
}

// Update changes a record under a fence.
func (s *Store) Update(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	return s.update(ctx, f, change, false)
}

// Finish ends a job under a fence.
func (s *Store) Finish(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	return s.update(ctx, f, change, true)
}

// update is Update, and with end Finish. A success is recounted whichever of
// the two it comes through.
func (s *Store) update(ctx context.Context, f store.Fence, change func(*store.Record) error, end bool) (store.Record, error) {
	if f.Session == "" { // owns nothing, but a job that does not exist is another matter
		if _, err := s.Get(ctx, f.JobID); err != nil {
			return store.Record{}, err
		}
		return store.Record{}, fenced(f, answer{wordLease})
	}
	rec, err := s.edit(ctx, edit{what: "change job " + f.JobID, fence: f, change: func(rec *store.Record) (bool, error) {
		if err := rec.Change(change, end); err != nil {
			return false, err
		}
		return true, nil
	}})
	if err != nil {
		return store.Record{}, err
	}
	return rec, nil
}

// Cancel ends a job on its client's behalf. change sees the record as it was
// before the cancel and may be nil.
func (s *Store) Cancel(ctx context.Context, jobID string, now time.Time, change func(*store.Record)) (store.Record, error) {
	what := "cancel job " + jobID
	rec, err := s.edit(ctx, edit{what: what, fence: store.Fence{JobID: jobID}, change: func(rec *store.Record) (bool, error) {
		if err := rec.Cancel(now, change); err != nil {
			return false, err
		}
		return true, nil
	}})
	if err != nil && !errors.Is(err, rowmill.ErrTerminal) {
		return store.Record{}, err
	}
	return rec, err
}

// AddArtifact records a further artifact of a job that is over.
func (s *Store) AddArtifact(ctx context.Context, jobID, variant string, a store.Artifact) (store.Record, error) {
	what := "add an artifact to job " + jobID
	if err := store.CheckName("the variant", variant); err != nil {
		return store.Record{}, fmt.Errorf("%s: %w", what, err)
	}
	rec, err := s.edit(ctx, edit{what: what, fence: store.Fence{JobID: jobID}, change: func(rec *store.Record) (bool, error) {
		switch {
		case !rec.Job.Status.Terminal():
			return false, fmt.Errorf("%s, which is %s: %w", what, rec.Job.Status, rowmill.ErrConflict)
		case rec.DataRemoved != nil:
			return false, fmt.Errorf("%s: %w", what, rowmill.ErrExpired)
		}
		if _, taken := rec.Artifacts[variant]; taken {
			return false, nil
		}
		rec.Artifacts = maps.Clone(rec.Artifacts)
		if rec.Artifacts == nil {
			rec.Artifacts = map[string]store.Artifact{}
		}
		rec.Artifacts[variant] = a
		return true, nil
	}})
	if err != nil {
		return store.Record{}, err
	}
	return rec, nil
}
