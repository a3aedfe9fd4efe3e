package bolt

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/document"
	"github.com/rowmill/rowmill/store"
)

// PutKey creates or replaces a key.
func (s *Store) PutKey(ctx context.Context, k store.Key) error {
	if err := store.CheckName("the id of a key", k.ID); err != nil {
		return fmt.Errorf("put key: %w", err)
	}
	return s.write(ctx, func(t *tx) error {
		raw, err := document.Rewrite(t.get(bucketKeys, []byte(k.ID)), k)
		if err != nil {
			return fmt.Errorf("encode key %s: %w", k.ID, err)
		}
		return t.put(bucketKeys, []byte(k.ID), raw)
	})
}

// ReplaceKey replaces a key whose hash still is hash.
func (s *Store) ReplaceKey(ctx context.Context, k store.Key, hash []byte) error {
	return s.write(ctx, func(t *tx) error {
		old := t.get(bucketKeys, []byte(k.ID))
		if old == nil {
			return fmt.Errorf("replace key %q: %w", k.ID, rowmill.ErrNotFound)
		}
		raw, err := document.Rewrite(old, k)
		if err != nil {
			return fmt.Errorf("encode key %s: %w", k.ID, err)
		}
		var before store.Key
		if err := json.Unmarshal(old, &before); err != nil {
			return fmt.Errorf("decode key %s: %w", k.ID, err)
		}
		switch {
		case before.Same(k):
			return nil
		case !bytes.Equal(before.Hash, hash):
			return fmt.Errorf("replace key %s: another call replaced it: %w", k.ID, rowmill.ErrConflict)
		}
		return t.put(bucketKeys, []byte(k.ID), raw)
	})
}

// ListKeys returns all keys, oldest first.
func (s *Store) ListKeys(ctx context.Context) ([]store.Key, error) {
	var keys []store.Key
	err := s.view(ctx, func(t *tx) error {
		return t.Bucket(bucketKeys).ForEach(func(id, raw []byte) error {
			var k store.Key
			if err := json.Unmarshal(raw, &k); err != nil {
				return fmt.Errorf("decode key %s: %w", id, err)
			}
			keys = append(keys, k)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	slices.SortFunc(keys, func(a, b store.Key) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	return keys, nil
}

// DeleteKey removes a key.
func (s *Store) DeleteKey(ctx context.Context, id string) error {
	return s.write(ctx, func(t *tx) error {
		if t.get(bucketKeys, []byte(id)) == nil {
			return fmt.Errorf("delete key %q: %w", id, rowmill.ErrNotFound)
		}
		return t.del(bucketKeys, []byte(id))
	})
}

// value reads a document and its version; 0 and nil where there is none.
func (t *tx) value(name string) (json.RawMessage, int64, error) {
	raw := t.get(bucketValues, []byte(name))
	if raw == nil {
		return nil, 0, nil
	}
	if len(raw) < 8 {
		return nil, 0, fmt.Errorf("value %s is cut off", name)
	}
	version, err := number(raw[:8])
	return bytes.Clone(raw[8:]), version, err
}

// GetValue returns a document and its version.
func (s *Store) GetValue(ctx context.Context, name string) (json.RawMessage, int64, error) {
	var doc json.RawMessage
	var version int64
	err := s.view(ctx, func(t *tx) (err error) {
		doc, version, err = t.value(name)
		if err == nil && version == 0 {
			err = fmt.Errorf("value %q: %w", name, rowmill.ErrNotFound)
		}
		return err
	})
	return doc, version, err
}

// PutValue writes a document if its version still is version.
func (s *Store) PutValue(ctx context.Context, name string, doc json.RawMessage, version int64) (int64, error) {
	if err := store.CheckName("the name of a value", name); err != nil {
		return 0, fmt.Errorf("put value: %w", err)
	}
	if !json.Valid(doc) {
		return 0, fmt.Errorf("put value %s: it is not JSON", name)
	}
	err := s.write(ctx, func(t *tx) error {
		_, current, err := t.value(name)
		if err != nil {
			return err
		}
		if current != version {
			return fmt.Errorf("put value %s: its version is %d, not %d: %w", name, current, version, rowmill.ErrConflict)
		}
		raw := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(doc)), uint64(version)+1)
		return t.put(bucketValues, []byte(name), append(raw, doc...))
	})
	if err != nil {
		return 0, err
	}
	return version + 1, nil
}

// ListValues returns the names that start with prefix, sorted.
func (s *Store) ListValues(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	err := s.view(ctx, func(t *tx) error {
		c := t.Bucket(bucketValues).Cursor()
		for name, _ := c.Seek([]byte(prefix)); strings.HasPrefix(string(name), prefix) && name != nil; name, _ = c.Next() {
			names = append(names, string(name))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list values: %w", err)
	}
	return names, nil
}
