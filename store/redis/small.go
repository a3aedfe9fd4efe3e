package redis

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	driver "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/document"
	"github.com/rowmill/rowmill/store"
)

// PutKey creates or replaces a key.
func (s *Store) PutKey(ctx context.Context, k store.Key) error {
	if err := store.CheckName("the id of a key", k.ID); err != nil {
		return fmt.Errorf("put key: %w", err)
	}
	if err := s.untilFresh(ctx, func() error {
		word, _, err := s.swapKey(ctx, k, func(string) error { return nil })
		if err == nil && word != wordOK {
			err = errStale
		}
		return err
	}); err != nil {
		return fmt.Errorf("put key %s: %w", k.ID, err)
	}
	return nil
}

// swapKey reads what is stored of a key, empty for nothing, asks judge whether
// k may take its place, and writes k, with what it does not know of the stored
// one, unless that has changed since. It returns the word of the script.
func (s *Store) swapKey(ctx context.Context, k store.Key, judge func(stored string) error) (word string, doubt bool, err error) {
	var found *driver.SliceCmd
	if err := s.read(ctx, func(p driver.Pipeliner) { found = p.HMGet(ctx, s.key("keys"), k.ID) }); err != nil {
		return "", false, err
	}
	old := answer(found.Val()).text(0)
	raw, err := document.Rewrite([]byte(old), k)
	if err != nil {
		return "", false, fmt.Errorf("encode it: %w", err)
	}
	if err := judge(old); err != nil {
		return "", false, err
	}
	doubt, err = s.try(ctx, true, func(ctx context.Context) (err error) {
		word, err = replaceKeyScript.Run(ctx, s.client, s.withMeta(s.key("keys")), k.ID, old, raw).Text()
		return err
	})
	return word, doubt, err
}

// replaceKeyScript replaces a key that is as it was read.
//
//	KEYS[1]  hash of keys
//	ARGV[1]  id
//	ARGV[2]  the key as it was read, empty where there was none
//	ARGV[3]  the key in its place
//
// It answers ok, also to a repeated attempt, missing or conflict.
var replaceKeyScript = guarded(`
local now = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if now == '' and ARGV[2] ~= '' then return 'missing' end
if now == ARGV[3] then return 'ok' end
if now ~= ARGV[2] then return 'conflict' end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 'ok'
`)

// ReplaceKey replaces a key whose hash still is hash.
func (s *Store) ReplaceKey(ctx context.Context, k store.Key, hash []byte) error {
	replaced := fmt.Errorf("another call replaced it: %w", rowmill.ErrConflict)
	word, doubt, err := s.swapKey(ctx, k, func(stored string) error {
		if stored == "" {
			return rowmill.ErrNotFound
		}
		var before store.Key
		if err := json.Unmarshal([]byte(stored), &before); err != nil {
			return fmt.Errorf("decode it: %w", err)
		}
		if !before.Same(k) && !bytes.Equal(before.Hash, hash) {
			return replaced
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("replace key %q: %w", k.ID, err)
	case word == wordOK:
		return nil
	case doubt: // it may have been ours, which another has replaced or removed since
		s.unknown.Inc()
		return fmt.Errorf("replace key %s: %w", k.ID, store.ErrOutcomeUnknown)
	case word == wordMissing:
		return fmt.Errorf("replace key %q: %w", k.ID, rowmill.ErrNotFound)
	}
	return fmt.Errorf("replace key %q: %w", k.ID, replaced)
}

// ListKeys returns all keys, oldest first.
func (s *Store) ListKeys(ctx context.Context) ([]store.Key, error) {
	var found *driver.MapStringStringCmd
	if err := s.read(ctx, func(p driver.Pipeliner) { found = p.HGetAll(ctx, s.key("keys")) }); err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	var keys []store.Key
	for id, raw := range found.Val() {
		var k store.Key
		if err := json.Unmarshal([]byte(raw), &k); err != nil {
			return nil, fmt.Errorf("list keys: decode key %s: %w", id, err)
		}
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b store.Key) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	return keys, nil
}

// DeleteKey removes a key. Where an earlier attempt of the call may have
// removed it, it counts as removed.
func (s *Store) DeleteKey(ctx context.Context, id string) error {
	var removed int64
	doubt, err := s.try(ctx, true, func(ctx context.Context) (err error) {
		removed, err = s.client.HDel(ctx, s.key("keys"), id).Result()
		return err
	})
	if err == nil && removed == 0 && !doubt {
		err = rowmill.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("delete key %q: %w", id, err)
	}
	return nil
}

// putScript writes a document.
//
//	KEYS[1]  hash of documents: "version token document"
//	KEYS[2]  sorted set of their names
//	ARGV[1]  name
//	ARGV[2]  version that it must have, 0 for none
//	ARGV[3]  the next version
//	ARGV[4]  token of the call
//	ARGV[5]  document
//
// It answers with the version that it has then, and 1 where this call wrote it.
var putScript = guarded(`
local current, token = '0', ''
local old = redis.call('HGET', KEYS[1], ARGV[1])
if old then current, token = string.match(old, '^(%d+) (%S+) ') end
if token == ARGV[4] then return {current, 1} end
if current ~= ARGV[2] then return {current, 0} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. ARGV[5])
if not old then redis.call('ZADD', KEYS[2], 0, ARGV[1]) end
return {ARGV[3], 1}
`)

// PutValue writes a document if its version still is version.
func (s *Store) PutValue(ctx context.Context, name string, doc json.RawMessage, version int64) (int64, error) {
	if err := store.CheckName("the name of a value", name); err != nil {
		return 0, fmt.Errorf("put value: %w", err)
	}
	if !json.Valid(doc) {
		return 0, fmt.Errorf("put value %s: it is not JSON", name)
	}
	token := newToken()
	var a answer
	doubt, err := s.try(ctx, true, func(ctx context.Context) error {
		list, err := putScript.Run(ctx, s.client, s.withMeta(s.key("values"), s.key("names")), name, version, version+1, token, []byte(doc)).Slice()
		a = list
		return err
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("put value %s: %w", name, err)
	case len(a) == 2 && a[1] == int64(1):
		return version + 1, nil
	case doubt: // it may have been ours, which another has replaced since
		s.unknown.Inc()
		return 0, fmt.Errorf("put value %s: %w", name, store.ErrOutcomeUnknown)
	}
	return 0, fmt.Errorf("put value %s: its version is %s, not %d: %w", name, a.text(0), version, rowmill.ErrConflict)
}

// GetValue returns a document and its version.
func (s *Store) GetValue(ctx context.Context, name string) (json.RawMessage, int64, error) {
	var found *driver.SliceCmd
	if err := s.read(ctx, func(p driver.Pipeliner) { found = p.HMGet(ctx, s.key("values"), name) }); err != nil {
		return nil, 0, fmt.Errorf("get value %q: %w", name, err)
	}
	text := answer(found.Val()).text(0)
	if text == "" {
		return nil, 0, fmt.Errorf("value %q: %w", name, rowmill.ErrNotFound)
	}
	number, rest, _ := strings.Cut(text, " ")
	_, doc, _ := strings.Cut(rest, " ")
	version, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return nil, 0, fmt.Errorf("the version of value %s: %w", name, err)
	}
	return json.RawMessage(doc), version, nil
}

// ListValues returns the names that start with prefix, sorted.
func (s *Store) ListValues(ctx context.Context, prefix string) ([]string, error) {
	to := "+"
	if prefix != "" { // no name of bytes that follow is longer than this
		to = "[" + prefix + strings.Repeat("\xff", store.MaxName)
	}
	var names *driver.StringSliceCmd
	if err := s.read(ctx, func(p driver.Pipeliner) {
		names = p.ZRangeByLex(ctx, s.key("names"), &driver.ZRangeBy{Min: "[" + prefix, Max: to})
	}); err != nil {
		return nil, fmt.Errorf("list values: %w", err)
	}
	return names.Val(), nil
}
