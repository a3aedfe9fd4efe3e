package bolt

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// A list of ids is a bucket of keys that begin with what the list is of and end
// with an id.

// batchList leads the keys of an account's batches of a dialect.
func batchList(account, dialect string) []byte { return []byte(account + "\x00" + dialect + "\x00") }

// fileList leads the keys of an account's files of a purpose; all of them for the
// empty one.
func fileList(account, purpose string) []byte { return []byte(account + "\x00" + purpose + "\x00") }

// ids visits a page of a list, and reports whether there are more behind it.
func (t *tx) ids(bucket, list []byte, page store.Page, visit func(id string) error) (more bool, err error) {
	c := t.Bucket(bucket).Cursor()
	var key []byte
	switch {
	case page.Ascending && page.After == "":
		key, _ = c.Seek(list)
	case page.Ascending:
		after := append(bytes.Clone(list), page.After...)
		if key, _ = c.Seek(after); bytes.Equal(key, after) {
			key, _ = c.Next()
		}
	case page.After == "":
		end := bytes.Clone(list)
		end[len(end)-1]++ // behind all keys of the list
		key, _ = lastBelow(c, end)
	default:
		key, _ = lastBelow(c, append(bytes.Clone(list), page.After...))
	}
	for n := 0; bytes.HasPrefix(key, list); n++ {
		if n == page.Limit {
			return true, nil
		}
		if err := visit(string(key[len(list):])); err != nil {
			return false, err
		}
		if page.Ascending {
			key, _ = c.Next()
		} else {
			key, _ = c.Prev()
		}
	}
	return false, nil
}

// Batches returns a page of an account's batches.
func (s *Store) Batches(ctx context.Context, account, dialect string, page store.Page) (batches []store.Record, more bool, err error) {
	if err := page.Check(); err != nil {
		return nil, false, err
	}
	err = s.view(ctx, func(t *tx) (err error) {
		batches = nil
		more, err = t.ids(bucketBatches, batchList(account, dialect), page, func(id string) error {
			rec, err := t.whole(id)
			batches = append(batches, rec)
			return err
		})
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("list batches: %w", err)
	}
	return batches, more, nil
}

// fileDue is the key of a file that expires in the order in which they do.
func fileDue(f store.File) []byte { return append(position(*f.Expires), f.ID...) }

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
		switch old := t.get(bucketFiles, id); {
		case bytes.Equal(old, raw):
			return nil
		case old != nil:
			return fmt.Errorf("create file %s: its id is taken: %w", f.ID, rowmill.ErrConflict)
		}
		return t.putFile(f)
	})
}

// putFile writes a file and where it is found.
func (t *tx) putFile(f store.File) error {
	id := []byte(f.ID)
	raw, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encode file %s: %w", f.ID, err)
	}
	if err := t.put(bucketFiles, id, raw); err != nil {
		return err
	}
	for _, purpose := range []string{"", f.Purpose} {
		if err := t.put(bucketFileLists, append(fileList(f.Account, purpose), id...), present); err != nil {
			return err
		}
	}
	if f.Expires == nil {
		return nil
	}
	return t.put(bucketFilesDue, fileDue(f), present)
}

// file reads a file.
func (t *tx) file(id string) (f store.File, err error) {
	raw := t.get(bucketFiles, []byte(id))
	if raw == nil {
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
		f, err = t.file(id)
		return err
	})
	return f, err
}

// ListFiles returns a page of an account's files.
func (s *Store) ListFiles(ctx context.Context, account, purpose string, page store.Page) (files []store.File, more bool, err error) {
	if err := page.Check(); err != nil {
		return nil, false, err
	}
	err = s.view(ctx, func(t *tx) (err error) {
		files = nil
		more, err = t.ids(bucketFileLists, fileList(account, purpose), page, func(id string) error {
			f, err := t.file(id)
			files = append(files, f)
			return err
		})
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
		f, err := t.file(id)
		if err != nil {
			return fmt.Errorf("delete: %w", err)
		}
		for _, purpose := range []string{"", f.Purpose} {
			if err := t.del(bucketFileLists, append(fileList(f.Account, purpose), id...)); err != nil {
				return err
			}
		}
		if f.Expires != nil {
			if err := t.del(bucketFilesDue, fileDue(f)); err != nil {
				return err
			}
		}
		return t.del(bucketFiles, []byte(id))
	})
}

// ExpiredFiles returns files that have expired.
func (s *Store) ExpiredFiles(ctx context.Context, now time.Time, limit int) (files []store.File, err error) {
	err = s.view(ctx, func(t *tx) error {
		files = nil
		until, c := position(now), t.Bucket(bucketFilesDue).Cursor()
		for key, _ := c.First(); key != nil && len(files) < limit && bytes.Compare(key[:positionBytes], until) <= 0; key, _ = c.Next() {
			f, err := t.file(string(key[positionBytes:]))
			if err != nil {
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
