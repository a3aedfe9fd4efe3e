package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// maxEdits is how often a change is made again because the record changed in
// between. Of those that meet, one succeeds each time, so this is also how
// many may change one job at once.
const maxEdits = 128

// swapScript writes a record back that was read before.
//
//	ARGV[6]  version that was read
//	ARGV[7]  rows that the parts must hold, or empty
//	ARGV[8]  order among the held jobs where the job is over from now on, else empty
//	ARGV[9]  number of fields to remove
//	ARGV[10] those fields, then names and values of the fields to set
//
// Without a session it is a client's write. It answers ok and the new version,
// missing, lease, stale where the version is another, or conflict and the rows
// that the parts hold. The hash keeps the token, by which a repeated attempt
// knows its own write.
var swapScript = jobScript(`
local job = redis.call('HMGET', JOB, 'version', 'token', 'session', 'epoch', 'account', 'order')
if not job[1] then return {'missing'} end
if job[2] == TOKEN then return {'ok', job[1]} end
if SESSION ~= '' and (job[3] ~= SESSION or job[4] ~= EPOCH or not alive(SESSION)) then return {'lease'} end
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
local version, removed = string.format('%.0f', job[1] + 1), tonumber(ARGV[9])
redis.call('HSET', JOB, 'version', version, 'token', TOKEN, unpack(ARGV, 10 + removed))
if removed > 0 then redis.call('HDEL', JOB, unpack(ARGV, 10, 9 + removed)) end
if ARGV[8] ~= '' then
  redis.call('ZADD', P .. 'held:' .. job[5], 0, ARGV[8])
  redis.call('SADD', P .. 'holders', job[5])
  redis.call('HSET', JOB, 'reserved', '0')
  redis.call('SREM', P .. 'reserved:' .. job[5], ID)
  if job[3] == '' then unwait(job[5], job[6]) else redis.call('HDEL', P .. 'owned', ID) end
end
return {'ok', version}
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
func (s *Store) edit(ctx context.Context, e edit) (store.Record, error) {
	for range maxEdits {
		before, alive, err := s.load(ctx, e.fence.JobID, e.fence.Session)
		if err != nil {
			return store.Record{}, fmt.Errorf("%s: %w", e.what, err)
		}
		rec, err := before.record()
		if err != nil {
			return store.Record{}, fmt.Errorf("%s: %w", e.what, err)
		}
		if e.fence.Session != "" {
			if err := owns(e.fence, rec, alive); err != nil {
				return store.Record{}, fmt.Errorf("%s: %w", e.what, err)
			}
		}
		was := rec.Job.Status
		write, err := contain(e.change, &rec)
		if err != nil || !write {
			return rec, err
		}
		after, err := s.swap(ctx, e, before, rec, was)
		if errors.Is(err, errStale) {
			continue
		}
		if err != nil {
			return store.Record{}, fmt.Errorf("%s: %w", e.what, err)
		}
		return after, nil
	}
	return store.Record{}, fmt.Errorf("%s: its record was changed by others %d times in a row: try again: %w", e.what, maxEdits, rowmill.ErrConflict)
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

// contain turns a panic of a caller's change into an error.
func contain(change func(*store.Record) (bool, error), rec *store.Record) (write bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a change of job %s: %v", rec.Job.ID, p)
		}
	}()
	return change(rec)
}

// errStale says that a record was changed since it was read.
var errStale = errors.New("the record has changed")

// swap writes rec in place of what was read before. was is the status then.
func (s *Store) swap(ctx context.Context, e edit, before fields, rec store.Record, was rowmill.Status) (store.Record, error) {
	after, err := encode(rec)
	if err != nil {
		return store.Record{}, err
	}
	if !e.spec && !after.sameSpec(before) {
		return store.Record{}, errors.New("its account and specification cannot change")
	}
	ends := rec.Job.Status.Terminal() && !was.Terminal()
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
	set, unset := after.changes(before)
	args := append([]any{before["version"], recount, over, len(unset)}, append(unset, set...)...)
	a, doubt, err := s.run(ctx, swapScript, e.fence, newToken(), args...)
	switch {
	case err != nil:
		return store.Record{}, err
	case a.word() == wordOK:
		after["version"] = a.text(1)
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

// AddArtifact records a further artifact of a succeeded job.
func (s *Store) AddArtifact(ctx context.Context, jobID, variant string, a store.Artifact) (store.Record, error) {
	what := "add an artifact to job " + jobID
	if err := store.CheckName("the variant", variant); err != nil {
		return store.Record{}, fmt.Errorf("%s: %w", what, err)
	}
	rec, err := s.edit(ctx, edit{what: what, fence: store.Fence{JobID: jobID}, change: func(rec *store.Record) (bool, error) {
		switch {
		case rec.Job.Status != rowmill.StatusSucceeded:
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
