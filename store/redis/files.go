package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	driver "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// batchList is the key of an account's batches of a dialect, fileList that of its
// files of a purpose, all of them for the empty one.
func (s *Store) batchList(account, dialect string) string { return s.key("batches", dialect, account) }

func (s *Store) fileList(account, purpose string) string {
	return s.key("filelist", fmt.Sprint(len(purpose)), purpose, account)
}

// ids returns a page of a sorted set of ids, and whether there are more behind it.
func (s *Store) ids(ctx context.Context, key string, page store.Page) (ids []string, more bool, err error) {
	by := &driver.ZRangeBy{Min: "-", Max: "+", Count: int64(page.Limit) + 1}
	var found *driver.StringSliceCmd
	err = s.read(ctx, func(p driver.Pipeliner) {
		switch {
		case page.Ascending:
			if page.After != "" {
				by.Min = "(" + page.After
			}
			found = p.ZRangeByLex(ctx, key, by)
		default:
			if page.After != "" {
				by.Max = "(" + page.After
			}
			found = p.ZRevRangeByLex(ctx, key, by)
		}
	})
	if err != nil {
		return nil, false, err
	}
	if ids = found.Val(); len(ids) > page.Limit {
		return ids[:page.Limit], true, nil
	}
	return ids, false, nil
}

// Batches returns a page of an account's batches.
func (s *Store) Batches(ctx context.Context, account, dialect string, page store.Page) (batches []store.Record, more bool, err error) {
	if err := page.Check(); err != nil {
		return nil, false, err
	}
	ids, more, err := s.ids(ctx, s.batchList(account, dialect), page)
	if err != nil {
		return nil, false, fmt.Errorf("list batches: %w", err)
	}
	for _, id := range ids {
		rec, err := s.Get(ctx, id)
		if err != nil {
			return nil, false, fmt.Errorf("list batches: %w", err)
		}
		batches = append(batches, rec)
	}
	return batches, more, nil
}

// createFileScript stores a file.
//
//	KEYS[1]  hash of files
//	KEYS[2]  sorted set of the account's files
//	KEYS[3]  sorted set of those of them that have the purpose
//	KEYS[4]  sorted set of files that expire
//	ARGV[1]  id
//	ARGV[2]  the file
//	ARGV[3]  when it expires, ms since 1970; empty for never
//
// It answers ok, also where the same file is there, or conflict.
var createFileScript = guarded(`
local old = redis.call('HGET', KEYS[1], ARGV[1])
if old and old ~= ARGV[2] then return 'conflict' end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
redis.call('ZADD', KEYS[3], 0, ARGV[1])
if ARGV[3] ~= '' then redis.call('ZADD', KEYS[4], ARGV[3], ARGV[1]) end
return 'ok'
`)

// deleteFileScript removes a file, if it is there.
//
//	KEYS and ARGV[1]  as of createFileScript
var deleteFileScript = guarded(`
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[1])
return redis.call('HDEL', KEYS[1], ARGV[1])
`)

// fileKeys are those that have something of a file.
func (s *Store) fileKeys(f store.File) []string {
	return s.withMeta(s.key("files"), s.fileList(f.Account, ""), s.fileList(f.Account, f.Purpose), s.key("filesdue"))
}

// CreateFile stores a file.
func (s *Store) CreateFile(ctx context.Context, f store.File) error {
	if err := f.Check(); err != nil {
		return fmt.Errorf("create file %s: %w", f.ID, err)
	}
	raw, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encode file %s: %w", f.ID, err)
	}
	until := ""
	if f.Expires != nil {
		until = decimal(f.Expires.UnixMilli())
	}
	var word string
	if _, err := s.try(ctx, true, func(ctx context.Context) (err error) {
		word, err = createFileScript.Run(ctx, s.client, s.fileKeys(f), f.ID, raw, until).Text()
		return err
	}); err != nil {
		return fmt.Errorf("create file %s: %w", f.ID, err)
	}
	if word != wordOK {
		return fmt.Errorf("create file %s: its id is taken: %w", f.ID, rowmill.ErrConflict)
	}
	return nil
}

// filesOf reads files by their ids. Those that are gone are left out.
func (s *Store) filesOf(ctx context.Context, ids []string) (files []store.File, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var found *driver.SliceCmd
	if err := s.read(ctx, func(p driver.Pipeliner) { found = p.HMGet(ctx, s.key("files"), ids...) }); err != nil {
		return nil, err
	}
	for i, id := range ids {
		raw := answer(found.Val()).text(i)
		if raw == "" {
			continue
		}
		var f store.File
		if err := json.Unmarshal([]byte(raw), &f); err != nil {
			return nil, fmt.Errorf("decode file %s: %w", id, err)
		}
		files = append(files, f)
	}
	return files, nil
}

// GetFile returns a file.
func (s *Store) GetFile(ctx context.Context, id string) (store.File, error) {
	files, err := s.filesOf(ctx, []string{id})
	if err == nil && len(files) == 0 {
		err = rowmill.ErrNotFound
	}
	if err != nil {
		return store.File{}, fmt.Errorf("file %s: %w", id, err)
	}
	return files[0], nil
}

// ListFiles returns a page of an account's files.
func (s *Store) ListFiles(ctx context.Context, account, purpose string, page store.Page) (files []store.File, more bool, err error) {
	if err := page.Check(); err != nil {
		return nil, false, err
	}
	ids, more, err := s.ids(ctx, s.fileList(account, purpose), page)
	if err == nil {
		files, err = s.filesOf(ctx, ids)
	}
	if err != nil {
		return nil, false, fmt.Errorf("list files: %w", err)
	}
	return files, more, nil
}

// DeleteFile removes the record of a file.
func (s *Store) DeleteFile(ctx context.Context, id string) error {
	f, err := s.GetFile(ctx, id)
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	var gone int
	doubt, err := s.try(ctx, true, func(ctx context.Context) (err error) {
		gone, err = deleteFileScript.Run(ctx, s.client, s.fileKeys(f), id).Int()
		return err
	})
	if err == nil && gone == 0 && !doubt {
		err = rowmill.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("delete file %s: %w", id, err)
	}
	return nil
}

// ExpiredFiles returns files that have expired.
func (s *Store) ExpiredFiles(ctx context.Context, now time.Time, limit int) (files []store.File, err error) {
	var ids *driver.StringSliceCmd
	err = s.read(ctx, func(p driver.Pipeliner) {
		ids = p.ZRangeByScore(ctx, s.key("filesdue"), &driver.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(now.UnixMilli(), 10), Count: int64(limit)})
	})
	if err == nil {
		files, err = s.filesOf(ctx, ids.Val())
	}
	if err != nil && !errors.Is(err, rowmill.ErrNotFound) {
		return nil, fmt.Errorf("list files that have expired: %w", err)
	}
	return files, nil
}
