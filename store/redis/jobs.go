package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	driver "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// createScript stores a pending job.
//
//	ARGV[6]  account
//	ARGV[7]  order of the job among the account's
//	ARGV[8]  key of the idempotency record, or empty
//	ARGV[9]  hash of the request body
//	ARGV[10] how long the idempotency record is kept, ms
//	ARGV[11] key of the list that a batch is in, or empty
//	ARGV[12] names and values of the job's fields
//
// It checks that the idempotency key is unused and the job id free. It answers
// ok; existed and a job id where the idempotency key led to that job with the
// same body; body and a job id where the body was another; or conflict where
// the job id is taken. The hash keeps the token, by which a repeated attempt
// knows its own job.
var createScript = jobScript(`
if redis.call('HGET', JOB, 'birth') == TOKEN then return {'ok', holds()} end
local account, order, idem = ARGV[6], ARGV[7], ARGV[8]
if idem ~= '' then
  local known = redis.call('HMGET', idem, 'job', 'body')
  if known[1] and known[2] ~= ARGV[9] then return {'body', known[1]} end
  if known[1] then return {'existed', known[1]} end
end
if redis.call('EXISTS', JOB) == 1 then return {'conflict'} end
redis.call('HSET', JOB, 'birth', TOKEN, unpack(ARGV, 12))
redis.call('ZADD', P .. 'jobs:' .. account, 0, order)
if ARGV[11] ~= '' then redis.call('ZADD', ARGV[11], 0, ID) end
wait(account, order)
if idem ~= '' then
  redis.call('HSET', idem, 'job', ID, 'body', ARGV[9])
  redis.call('PEXPIRE', idem, ARGV[10])
end
return {'ok', wrote()}
`)

// Create stores a pending job.
func (s *Store) Create(ctx context.Context, rec store.Record, idem *store.Idempotency) (store.Record, bool, error) {
	what := "create job " + rec.Job.ID
	if err := store.CheckNew(rec, idem); err != nil {
		return store.Record{}, false, fmt.Errorf("%s: %w", what, err)
	}
	rec.SchemaVersion, rec.Version, rec.Epoch, rec.Session = store.SchemaVersion, 1, 0, ""
	f, err := encode(rec, nil)
	if err != nil {
		return store.Record{}, false, fmt.Errorf("%s: %w", what, err)
	}
	account, place := rec.Spec.Account, order(rec.Job.Created, rec.Job.ID)
	args := []any{account, place, "", "", 0}
	if idem != nil {
		args = []any{account, place, s.idem(account, idem.Key), idem.BodyHash, max(idem.TTL.Milliseconds(), 1)}
	}
	list := ""
	if raw := rec.Spec.Raw; raw != nil {
		list = s.batchList(account, raw.Dialect)
	}
	args = append(args, list, "account", account, "order", place, "rate", rate(rec))
	if key := store.KeyOf(rec.Job); key != "" {
		args = append(args, "key", key)
	}
	args = append(args, f.pairs()...)
	a, _, err := s.run(ctx, createScript, store.Fence{JobID: rec.Job.ID}, newToken(), args...)
	if err != nil {
		return store.Record{}, false, fmt.Errorf("%s: %w", what, err)
	}
	switch a.word() {
	case wordOK: // as every later reader sees it
		stored, err := f.record()
		return stored, false, err
	case "existed":
		first, err := s.Get(ctx, a.text(1))
		return first, err == nil, err
	case "body":
		return store.Record{}, false, otherBody(a.text(1))
	case wordConflict:
		return store.Record{}, false, fmt.Errorf("%s: its id is taken: %w", what, rowmill.ErrConflict)
	}
	return store.Record{}, false, fmt.Errorf("%s: the Redis script answered %q", what, a)
}

func otherBody(jobID string) error {
	return fmt.Errorf("the idempotency key was used with another body, for job %s: %w", jobID, rowmill.ErrConflict)
}

// Lookup returns the record that an idempotency key led to.
func (s *Store) Lookup(ctx context.Context, account string, idem store.Idempotency) (store.Record, error) {
	var known *driver.SliceCmd
	if err := s.read(ctx, func(p driver.Pipeliner) { known = p.HMGet(ctx, s.idem(account, idem.Key), "job", "body") }); err != nil {
		return store.Record{}, fmt.Errorf("look up an idempotency key: %w", err)
	}
	found := answer(known.Val())
	switch {
	case found.text(0) == "":
		return store.Record{}, fmt.Errorf("idempotency key: %w", rowmill.ErrNotFound)
	case found.text(1) != idem.BodyHash:
		return store.Record{}, otherBody(found.text(0))
	}
	return s.Get(ctx, found.text(0))
}

// Get returns a record.
func (s *Store) Get(ctx context.Context, jobID string) (store.Record, error) {
	f, _, _, err := s.load(ctx, jobID, "")
	if err != nil {
		return store.Record{}, err
	}
	return f.record()
}

// Head returns what clients see of a record.
func (s *Store) Head(ctx context.Context, jobID string) (*store.Head, error) {
	var found *driver.SliceCmd
	if err := s.read(ctx, func(p driver.Pipeliner) { found = p.HMGet(ctx, s.job(jobID), headFields...) }); err != nil {
		return nil, fmt.Errorf("read job %s: %w", jobID, err)
	}
	f := collect(headFields, found.Val())
	if f == nil {
		return nil, fmt.Errorf("job %s: %w", jobID, rowmill.ErrNotFound)
	}
	rec, err := f.header()
	rec.Spec.Account = f["account"]
	return rec.Head(), err
}

// Marks returns where records stand.
func (s *Store) Marks(ctx context.Context, jobIDs []string, writer string) ([]store.Mark, error) {
	found := make([]*driver.SliceCmd, len(jobIDs))
	var schema *driver.StringCmd
	err := s.read(ctx, func(p driver.Pipeliner) {
		schema = p.HGet(ctx, s.key("meta"), "schema")
		for i, id := range jobIDs {
			found[i] = p.HMGet(ctx, s.job(id), "version", "epoch", "session", "status", writerField+writer)
		}
	})
	if err == nil && schema.Val() == "" {
		err = fmt.Errorf("the Redis server has lost everything: restore it, or start the nodes anew: %w", rowmill.ErrUnavailable)
	}
	if err != nil {
		return nil, fmt.Errorf("look where jobs stand: %w", err)
	}
	marks := make([]store.Mark, len(jobIDs))
	for i := range found {
		a := answer(found[i].Val())
		if a.text(0) == "" {
			continue
		}
		m := store.Mark{Session: a.text(2), Status: rowmill.Status(a.text(3))}
		if m.Version, err = strconv.ParseInt(a.text(0), 10, 64); err == nil {
			m.Epoch, err = strconv.ParseInt(a.text(1), 10, 64)
		}
		if held := a.text(4); err == nil && held != "" {
			m.Writes, err = strconv.ParseInt(held, 10, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("look where job %s stands: %w", jobIDs[i], err)
		}
		marks[i] = m
	}
	return marks, nil
}

// Active returns the ids of jobs that are not over or new.
func (s *Store) Active(ctx context.Context, accounts []string, since time.Time, limit int) ([][]string, error) {
	if len(accounts) == 0 {
		return nil, ctx.Err()
	}
	var owned *driver.MapStringStringCmd
	waiting, created := make([]*driver.StringSliceCmd, len(accounts)), make([]*driver.StringSliceCmd, len(accounts))
	if err := s.read(ctx, func(p driver.Pipeliner) {
		owned = p.HGetAll(ctx, s.key("owned"))
		for i, account := range accounts {
			newest := driver.ZRangeBy{Min: "-", Max: "+", Count: int64(limit)}
			waiting[i] = p.ZRevRangeByLex(ctx, s.key("waiting", account), &newest)
			newest.Min = "[" + order(since, "")
			created[i] = p.ZRevRangeByLex(ctx, s.key("jobs", account), &newest)
		}
	}); err != nil {
		return nil, fmt.Errorf("find jobs that are not over: %w", err)
	}
	have := make(map[string][]string, len(accounts))
	for id, value := range owned.Val() {
		_, rest, _ := strings.Cut(value, " ")
		_, account, _ := strings.Cut(rest, " ")
		have[account] = append(have[account], id)
	}
	found := make([][]string, len(accounts))
	for i, account := range accounts {
		ids := slices.Clone(have[account])
		for _, place := range slices.Concat(waiting[i].Val(), created[i].Val()) {
			ids = append(ids, place[orderDigits:])
		}
		slices.Sort(ids)
		found[i] = slices.Compact(ids)
	}
	return found, nil
}

// load reads a job's fields, whether a session is alive, and the time.
func (s *Store) load(ctx context.Context, jobID, session string) (f fields, alive bool, now time.Time, err error) {
	names := recordFields
	if w := store.WriterOf(ctx); w != nil {
		names = append(slices.Clone(recordFields), writerField+w.Name())
	}
	var found *driver.SliceCmd
	var exists *driver.IntCmd
	var clock *driver.TimeCmd
	if err := s.read(ctx, func(p driver.Pipeliner) {
		found = p.HMGet(ctx, s.job(jobID), names...)
		exists = p.Exists(ctx, s.session(session))
		clock = p.Time(ctx)
	}); err != nil {
		return nil, false, now, fmt.Errorf("read job %s: %w", jobID, err)
	}
	f = collect(names, found.Val())
	if f == nil {
		return nil, false, now, fmt.Errorf("job %s: %w", jobID, rowmill.ErrNotFound)
	}
	return f, session != "" && exists.Val() == 1, clock.Val(), nil
}

// page reads the places in an order behind cursor, newest first: limit of them
// and, where there is more, one.
func (s *Store) page(ctx context.Context, doing, order, account string, limit int, cursor string) ([]string, error) {
	place, err := store.CheckPage(limit, cursor, orderDigits)
	if err != nil {
		return nil, err
	}
	below := "+"
	if place != nil {
		if _, err := strconv.ParseUint(string(place[:orderDigits]), 16, 64); err != nil {
			return nil, store.BadCursor()
		}
		below = "(" + string(place)
	}
	var places *driver.StringSliceCmd
	if err := s.read(ctx, func(p driver.Pipeliner) {
		places = p.ZRevRangeByLex(ctx, s.key(order, account), &driver.ZRangeBy{Min: "-", Max: below, Count: int64(limit) + 1})
	}); err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return places.Val(), nil
}

// List returns an account's jobs, newest first. Jobs created in the same
// nanosecond come by id, the larger first.
func (s *Store) List(ctx context.Context, account string, limit int, cursor string) ([]*rowmill.Job, string, error) {
	page, err := s.page(ctx, "list jobs", "jobs", account, limit, cursor)
	if err != nil {
		return nil, "", err
	}
	next := ""
	if len(page) > limit {
		page = page[:limit]
		next = store.EncodeCursor([]byte(page[limit-1]))
	}
	if len(page) == 0 {
		return nil, "", ctx.Err()
	}
	found := make([]*driver.SliceCmd, len(page))
	if err := s.read(ctx, func(p driver.Pipeliner) {
		for i, place := range page {
			found[i] = p.HMGet(ctx, s.job(place[orderDigits:]), jobFields...)
		}
	}); err != nil {
		return nil, "", fmt.Errorf("list jobs: %w", err)
	}
	jobs := make([]*rowmill.Job, len(page))
	for i, place := range page {
		var err error
		if jobs[i], err = s.listed(place[orderDigits:], found[i].Val()); err != nil {
			return nil, "", fmt.Errorf("list jobs: %w", err)
		}
	}
	return jobs, next, nil
}

const (
	// seenJobs is how many listed jobs are remembered at least: some pages of those who
	// look at a list again and again.
	seenJobs = 512
	// seenBytes bounds the fields of a job that is remembered. Most have 1 KB, so that
	// all of them take a few MB.
	seenBytes = 4 << 10
)

// A seenJob is good for as long as its fields are the same.
type seenJob struct {
	fields []any // values of jobFields
	job    *rowmill.Job
}

// listed is a job by the values of jobFields. Nothing is decoded of one that was
// listed with the same.
func (s *Store) listed(id string, values []any) (*rowmill.Job, error) {
	if last, known := s.seen.Get(id); known && slices.Equal(last.fields, values) {
		return last.job, nil
	}
	f := collect(jobFields, values)
	rec, err := f.header()
	if err != nil {
		return nil, err
	}
	size := 0
	for _, text := range f {
		size += len(text)
	}
	if size <= seenBytes {
		s.seen.Put(id, seenJob{values, &rec.Job})
	}
	return &rec.Job, nil
}
