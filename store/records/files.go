package records

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

// In this package, a list is the part of an index table with one prefix. Each key of the
// list is this prefix followed by an id.

// batchListPrefix returns the key prefix of an account's batches of a dialect.
func batchListPrefix(account, dialect string) []byte {
	return []byte(account + "\x00" + dialect + "\x00")
}

// fileListPrefix returns the key prefix of an account's files with a purpose, or of all its
// files when purpose is empty.
func fileListPrefix(account, purpose string) []byte {
	return []byte(account + "\x00" + purpose + "\x00")
}

// visitPage calls visit with the ids of one page of a list and reports whether further ids
// follow. prefetched lists the tables that visit reads by id. visitPage skips an id when
// its record is damaged or was removed since the scan.
func (t *tx) visitPage(table kv.Table, prefix []byte, page store.PageRequest, visit func(id string) error, prefetched ...kv.Table) (more bool, err error) {
	r := kv.PrefixRange(table, prefix)
	r.Reverse = !page.Ascending
	if page.After != "" {
		r = r.RestAfter(append(bytes.Clone(prefix), page.After...))
	}
	for n := 0; ; {
		most := page.Limit - n + 1
		ids, err := t.scanIDs(r, len(prefix), most)
		if err != nil {
			return false, err
		}
		t.prefetchIDs(ids, prefetched...)
		for _, id := range ids {
			if n == page.Limit {
				return true, nil
			}
			err := visit(id)
			switch {
			case err == nil:
				n++
			case t.logIfDamaged(err), errors.Is(err, rowmill.ErrNotFound):
			default:
				return false, err
			}
		}
		if len(ids) < most {
			return false, nil
		}
		r = r.RestAfter(append(bytes.Clone(prefix), ids[len(ids)-1]...))
	}
}

// prefetchIDs announces that the transaction will read these ids in these tables.
func (t *tx) prefetchIDs(ids []string, tables ...kv.Table) {
	for _, table := range tables {
		for _, id := range ids {
			t.Prefetch(table, []byte(id))
		}
	}
}

// ListBatches returns a page of an account's batches.
func (s *Store) ListBatches(ctx context.Context, account, dialect string, page store.PageRequest) (batches []store.Record, more bool, err error) {
	if err := page.Check(); err != nil {
		return nil, false, err
	}
	err = s.view(ctx, func(t *tx) (err error) {
		batches = nil
		more, err = t.visitPage(tableBatches, batchListPrefix(account, dialect), page, func(id string) error {
			rec, err := t.readRecord(id)
			if err == nil {
				batches = append(batches, rec)
			}
			return err
		}, tableJobs, tableTexts, tableSpecs)
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("list batches: %w", err)
	}
	return batches, more, nil
}

// fileDueKey returns the key of an expiring file in table filesdue. The keys sort by expiry.
func fileDueKey(f store.File) []byte { return append(encodeTime(*f.Expires), f.ID...) }

// CreateFile stores a file.
func (s *Store) CreateFile(ctx context.Context, f store.File) error {
	if err := f.Check(); err != nil {
		return fmt.Errorf("create file %s: %w", f.ID, err)
	}
	raw, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encode file %s: %w", f.ID, err)
	}
	id := []byte(f.ID)
	return s.write(ctx, func(t *tx) error {
		switch old, err := t.Get(tableFiles, id); {
		case err != nil:
			return err
		case bytes.Equal(old, raw):
			return nil
		case old != nil:
			return fmt.Errorf("create file %s: its id is taken: %w", f.ID, rowmill.ErrConflict)
		}
		t.putFile(f, raw)
		return nil
	})
}

// putFile writes a file and its index entries.
func (t *tx) putFile(f store.File, raw []byte) {
	t.Put(tableFiles, []byte(f.ID), raw)
	for _, purpose := range []string{"", f.Purpose} {
		t.Put(tableFileLists, append(fileListPrefix(f.Account, purpose), f.ID...), nil)
	}
	if f.Expires != nil {
		t.Put(tableFilesDue, fileDueKey(f), nil)
	}
}

// readFile reads the record of a file, or returns rowmill.ErrNotFound.
func (t *tx) readFile(id string) (f store.File, err error) {
	raw, err := t.Get(tableFiles, []byte(id))
	switch {
	case err != nil:
		return f, err
	case raw == nil:
		return f, fmt.Errorf("file %s: %w", id, rowmill.ErrNotFound)
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		return f, fmt.Errorf("decode file %s: %w", id, err)
	}
	return f, nil
}

// GetFile returns a file.
func (s *Store) GetFile(ctx context.Context, id string) (f store.File, err error) {
	err = s.view(ctx, func(t *tx) (err error) {
		f, err = t.readFile(id)
		return err
	})
	return f, err
}

// ListFiles returns a page of an account's files.
func (s *Store) ListFiles(ctx context.Context, account, purpose string, page store.PageRequest) (files []store.File, more bool, err error) {
	if err := page.Check(); err != nil {
		return nil, false, err
	}
	err = s.view(ctx, func(t *tx) (err error) {
		files = nil
		more, err = t.visitPage(tableFileLists, fileListPrefix(account, purpose), page, func(id string) error {
			f, err := t.readFile(id)
			if err == nil {
				files = append(files, f)
			}
			return err
		}, tableFiles)
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("list files: %w", err)
	}
	return files, more, nil
}

// DeleteFile removes the record of a file.
func (s *Store) DeleteFile(ctx context.Context, id string) error {
	return s.write(ctx, func(t *tx) error {
		f, err := t.readFile(id)
		if err != nil {
			return fmt.Errorf("delete: %w", err)
		}
		for _, purpose := range []string{"", f.Purpose} {
			t.Delete(tableFileLists, append(fileListPrefix(f.Account, purpose), id...))
		}
		if f.Expires != nil {
			t.Delete(tableFilesDue, fileDueKey(f))
		}
		t.Delete(tableFiles, []byte(id))
		return nil
	})
}

// ExpiredFiles returns files that have expired.
func (s *Store) ExpiredFiles(ctx context.Context, now time.Time, limit int) (files []store.File, err error) {
	err = s.view(ctx, func(t *tx) error {
		files = nil
		ids, err := t.scanIDs(kv.Range{Table: tableFilesDue, To: keyAfterTime(nil, now)}, positionBytes, limit)
		if err != nil {
			return err
		}
		t.prefetchIDs(ids, tableFiles)
		for _, id := range ids {
			f, err := t.readFile(id)
			switch {
			case t.logIfDamaged(err), errors.Is(err, rowmill.ErrNotFound):
				continue
			case err != nil:
				return err
			}
			files = append(files, f)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list files that have expired: %w", err)
	}
	return files, nil
}
