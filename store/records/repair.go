package records

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

// RepairIndexes looks for damaged entries in the indexes of jobs. If there is one, it
// removes the damaged entries and writes the entries of all jobs again: a job without its
// entry would not run, be listed or expire. No node may use the records meanwhile.
func (s *Store) RepairIndexes(ctx context.Context) error {
	var damaged []*kv.DamagedError
	err := s.view(ctx, func(t *tx) error {
		damaged = nil
		for _, table := range []kv.Table{tableAccounts, tableWaiting, tableOwned, tableReserved, tableRetained, tableDue} {
			for _, err := range t.Scan(kv.Range{Table: table}) {
				var at *kv.DamagedError
				switch {
				case errors.As(err, &at):
					damaged = append(damaged, at)
				case err != nil:
					return err
				}
			}
		}
		return nil
	})
	if err == nil && len(damaged) > 0 {
		s.log.Error("indexes of the records are damaged; they are written again", "entries", len(damaged), "err", damaged[0])
		err = s.eachHeader(ctx, damaged, func(t *tx, h jobHeader) error {
			t.writeIndexes(h)
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("repair the indexes of the records: %w", err)
	}
	return nil
}

// RebuildAfterLoss is for a store that has lost some records. It writes the indexes of all jobs again,
// and computes the progress fields of each job that has not succeeded from the job's parts.
// No node may use the records meanwhile.
func (s *Store) RebuildAfterLoss(ctx context.Context) error {
	err := s.eachHeader(ctx, nil, func(t *tx, h jobHeader) error {
		t.writeIndexes(h)
		if h.Job.Status == rowmill.StatusSucceeded || h.DataRemoved != nil {
			return nil // the parts of the job were removed
		}
		prefix := partsPrefix(h.Job.ID)
		for e, err := range t.scanUndamaged(kv.PrefixRange(tableParts, prefix)) {
			var p partRecord
			if err == nil {
				err = json.Unmarshal(e.Value, &p)
			}
			if err != nil {
				return err
			}
			t.Put(tablePartKeys, append(bytes.Clone(prefix), p.Key...), bytes.Clone(e.Key[len(prefix):]))
		}
		rec, err := t.completeRecord(h)
		if err == nil {
			_, err = t.markPartsLost(&rec, nil)
		}
		if err == nil && progressTotals(&rec.Job) != progressTotals(&h.Job) {
			rec.Version++
			err = t.saveRecord(&h, rec, h.Account)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("rebuild the records: %w", err)
	}
	return nil
}

// writeIndexes writes the entries of a job in all indexes.
func (t *tx) writeIndexes(h jobHeader) {
	t.Put(tableAccounts, accountTimeKey(h.Account, h.Job.Created, h.Job.ID), nil)
	t.reindexJob(nil, h)
}

// eachHeader calls visit with the undamaged header of each job. The first transaction
// removes damaged entries.
func (s *Store) eachHeader(ctx context.Context, damaged []*kv.DamagedError, visit func(*tx, jobHeader) error) error {
	jobs := kv.Range{Table: tableJobs}
	for n := dropChunk; n == dropChunk; {
		var last string
		err := s.write(ctx, func(t *tx) error {
			for _, d := range damaged {
				t.Delete(d.Table, d.Key)
			}
			ids, err := t.scanIDs(jobs, 0, dropChunk)
			if err != nil {
				return err
			}
			for _, id := range ids {
				h, err := t.readHeader(id)
				if err == nil {
					err = visit(t, h)
				}
				if err != nil && !errors.Is(err, store.ErrDamaged) {
					return err
				}
			}
			if n = len(ids); n > 0 {
				last = ids[n-1]
			}
			return nil
		})
		if err != nil {
			return err
		}
		jobs, damaged = jobs.RestAfter([]byte(last)), nil
	}
	return nil
}
