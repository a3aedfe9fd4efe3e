package records

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

// retainedKey returns a key that sorts an account's retained jobs by their end.
func retainedKey(account string, rec store.Record) []byte {
	return accountTimeKey(account, rec.EndedAt(), rec.Job.ID)
}

// reindexRetained adds a job that has just ended to the index of retained jobs, and
// removes a job without data.
func (t *tx) reindexRetained(before *jobHeader, after jobHeader) {
	was, is := before != nil && before.isRetained(), after.isRetained()
	switch key := retainedKey(after.Account, after.Record); {
	case is && !was:
		t.Put(tableRetained, key, nil)
	case was && !is:
		t.Delete(tableRetained, key)
	}
}

// isRetained reports whether a job has ended and may still have data.
func (h *jobHeader) isRetained() bool { return h.Job.Status.IsTerminal() && !h.DataGone }

// AccountsWithData returns the accounts that have retained jobs.
func (s *Store) AccountsWithData(ctx context.Context) ([]string, error) {
	return viewList(ctx, s, "list accounts with retained jobs", func(t *tx) ([]string, error) { return t.accountsIn(tableRetained) })
}

// skipAfter is how many keys of an account are read before a new scan skips the other keys
// of the account.
const skipAfter = 16

// An accountEntries is an account with its first entries in a table whose keys accountTimeKey
// makes.
type accountEntries struct {
	account string
	first   []kv.Entry
	more    bool // the account may have more keys
}

// scanAccounts returns the accounts that have entries in a table whose keys accountTimeKey makes.
func (t *tx) scanAccounts(table kv.Table) (accounts []accountEntries, err error) {
	for r, skip := (kv.Range{Table: table}), true; skip; {
		skip = false
		for e, err := range t.scanUndamaged(r) {
			if err != nil {
				return nil, err
			}
			account, _, _, ok := splitAccountTimeKey(e.Key)
			if !ok {
				return nil, fmt.Errorf("a key of table %s is cut off", table)
			}
			if len(accounts) == 0 || accounts[len(accounts)-1].account != account {
				accounts = append(accounts, accountEntries{account: account})
			}
			last := &accounts[len(accounts)-1]
			last.first = append(last.first, kv.Entry{Key: bytes.Clone(e.Key), Value: bytes.Clone(e.Value)})
			if len(last.first) == skipAfter {
				r.From, last.more, skip = []byte(account+"\x01"), true, true // the first key after all keys of the account
				break
			}
		}
	}
	return accounts, nil
}

// RetainedJobs returns retained jobs of an account, earliest end first.
func (s *Store) RetainedJobs(ctx context.Context, account string, ended time.Time, limit int) ([]string, error) {
	if limit <= 0 {
		return nil, rowmill.Invalid("limit", "The limit is %d and must be at least 1.", limit)
	}
	first := []byte(account + "\x00")
	return viewList(ctx, s, "list retained jobs", func(t *tx) ([]string, error) {
		return t.scanIDs(kv.Range{Table: tableRetained, From: first, To: keyAfterTime(first, ended)}, len(first)+positionBytes, limit)
	})
}

// keyAfterTime returns the smallest key after all keys that begin with prefix and a time of at
// or earlier.
func keyAfterTime(prefix []byte, at time.Time) []byte {
	return kv.PrefixEnd(append(bytes.Clone(prefix), encodeTime(at)...))
}

// scanIDs returns up to limit ids from the keys of a range. An id is a key without its
// first skip bytes.
func (t *tx) scanIDs(r kv.Range, skip, limit int) (ids []string, err error) {
	for {
		r.Limit = limit - len(ids)
		n, last := 0, []byte(nil)
		for e, err := range t.Scan(r) {
			n, last = n+1, e.Key
			switch {
			case t.logIfDamaged(err):
				continue
			case err != nil:
				return nil, err
			case len(e.Key) < skip:
				return nil, fmt.Errorf("a key of table %s is cut off", r.Table)
			}
			ids = append(ids, string(e.Key[skip:]))
		}
		if n < r.Limit || len(ids) >= limit {
			return ids, nil
		}
		r = r.RestAfter(last) // some entries were damaged, so read further entries
	}
}

// RemoveData records that a job's data must not be read any more.
func (s *Store) RemoveData(ctx context.Context, jobID string, now time.Time) (store.Record, error) {
	return s.changeUnfenced(ctx, jobID, func(rec *store.Record, _ time.Time) (bool, error) { return rec.RemoveData(now) })
}

// KeepInput records until when objects hold the input of an ended job.
func (s *Store) KeepInput(ctx context.Context, jobID string, until time.Time) error {
	_, err := s.changeUnfenced(ctx, jobID, func(rec *store.Record, _ time.Time) (bool, error) { return rec.KeepInput(until) })
	return err
}

// MarkInputRemoved records that the input of an ended job was removed.
func (s *Store) MarkInputRemoved(ctx context.Context, jobID string, now time.Time) error {
	_, err := s.changeUnfenced(ctx, jobID, func(rec *store.Record, _ time.Time) (bool, error) { return rec.MarkInputRemoved(now) })
	return err
}

// MarkContinued records in a job which other job takes over its rows.
func (s *Store) MarkContinued(ctx context.Context, jobID, successorID string) error {
	_, err := s.changeUnfenced(ctx, jobID, func(rec *store.Record, _ time.Time) (bool, error) { return rec.MarkContinued(successorID) })
	return err
}

// changeUnfenced changes a record without a fence, including its specification. change returns
// false when there is nothing to write.
func (s *Store) changeUnfenced(ctx context.Context, jobID string, change func(rec *store.Record, now time.Time) (bool, error)) (store.Record, error) {
	return writeResult(ctx, s, func(t *tx) (rec store.Record, err error) {
		t.prefetchRecord(jobID)
		before, err := t.readHeaderForWrite(jobID)
		if err != nil {
			return rec, err
		}
		if rec, err = t.completeRecord(before); err != nil {
			return rec, err
		}
		if changed, err := change(&rec, t.Now()); err != nil || !changed {
			return rec, err
		}
		stored, err := t.Get(tableSpecs, []byte(jobID))
		if err != nil {
			return rec, err
		}
		spec, err := encodeSpec(stored, rec.Spec)
		if err != nil {
			return rec, err
		}
		if !bytes.Equal(spec, stored) {
			t.Put(tableSpecs, []byte(jobID), spec)
		}
		return t.replaceRecord(before, rec)
	})
}

// changeHeader changes the header of a job without a fence. change reports whether it changed
// the header.
func (s *Store) changeHeader(ctx context.Context, jobID string, change func(h *jobHeader, now time.Time) (bool, error)) error {
	return s.write(ctx, func(t *tx) error {
		before, err := t.readHeaderForWrite(jobID)
		if err != nil {
			return err
		}
		after := before
		if changed, err := change(&after, t.Now()); err != nil || !changed {
			return err
		}
		return t.saveHeader(before, &after)
	})
}

// dueKey returns a key that sorts jobs by the time of their next removal.
func dueKey(at time.Time, jobID string) []byte { return append(encodeTime(at), jobID...) }

// reindexDue updates table due, which sorts ended jobs by the time of their next removal
// of data, after a change of a header.
func (t *tx) reindexDue(before *jobHeader, after jobHeader) {
	var was, is []byte
	if before != nil {
		if at, due := before.NextRemoval(); due {
			was = dueKey(at, before.Job.ID)
		}
	}
	if at, due := after.NextRemoval(); due {
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

// ListDueRemovals returns the ids of jobs with a removal of data that is due at the time by.
func (s *Store) ListDueRemovals(ctx context.Context, by time.Time, limit int) ([]string, error) {
	if limit <= 0 {
		return nil, rowmill.Invalid("limit", "The limit is %d and must be at least 1.", limit)
	}
	return viewList(ctx, s, "list jobs to clean up after", func(t *tx) ([]string, error) {
		return t.scanIDs(kv.Range{Table: tableDue, To: keyAfterTime(nil, by)}, positionBytes, limit)
	})
}

// MarkDataDeleted records that the data of a job is deleted.
func (s *Store) MarkDataDeleted(ctx context.Context, jobID string) error {
	return s.changeHeader(ctx, jobID, func(h *jobHeader, _ time.Time) (bool, error) {
		switch {
		case h.DataGone:
			return false, nil
		case h.DataRemoved == nil:
			return false, fmt.Errorf("the data of job %s was not removed: %w", jobID, rowmill.ErrConflict)
		}
		h.DataGone = true
		return true, nil
	})
}

// MarkShownRunning records that a client has asked for the job's status.
func (s *Store) MarkShownRunning(ctx context.Context, jobID string) error {
	return s.changeHeader(ctx, jobID, func(h *jobHeader, _ time.Time) (bool, error) {
		changed := !h.ShownRunning
		h.ShownRunning = true
		return changed, nil
	})
}
