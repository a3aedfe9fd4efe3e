package records

import (
	"context"
	"errors"
	"fmt"

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
		for _, table := range []kv.Table{tableAccounts, tableWaiting, tableOwned, tableReserved, tableHeld, tableDue} {
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
		err = s.writeIndexes(ctx, damaged)
	}
	if err != nil {
		return fmt.Errorf("repair the indexes of the records: %w", err)
	}
	return nil
}

// writeIndexes removes damaged entries and writes the entries of all jobs.
func (s *Store) writeIndexes(ctx context.Context, damaged []*kv.DamagedError) error {
	jobs := kv.Range{Table: tableJobs}
	for n := dropChunk; n == dropChunk; {
		var last string
		err := s.write(ctx, func(t *tx) error {
			for _, d := range damaged {
				t.Delete(d.Table, d.Key)
			}
			ids, err := t.ids(jobs, 0, dropChunk)
			for _, id := range ids {
				h, err := t.header(id)
				switch {
				case errors.Is(err, store.ErrDamaged):
					continue
				case err != nil:
					return err
				}
				t.Put(tableAccounts, orderKey(h.Account, h.Job.Created, id), nil)
				t.reindex(nil, h)
			}
			if n = len(ids); n > 0 {
				last = ids[n-1]
			}
			return err
		})
		if err != nil {
			return err
		}
		jobs, damaged = jobs.Beyond([]byte(last)), nil
	}
	return nil
}
