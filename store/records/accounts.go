package records

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

// Accounts returns the accounts that have jobs, files or API keys.
func (s *Store) Accounts(ctx context.Context) ([]string, error) {
	keys, err := s.ListKeys(ctx)
	if err != nil {
		return nil, err
	}
	accounts, err := viewList(ctx, s, "list accounts", func(t *tx) ([]string, error) {
		return t.accountsIn(tableAccounts, tableFileLists)
	})
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		accounts = append(accounts, k.Account)
	}
	slices.Sort(accounts)
	return slices.Compact(accounts), nil
}

// accountsIn returns the accounts that have entries in tables. An account of several tables is
// repeated.
func (t *tx) accountsIn(tables ...kv.Table) (accounts []string, err error) {
	for _, table := range tables {
		found, err := t.scanAccounts(table)
		if err != nil {
			return nil, err
		}
		for _, of := range found {
			accounts = append(accounts, of.account)
		}
	}
	return accounts, nil
}

// List returns an account's jobs, newest first. Jobs that were created in the same
// nanosecond are ordered by id, the larger first.
func (s *Store) List(ctx context.Context, account string, limit int, cursor string) ([]*rowmill.Job, string, error) {
	heads, next, err := s.listJobs(ctx, limit, cursor, func(*tx) ([]string, error) { return []string{account}, nil })
	jobs := make([]*rowmill.Job, len(heads))
	for i, head := range heads {
		jobs[i] = &head.Job
	}
	return jobs, next, err
}

// ListAll returns the jobs of all accounts in the order of List.
func (s *Store) ListAll(ctx context.Context, limit int, cursor string) ([]*store.JobHead, string, error) {
	return s.listJobs(ctx, limit, cursor, func(t *tx) ([]string, error) { return t.accountsIn(tableAccounts) })
}

// listAtOnce is the largest number of jobs for which listJobs allocates memory in advance: a
// usual page of a client.
const listAtOnce = 100

// listJobs returns a page of the jobs of the accounts that find returns.
func (s *Store) listJobs(ctx context.Context, limit int, cursor string, find func(*tx) ([]string, error)) (jobs []*store.JobHead, next string, err error) {
	after, err := store.DecodePageCursor(limit, cursor, positionBytes)
	if err != nil {
		return nil, "", err
	}
	jobs = make([]*store.JobHead, 0, min(limit, listAtOnce))
	err = s.view(ctx, func(t *tx) error {
		jobs, next = jobs[:0], ""
		accounts, err := find(t)
		if err != nil {
			return err
		}
		for end := after; ; {
			most := limit - len(jobs) + 1
			positions, err := t.newestPositions(accounts, end, most)
			if err := cmp.Or(err, ctx.Err()); err != nil {
				return err
			}
			more := len(positions) == most
			if more {
				positions = positions[:most-1]
			}
			if jobs, err = s.appendHeads(t, jobs, positions); err != nil || !more {
				return err
			}
			end = []byte(positions[len(positions)-1])
			if len(jobs) == limit {
				next = store.EncodeCursor(end)
				return nil
			}
			// Some records were damaged, so read further ones.
		}
	})
	if err != nil {
		return nil, "", fmt.Errorf("list jobs: %w", err)
	}
	return jobs, next, nil
}

// newestPositions returns the positions of the newest jobs of accounts, at most limit and the
// newest first: a key of tableAccounts without its account. All are older than end; a nil
// end is newer than all jobs.
func (t *tx) newestPositions(accounts []string, end []byte, limit int) (positions []string, err error) {
	for _, account := range accounts {
		prefix := []byte(account + "\x00")
		r := kv.Range{Table: tableAccounts, From: prefix, To: []byte(account + "\x01"), Reverse: true}
		if end != nil {
			r.To = append(bytes.Clone(prefix), end...)
		}
		found, err := t.scanIDs(r, len(prefix), limit)
		if err != nil {
			return nil, err
		}
		for _, at := range found {
			if len(at) < positionBytes {
				return nil, fmt.Errorf("a key of table %s is cut off", tableAccounts)
			}
		}
		positions = append(positions, found...)
	}
	if len(accounts) > 1 {
		slices.Sort(positions)
		slices.Reverse(positions)
	}
	return positions[:min(limit, len(positions))], nil
}

// appendHeads appends the jobs at these positions to jobs. It skips a job if the record is damaged
// or missing.
func (s *Store) appendHeads(t *tx, jobs []*store.JobHead, positions []string) ([]*store.JobHead, error) {
	ids := make([]string, len(positions))
	for i, at := range positions {
		ids[i] = at[positionBytes:]
	}
	t.prefetchIDs(ids, tableJobs, tableTexts)
	for _, id := range ids {
		head, err := s.readHead(t, id)
		switch {
		case t.logIfDamaged(err), errors.Is(err, rowmill.ErrNotFound):
			continue
		case err != nil:
			return nil, err
		}
		jobs = append(jobs, head)
	}
	return jobs, nil
}
