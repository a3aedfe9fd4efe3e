package records

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/jsonpreserve"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

// PutKey creates or replaces a key.
func (s *Store) PutKey(ctx context.Context, k store.APIKey) error {
	if err := store.CheckName("the id of a key", k.ID); err != nil {
		return fmt.Errorf("put key: %w", err)
	}
	return s.write(ctx, func(t *tx) error {
		old, err := t.Get(tableKeys, []byte(k.ID))
		if err != nil {
			return err
		}
		raw, err := jsonpreserve.Rewrite(old, k)
		if err != nil {
			return fmt.Errorf("encode key %s: %w", k.ID, err)
		}
		t.Put(tableKeys, []byte(k.ID), raw)
		return nil
	})
}

// ReplaceKey replaces a key whose stored hash equals hash.
func (s *Store) ReplaceKey(ctx context.Context, k store.APIKey, hash []byte) error {
	return s.write(ctx, func(t *tx) error {
		old, err := t.Get(tableKeys, []byte(k.ID))
		switch {
		case err != nil:
			return err
		case old == nil:
			return fmt.Errorf("replace key %q: %w", k.ID, rowmill.ErrNotFound)
		}
		raw, err := jsonpreserve.Rewrite(old, k)
		if err != nil {
			return fmt.Errorf("encode key %s: %w", k.ID, err)
		}
		var before store.APIKey
		if err := json.Unmarshal(old, &before); err != nil {
			return fmt.Errorf("decode key %s: %w", k.ID, err)
		}
		switch {
		case before.IsSame(k):
			return nil
		case !bytes.Equal(before.Hash, hash):
			return fmt.Errorf("replace key %s: another call replaced it: %w", k.ID, rowmill.ErrConflict)
		}
		t.Put(tableKeys, []byte(k.ID), raw)
		return nil
	})
}

// ListKeys returns all keys, oldest first.
func (s *Store) ListKeys(ctx context.Context) ([]store.APIKey, error) {
	keys, err := viewList(ctx, s, "list keys", func(t *tx) (keys []store.APIKey, err error) {
		for e, err := range t.scanUndamaged(kv.Range{Table: tableKeys}) {
			if err != nil {
				return nil, err
			}
			var k store.APIKey
			if err := json.Unmarshal(e.Value, &k); err != nil {
				return nil, fmt.Errorf("decode key %s: %w", e.Key, err)
			}
			keys = append(keys, k)
		}
		return keys, nil
	})
	slices.SortFunc(keys, func(a, b store.APIKey) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	return keys, err
}

// DeleteKey removes a key.
func (s *Store) DeleteKey(ctx context.Context, id string) error {
	return s.write(ctx, func(t *tx) error {
		switch old, err := t.Get(tableKeys, []byte(id)); {
		case err != nil && !errors.Is(err, store.ErrDamaged):
			return err
		case err == nil && old == nil:
			return fmt.Errorf("delete key %q: %w", id, rowmill.ErrNotFound)
		}
		t.Delete(tableKeys, []byte(id))
		return nil
	})
}

// readValue reads a document and its version; nil and 0 when there is none.
func (t *tx) readValue(name string) (json.RawMessage, int64, error) {
	raw, err := t.Get(tableValues, []byte(name))
	if raw == nil {
		return nil, 0, err
	}
	if len(raw) < 8 {
		return nil, 0, fmt.Errorf("value %s is cut off", name)
	}
	version, err := decodeNumber(raw[:8])
	return bytes.Clone(raw[8:]), version, err
}

// GetValue returns a document and its version.
func (s *Store) GetValue(ctx context.Context, name string) (json.RawMessage, int64, error) {
	var doc json.RawMessage
	var version int64
	err := s.view(ctx, func(t *tx) (err error) {
		doc, version, err = t.readValue(name)
		if err == nil && version == 0 {
			err = fmt.Errorf("value %q: %w", name, rowmill.ErrNotFound)
		}
		return err
	})
	return doc, version, err
}

// PutValue writes a document if its stored version equals version.
func (s *Store) PutValue(ctx context.Context, name string, doc json.RawMessage, version int64) (int64, error) {
	if err := store.CheckName("the name of a value", name); err != nil {
		return 0, fmt.Errorf("put value: %w", err)
	}
	if !json.Valid(doc) {
		return 0, fmt.Errorf("put value %s: it is not JSON", name)
	}
	err := s.write(ctx, func(t *tx) error {
		_, current, err := t.readValue(name)
		if err != nil {
			return err
		}
		if current != version {
			return fmt.Errorf("put value %s: its version is %d, not %d: %w", name, current, version, rowmill.ErrConflict)
		}
		raw := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(doc)), uint64(version)+1)
		t.Put(tableValues, []byte(name), append(raw, doc...))
		return nil
	})
	if err != nil {
		return 0, err
	}
	return version + 1, nil
}

// ListValues returns the names that start with prefix, sorted.
func (s *Store) ListValues(ctx context.Context, prefix string) ([]string, error) {
	return viewList(ctx, s, "list values", func(t *tx) (names []string, err error) {
		for e, err := range t.Scan(kv.PrefixRange(tableValues, []byte(prefix))) {
			if err != nil && !errors.Is(err, store.ErrDamaged) { // the name is still readable
				return nil, err
			}
			names = append(names, string(e.Key))
		}
		return names, nil
	})
}
