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

// readPage returns one page of a list of ids: what read returns for each id, and whether more
// ids follow. what describes the call in errors.
func readPage[T any](ctx context.Context, s *Store, what string, table kv.Table, prefix []byte, page store.PageRequest, read func(t *tx, id string) (T, error), prefetched ...kv.Table) (found []T, more bool, err error) {
	if err := page.Check(); err != nil {
		return nil, false, err
	}
	found, err = viewList(ctx, s, what, func(t *tx) (found []T, err error) {
		found, more, err = collectPage(t, table, prefix, page, read, prefetched...)
		return found, err
	})
	return found, more && err == nil, err
}

// collectPage reads a page for readPage. prefetched lists the tables that read reads by id.
// collectPage skips an id when its record is damaged or was removed since the scan.
func collectPage[T any](t *tx, table kv.Table, prefix []byte, page store.PageRequest, read func(t *tx, id string) (T, error), prefetched ...kv.Table) (found []T, more bool, err error) {
	r := kv.PrefixRange(table, prefix)
	r.Reverse = !page.Ascending
	if page.After != "" {
		r = r.RestAfter(append(bytes.Clone(prefix), page.After...))
	}
	for {
		most := page.Limit - len(found) + 1
		ids, err := t.scanIDs(r, len(prefix), most)
		if err != nil {
			return nil, false, err
		}
		t.prefetchIDs(ids, prefetched...)
		for _, id := range ids {
			if len(found) == page.Limit {
				return found, true, nil
			}
			one, err := read(t, id)
			switch {
			case err == nil:
				found = append(found, one)
			case t.logIfDamaged(err), errors.Is(err, rowmill.ErrNotFound):
			default:
				return nil, false, err
			}
		}
		if len(ids) < most {
			return found, false, nil
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
	return readPage(ctx, s, "list batches", tableBatches, batchListPrefix(account, dialect), page, (*tx).readRecord, tableJobs, tableTexts, tableSpecs)
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
	return viewResult(ctx, s, func(t *tx) (store.File, error) { return t.readFile(id) })
}

// ListFiles returns a page of an account's files.
func (s *Store) ListFiles(ctx context.Context, account, purpose string, page store.PageRequest) (files []store.File, more bool, err error) {
	return readPage(ctx, s, "list files", tableFileLists, fileListPrefix(account, purpose), page, (*tx).readFile, tableFiles)
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
	return viewList(ctx, s, "list files that have expired", func(t *tx) (files []store.File, err error) {
		ids, err := t.scanIDs(kv.Range{Table: tableFilesDue, To: keyAfterTime(nil, now)}, positionBytes, limit)
		if err != nil {
			return nil, err
		}
		t.prefetchIDs(ids, tableFiles)
		for _, id := range ids {
			f, err := t.readFile(id)
			switch {
			case t.logIfDamaged(err), errors.Is(err, rowmill.ErrNotFound):
				continue
			case err != nil:
				return nil, err
			}
			files = append(files, f)
		}
		return files, nil
	})
}
