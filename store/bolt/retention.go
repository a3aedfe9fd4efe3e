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
	var removed store.Record
	err := s.write(ctx, func(t *tx) error {
		before, err := t.header(jobID)
		if err != nil {
			return err
		}
		rec, err := t.record(before)
		if err != nil {
			return err
		}
		changed, err := rec.RemoveData(now)
		if err != nil {
			return err
		}
		if changed {
			spec, err := writeSpec(rec.Spec)
			if err != nil {
				return err
			}
			if err := t.put(bucketSpecs, []byte(jobID), spec); err != nil {
				return err
			}
			rec.Version++
			if err := t.save(&before, rec, before.Account); err != nil {
				return err
			}
		}
		removed, err = t.whole(jobID)
		return err
	})
	if err != nil {
		return store.Record{}, err
	}
	return removed, nil
}

// DataGone takes a job out of those that are held.
func (s *Store) DataGone(ctx context.Context, jobID string) error {
	return s.write(ctx, func(t *tx) error {
		h, err := t.header(jobID)
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

// ShowRunning notes that the job's client was told that it runs.
func (s *Store) ShowRunning(ctx context.Context, jobID string) error {
	return s.write(ctx, func(t *tx) error {
		before, err := t.header(jobID)
		if err != nil || before.ShownRunning {
			return err
		}
		after := before
		after.ShownRunning = true
		after.Version++
		return t.saveHeader(before, after)
	})
}
