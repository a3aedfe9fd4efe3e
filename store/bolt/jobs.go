package bolt

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/document"
	"github.com/rowmill/rowmill/store"
)

// An idemRecord is what an idempotency key led to.
type idemRecord struct {
	JobID    string    `json:"job_id"`
	BodyHash string    `json:"body_hash"`
	Expires  time.Time `json:"expires"`
}

// idemSweep is how many expired idempotency keys a submission removes. More
// than one, so that the backlog shrinks; few, so that no submission waits.
const idemSweep = 4

// Create stores a pending job.
func (s *Store) Create(ctx context.Context, rec store.Record, idem *store.Idempotency) (store.Record, bool, error) {
	if err := store.CheckNew(rec, idem); err != nil {
		return store.Record{}, false, fmt.Errorf("create job %s: %w", rec.Job.ID, err)
	}
	rec.SchemaVersion, rec.Version, rec.Epoch, rec.Session = store.SchemaVersion, 1, 0, ""
	spec, err := writeSpec(nil, rec.Spec)
	if err != nil {
		return store.Record{}, false, fmt.Errorf("create job %s: %w", rec.Job.ID, err)
	}
	var stored store.Record
	var existed bool
	err = s.write(ctx, func(t *tx) error {
		first, found, err := s.lookup(t, rec.Spec.Account, idem)
		if err != nil {
			return err
		}
		if found {
			stored, existed = first, true
			return nil
		}
		id := []byte(rec.Job.ID)
		if t.get(bucketJobs, id) != nil {
			return fmt.Errorf("create job %s: its id is taken: %w", rec.Job.ID, rowmill.ErrConflict)
		}
		if err := t.put(bucketSpecs, id, spec); err != nil {
			return err
		}
		if err := t.list(rec); err != nil {
			return err
		}
		if err := t.save(nil, rec, rec.Spec.Account); err != nil {
			return err
		}
		if idem != nil {
			if err := s.remember(t, rec.Spec.Account, rec.Job.ID, *idem); err != nil {
				return err
			}
		}
		// Read back, so that the caller sees what every later reader sees.
		if stored, err = t.whole(rec.Job.ID); err != nil {
			return err
		}
		existed = false
		return nil
	})
	if err != nil {
		return store.Record{}, false, err
	}
	return stored, existed, nil
}

// list enters a job where its account's are listed.
func (t *tx) list(rec store.Record) error {
	if raw := rec.Spec.Raw; raw != nil {
		if err := t.put(bucketBatches, append(batchList(rec.Spec.Account, raw.Dialect), rec.Job.ID...), present); err != nil {
			return err
		}
	}
	return t.put(bucketAccounts, orderKey(rec.Spec.Account, rec.Job.Created, rec.Job.ID), present)
}

// whole reads a record with all its parts.
func (t *tx) whole(id string) (store.Record, error) {
	h, err := t.header(id)
	if err != nil {
		return store.Record{}, err
	}
	return t.record(h)
}

func idemKey(account, key string) []byte { return []byte(account + "\x00" + key) }

// lookup finds the record an idempotency key led to. Nothing is found for nil.
func (s *Store) lookup(t *tx, account string, idem *store.Idempotency) (store.Record, bool, error) {
	if idem == nil {
		return store.Record{}, false, nil
	}
	raw := t.get(bucketIdem, idemKey(account, idem.Key))
	if raw == nil {
		return store.Record{}, false, nil
	}
	var known idemRecord
	if err := json.Unmarshal(raw, &known); err != nil {
		return store.Record{}, false, fmt.Errorf("decode an idempotency key: %w", err)
	}
	if !s.config.Clock().Before(known.Expires) {
		return store.Record{}, false, nil
	}
	if known.BodyHash != idem.BodyHash {
		return store.Record{}, false, fmt.Errorf("the idempotency key was used with another body, for job %s: %w", known.JobID, rowmill.ErrConflict)
	}
	rec, err := t.whole(known.JobID)
	return rec, err == nil, err
}

// remember ties an idempotency key to a job and removes a few expired ones.
func (s *Store) remember(t *tx, account, jobID string, idem store.Idempotency) error {
	now := s.config.Clock()
	if err := forget(t, now); err != nil {
		return err
	}
	key := idemKey(account, idem.Key)
	if raw := t.get(bucketIdem, key); raw != nil { // expired, or lookup had found it
		var old idemRecord
		if err := json.Unmarshal(raw, &old); err != nil {
			return fmt.Errorf("decode an idempotency key: %w", err)
		}
		if err := t.del(bucketIdemAge, append(position(old.Expires), key...)); err != nil {
			return err
		}
	}
	known := idemRecord{JobID: jobID, BodyHash: idem.BodyHash, Expires: now.Add(idem.TTL).UTC()}
	raw, err := json.Marshal(known)
	if err != nil {
		return fmt.Errorf("encode an idempotency key: %w", err)
	}
	if err := t.put(bucketIdem, key, raw); err != nil {
		return err
	}
	return t.put(bucketIdemAge, append(position(known.Expires), key...), present)
}

// forget removes up to idemSweep idempotency keys that have expired.
func forget(t *tx, now time.Time) error {
	limit := position(now)
	for range idemSweep {
		oldest, _ := t.Bucket(bucketIdemAge).Cursor().First()
		if oldest == nil || len(oldest) < len(limit) || bytes.Compare(oldest[:len(limit)], limit) > 0 {
			return nil
		}
		oldest = bytes.Clone(oldest)
		if err := t.del(bucketIdem, oldest[len(limit):]); err != nil {
			return err
		}
		if err := t.del(bucketIdemAge, oldest); err != nil {
			return err
		}
	}
	return nil
}

// Lookup returns the record that an idempotency key led to.
func (s *Store) Lookup(ctx context.Context, account string, idem store.Idempotency) (store.Record, error) {
	var rec store.Record
	err := s.view(ctx, func(t *tx) error {
		found := false
		var err error
		rec, found, err = s.lookup(t, account, &idem)
		if err == nil && !found {
			err = fmt.Errorf("idempotency key: %w", rowmill.ErrNotFound)
		}
		return err
	})
	return rec, err
}

// Get returns a record.
func (s *Store) Get(ctx context.Context, jobID string) (store.Record, error) {
	var rec store.Record
	err := s.view(ctx, func(t *tx) (err error) {
		rec, err = t.whole(jobID)
		return err
	})
	return rec, err
}

// Head returns what clients see of a record.
func (s *Store) Head(ctx context.Context, jobID string) (*store.Head, error) {
	var head *store.Head
	err := s.view(ctx, func(t *tx) (err error) {
		head, err = s.head(t, jobID)
		return err
	})
	return head, err
}

// A stand is what Marks needs of a header. The rest is not decoded: marks of many
// jobs are asked for each second.
type stand struct {
	Job struct {
		Status rowmill.Status `json:"status"`
	} `json:"job"`
	Version int64            `json:"version"`
	Session string           `json:"session"`
	Epoch   int64            `json:"epoch"`
	Writers map[string]int64 `json:"writers"`
}

// Marks returns where records stand.
func (s *Store) Marks(ctx context.Context, jobIDs []string, writer string) ([]store.Mark, error) {
	marks := make([]store.Mark, len(jobIDs))
	err := s.view(ctx, func(t *tx) error {
		for i, id := range jobIDs {
			raw := t.get(bucketJobs, []byte(id))
			if raw == nil {
				continue
			}
			var h stand
			if err := document.Decode(raw, &h); err != nil {
				return fmt.Errorf("decode the record of job %s: %w", id, err)
			}
			marks[i] = store.Mark{Version: h.Version, Session: h.Session, Epoch: h.Epoch, Status: h.Job.Status, Writes: h.Writers[writer]}
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("look where jobs stand: %w", err)
	}
	return marks, nil
}

// Active returns the ids of jobs that are not over or new.
func (s *Store) Active(ctx context.Context, accounts []string, since time.Time, limit int) ([][]string, error) {
	found := make([][]string, len(accounts))
	err := s.view(ctx, func(t *tx) error {
		for i, account := range accounts {
			first := []byte(account + "\x00")
			owned := t.newest(bucketOwned, account, first, math.MaxInt)
			waiting := t.newest(bucketWaiting, account, first, limit)
			created := t.newest(bucketAccounts, account, append(first, position(since)...), limit)
			found[i] = slices.Concat(owned, waiting, created)
			slices.Sort(found[i])
			found[i] = slices.Compact(found[i])
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("find jobs that are not over: %w", err)
	}
	return found, nil
}

// newest are the ids of up to limit jobs in an order of an account, the newest
// first, down to a key.
func (t *tx) newest(bucket []byte, account string, down []byte, limit int) (ids []string) {
	c := t.Bucket(bucket).Cursor()
	for key, _ := lastBelow(c, []byte(account+"\x01")); key != nil && bytes.Compare(key, down) >= 0 && len(ids) < limit; key, _ = c.Prev() {
		_, _, id, ok := splitOrderKey(key)
		if !ok {
			break
		}
		ids = append(ids, id)
	}
	return ids
}

// pageStart is the key in an account's order that a page is to stay below.
func pageStart(account string, limit int, cursor string) ([]byte, error) {
	place, err := store.CheckPage(limit, cursor, positionBytes)
	switch {
	case err != nil:
		return nil, err
	case place == nil:
		return []byte(account + "\x01"), nil // just beyond the newest
	}
	return append([]byte(account+"\x00"), place...), nil
}

// lastBelow moves to the last key below start.
func lastBelow(c *bbolt.Cursor, start []byte) (key, value []byte) {
	if beyond, _ := c.Seek(start); beyond == nil {
		return c.Last()
	}
	return c.Prev()
}

// listAtOnce is for how many jobs List makes room in advance: a page of clients.
const listAtOnce = 100

// List returns an account's jobs, newest first. Jobs created in the same
// nanosecond come by id, the larger first.
func (s *Store) List(ctx context.Context, account string, limit int, cursor string) ([]*rowmill.Job, string, error) {
	start, err := pageStart(account, limit, cursor)
	if err != nil {
		return nil, "", err
	}
	jobs := make([]*rowmill.Job, 0, min(limit, listAtOnce))
	var next string
	err = s.view(ctx, func(t *tx) error {
		c := t.Bucket(bucketAccounts).Cursor()
		var created []byte // of the last job listed
		for key, _ := lastBelow(c, start); key != nil; key, _ = c.Prev() {
			owner, at, id, ok := splitOrderKey(key)
			if !ok || owner != account {
				return nil
			}
			if len(jobs) == limit {
				next = store.EncodeCursor(slices.Concat(created, []byte(jobs[limit-1].ID))) // created lies in the file
				return nil
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			head, err := s.head(t, id)
			if err != nil {
				return err
			}
			jobs, created = append(jobs, &head.Job), at
		}
		return nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("list jobs: %w", err)
	}
	return jobs, next, nil
}
