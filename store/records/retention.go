package records

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

// heldKey sorts an account's held jobs by their end.
func heldKey(account string, rec store.Record) []byte {
	return orderKey(account, rec.EndedAt(), rec.Job.ID)
}

// reindexHeld lists a job that has just ended.
func (t *tx) reindexHeld(before *header, after header) {
	if after.Job.Status.Terminal() && (before == nil || !before.Job.Status.Terminal()) {
		t.Put(tableHeld, heldKey(after.Account, after.Record), nil)
	}
}

// Holders returns the accounts that have held jobs.
func (s *Store) Holders(ctx context.Context) ([]string, error) {
	var accounts []string
	err := s.view(ctx, func(t *tx) error {
		leads, err := t.accounts(tableHeld)
		accounts = nil
		for _, l := range leads {
			accounts = append(accounts, l.account)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list accounts with held jobs: %w", err)
	}
	return accounts, nil
}

// skipAfter is how many keys of one account are read before the rest of them is skipped, which
// takes another scan.
const skipAfter = 16

// A lead is an account with the first keys that it has in an order of jobs.
type lead struct {
	account string
	first   []kv.Entry
	more    bool // there may be more keys
}

// accounts are the accounts that have keys in an order of jobs.
func (t *tx) accounts(table kv.Table) (accounts []lead, err error) {
	for r, skip := (kv.Range{Table: table}), true; skip; {
		skip = false
		for e, err := range t.intact(r) {
			if err != nil {
				return nil, err
			}
			account, _, _, ok := splitOrderKey(e.Key)
			if !ok {
				return nil, fmt.Errorf("a key of table %s is cut off", table)
			}
			if len(accounts) == 0 || accounts[len(accounts)-1].account != account {
				accounts = append(accounts, lead{account: account})
			}
			last := &accounts[len(accounts)-1]
			last.first = append(last.first, kv.Entry{Key: bytes.Clone(e.Key), Value: bytes.Clone(e.Value)})
			if len(last.first) == skipAfter {
				r.From, last.more, skip = []byte(account+"\x01"), true, true // just beyond its last
				break
			}
		}
	}
	return accounts, nil
}

// Held returns held jobs of an account, those that ended first first.
func (s *Store) Held(ctx context.Context, account string, ended time.Time, limit int) ([]string, error) {
	if limit <= 0 {
		return nil, rowmill.Invalid("limit", "The limit is %d and must be at least 1.", limit)
	}
	var ids []string
	first := []byte(account + "\x00")
	err := s.view(ctx, func(t *tx) (err error) {
		ids, err = t.ids(kv.Range{Table: tableHeld, From: first, To: until(first, ended)}, len(first)+positionBytes, limit)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list held jobs: %w", err)
	}
	return ids, nil
}

// until is the key behind all that begin with a prefix and a time up to at.
func until(prefix []byte, at time.Time) []byte {
	return kv.After(append(bytes.Clone(prefix), position(at)...))
}

// ids are up to limit ids: the ends of the keys of a range, behind so many bytes.
func (t *tx) ids(r kv.Range, behind, limit int) (ids []string, err error) {
	for {
		r.Limit = limit - len(ids)
		n, last := 0, []byte(nil)
		for e, err := range t.Scan(r) {
			n, last = n+1, e.Key
			switch {
			case t.damaged(err):
				continue
			case err != nil:
				return nil, err
			case len(e.Key) < behind:
				return nil, fmt.Errorf("a key of table %s is cut off", r.Table)
			}
			ids = append(ids, string(e.Key[behind:]))
		}
		if n < r.Limit || len(ids) >= limit {
			return ids, nil
		}
		r = r.Beyond(last) // some were damaged
	}
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
		t.wantRecord(jobID)
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
			stored, err := t.Get(tableSpecs, []byte(jobID))
			if err != nil {
				return err
			}
			spec, err := writeSpec(stored, rec.Spec)
			if err != nil {
				return err
			}
			if !bytes.Equal(spec, stored) {
				t.Put(tableSpecs, []byte(jobID), spec)
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
func (t *tx) reindexDue(before *header, after header) {
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
		return
	}
	if was != nil {
		t.Delete(tableDue, was)
	}
	if is != nil {
		t.Put(tableDue, is, nil)
	}
}

// Due returns jobs of which something is to be removed.
func (s *Store) Due(ctx context.Context, by time.Time, limit int) ([]string, error) {
	if limit <= 0 {
		return nil, rowmill.Invalid("limit", "The limit is %d and must be at least 1.", limit)
	}
	var ids []string
	err := s.view(ctx, func(t *tx) (err error) {
		ids, err = t.ids(kv.Range{Table: tableDue, To: until(nil, by)}, positionBytes, limit)
		return err
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
		held, err := t.Get(tableHeld, key)
		if held != nil || errors.Is(err, store.ErrDamaged) {
			t.Delete(tableHeld, key)
			return nil
		}
		return err
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
