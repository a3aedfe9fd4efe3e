package bolt

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// heldKey sorts an account's held jobs by their end.
func heldKey(account string, rec store.Record) []byte {
	return orderKey(account, rec.EndedAt(), rec.Job.ID)
}

// reindexHeld lists a job that has just ended.
func (t *tx) reindexHeld(before *header, after header) error {
	if !after.Job.Status.Terminal() || before != nil && before.Job.Status.Terminal() {
		return nil
	}
	return t.put(bucketHeld, heldKey(after.Account, after.Record), present)
}

// Holders returns the accounts that have held jobs. It costs one seek for each.
func (s *Store) Holders(ctx context.Context) ([]string, error) {
	var accounts []string
	err := s.view(ctx, func(t *tx) error {
		c := t.Bucket(bucketHeld).Cursor()
		for key, _ := c.First(); key != nil; {
			account, _, _, ok := splitOrderKey(key)
			if !ok {
				return fmt.Errorf("a key of bucket %s is cut off", bucketHeld)
			}
			accounts = append(accounts, account)
			key, _ = c.Seek([]byte(account + "\x01")) // just beyond the account's last
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list accounts with held jobs: %w", err)
	}
	return accounts, nil
}

// Held returns held jobs of an account, those that ended first first.
func (s *Store) Held(ctx context.Context, account string, ended time.Time, limit int) ([]string, error) {
	if limit <= 0 {
		return nil, rowmill.Invalid("limit", "The limit is %d and must be at least 1.", limit)
	}
	var ids []string
	last := position(ended)
	err := s.view(ctx, func(t *tx) error {
		c := t.Bucket(bucketHeld).Cursor()
		for key, _ := c.Seek([]byte(account + "\x00")); key != nil && len(ids) < limit; key, _ = c.Next() {
			owner, at, id, ok := splitOrderKey(key)
			if !ok || owner != account || bytes.Compare(at, last) > 0 {
				return nil
			}
			ids = append(ids, id)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list held jobs: %w", err)
	}
	return ids, nil
}

// RemoveData says that a job's data must not be read any more.
func (s *Store) RemoveData(ctx context.Context, jobID string, now time.Time) (store.Record, error) {
	return s.settle(ctx, jobID, func(rec *store.Record) (bool, error) { return rec.RemoveData(now) })
}

// KeepInput says that objects hold the input of a job that is over.
func (s *Store) KeepInput(ctx context.Context, jobID string, until time.Time) error {
	_, err := s.settle(ctx, jobID, func(rec *store.Record) (bool, error) { return rec.KeepInput(until) })
	return err
}

// InputGone says that a job's input was removed.
func (s *Store) InputGone(ctx context.Context, jobID string, now time.Time) error {
	_, err := s.settle(ctx, jobID, func(rec *store.Record) (bool, error) { return rec.InputGone(now) })
	return err
}

// Continued notes which job takes over the rows of another.
func (s *Store) Continued(ctx context.Context, jobID, by string) error {
	_, err := s.settle(ctx, jobID, func(rec *store.Record) (bool, error) { return rec.Continued(by) })
	return err
}

// settle changes a record without a fence, its specification included. change
// returns false where there is nothing to write.
func (s *Store) settle(ctx context.Context, jobID string, change func(*store.Record) (bool, error)) (store.Record, error) {
	var settled store.Record
	err := s.write(ctx, func(t *tx) error {
		before, err := t.writable(jobID)
		if err != nil {
			return err
		}
		rec, err := t.record(before)
		if err != nil {
			return err
		}
		changed, err := change(&rec)
		if err != nil {
			return err
		}
		if changed {
			spec, err := writeSpec(t.get(bucketSpecs, []byte(jobID)), rec.Spec)
			if err != nil {
				return err
			}
			if !bytes.Equal(spec, t.get(bucketSpecs, []byte(jobID))) {
				if err := t.put(bucketSpecs, []byte(jobID), spec); err != nil {
					return err
				}
			}
			rec.Version++
			if err := t.save(&before, rec, before.Account); err != nil {
				return err
			}
		}
		settled, err = t.whole(jobID)
		return err
	})
	if err != nil {
		return store.Record{}, err
	}
	return settled, nil
}

// dueKey sorts jobs by when something of them is to be removed.
func dueKey(at time.Time, jobID string) []byte { return append(position(at), jobID...) }

// reindexDue keeps due in step with a header.
func (t *tx) reindexDue(before *header, after header) error {
	var was, is []byte
	if before != nil {
		if at, due := before.Due(); due {
			was = dueKey(at, before.Job.ID)
		}
	}
	if at, due := after.Due(); due {
		is = dueKey(at, after.Job.ID)
	}
	if bytes.Equal(was, is) {
		return nil
	}
	if was != nil {
		if err := t.del(bucketDue, was); err != nil {
			return err
		}
	}
	if is == nil {
		return nil
	}
	return t.put(bucketDue, is, present)
}

// Due returns jobs of which something is to be removed.
func (s *Store) Due(ctx context.Context, by time.Time, limit int) ([]string, error) {
	if limit <= 0 {
		return nil, rowmill.Invalid("limit", "The limit is %d and must be at least 1.", limit)
	}
	var ids []string
	last := position(by)
	err := s.view(ctx, func(t *tx) error {
		c := t.Bucket(bucketDue).Cursor()
		for key, _ := c.First(); key != nil && len(ids) < limit; key, _ = c.Next() {
			if len(key) < positionBytes {
				return fmt.Errorf("a key of bucket %s is cut off", bucketDue)
			}
			if bytes.Compare(key[:positionBytes], last) > 0 {
				return nil
			}
			ids = append(ids, string(key[positionBytes:]))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list jobs to clean up after: %w", err)
	}
	return ids, nil
}

// DataGone takes a job out of those that are held.
func (s *Store) DataGone(ctx context.Context, jobID string) error {
	return s.write(ctx, func(t *tx) error {
		h, err := t.writable(jobID)
		if err != nil {
			return err
		}
		if h.DataRemoved == nil {
			return fmt.Errorf("the data of job %s was not removed: %w", jobID, rowmill.ErrConflict)
		}
		key := heldKey(h.Account, h.Record)
		if t.get(bucketHeld, key) == nil {
			return nil
		}
		return t.del(bucketHeld, key)
	})
}

// ShowRunning notes that the job's client was told where it stands.
func (s *Store) ShowRunning(ctx context.Context, jobID string) error {
	return s.write(ctx, func(t *tx) error {
		before, err := t.writable(jobID)
		if err != nil || before.ShownRunning {
			return err
		}
		after := before
		after.ShownRunning = true
		after.Version++
		return t.saveHeader(before, after)
	})
}
