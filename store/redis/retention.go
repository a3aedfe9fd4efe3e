package redis

import (
	"context"
	"fmt"
	"slices"
	"time"

	driver "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// Holders returns the accounts that have held jobs.
func (s *Store) Holders(ctx context.Context) ([]string, error) {
	var found *driver.StringSliceCmd
	if err := s.read(ctx, func(p driver.Pipeliner) { found = p.SMembers(ctx, s.key("holders")) }); err != nil {
		return nil, fmt.Errorf("list accounts with held jobs: %w", err)
	}
	return slices.Sorted(slices.Values(found.Val())), nil
}

// Held returns held jobs of an account, those that ended first first.
func (s *Store) Held(ctx context.Context, account string, ended time.Time, limit int) ([]string, error) {
	if limit <= 0 {
		return nil, rowmill.Invalid("limit", "The limit is %d and must be at least 1.", limit)
	}
	var places *driver.StringSliceCmd
	if err := s.read(ctx, func(p driver.Pipeliner) {
		// No id is as large as the byte that stands in for all of them.
		places = p.ZRangeByLex(ctx, s.key("held", account), &driver.ZRangeBy{Min: "-", Max: "[" + order(ended, "\xff"), Count: int64(limit)})
	}); err != nil {
		return nil, fmt.Errorf("list held jobs: %w", err)
	}
	var ids []string
	for _, place := range places.Val() {
		ids = append(ids, place[orderDigits:])
	}
	return ids, nil
}

// RemoveData says that a job's data must not be read any more.
func (s *Store) RemoveData(ctx context.Context, jobID string, now time.Time) (store.Record, error) {
	what := "remove the data of job " + jobID
	rec, err := s.edit(ctx, edit{what: what, fence: store.Fence{JobID: jobID}, spec: true, change: func(rec *store.Record) (bool, error) {
		return rec.RemoveData(now)
	}})
	if err != nil {
		return store.Record{}, err
	}
	return rec, nil
}

// KeepInput says that objects hold the input of a job that is over.
func (s *Store) KeepInput(ctx context.Context, jobID string, until time.Time) error {
	return s.settle(ctx, "keep the input of job "+jobID, jobID, func(rec *store.Record) (bool, error) { return rec.KeepInput(until) })
}

// InputGone says that a job's input was removed.
func (s *Store) InputGone(ctx context.Context, jobID string, now time.Time) error {
	return s.settle(ctx, "remove the input of job "+jobID, jobID, func(rec *store.Record) (bool, error) { return rec.InputGone(now) })
}

// Continued notes which job takes over the rows of another.
func (s *Store) Continued(ctx context.Context, jobID, by string) error {
	return s.settle(ctx, "continue job "+jobID, jobID, func(rec *store.Record) (bool, error) { return rec.Continued(by) })
}

// settle changes a record without a fence, its specification included.
func (s *Store) settle(ctx context.Context, what, jobID string, change func(*store.Record) (bool, error)) error {
	_, err := s.edit(ctx, edit{what: what, fence: store.Fence{JobID: jobID}, spec: true, change: change})
	return err
}

// Due returns jobs of which something is to be removed.
func (s *Store) Due(ctx context.Context, by time.Time, limit int) ([]string, error) {
	if limit <= 0 {
		return nil, rowmill.Invalid("limit", "The limit is %d and must be at least 1.", limit)
	}
	var ids *driver.StringSliceCmd
	if err := s.read(ctx, func(p driver.Pipeliner) {
		ids = p.ZRangeByScore(ctx, s.key("due"), &driver.ZRangeBy{Min: "-inf", Max: decimal(by.UnixMilli()), Count: int64(limit)})
	}); err != nil {
		return nil, fmt.Errorf("list jobs to clean up after: %w", err)
	}
	if len(ids.Val()) == 0 {
		return nil, nil
	}
	return ids.Val(), nil
}

// goneScript takes a job out of those that are held.
//
//	ARGV[6]  account
//	ARGV[7]  order of the job among the account's held ones
//
// It answers ok.
var goneScript = jobScript(`
redis.call('ZREM', P .. 'held:' .. ARGV[6], ARGV[7])
if redis.call('EXISTS', P .. 'held:' .. ARGV[6]) == 0 then redis.call('SREM', P .. 'holders', ARGV[6]) end
return {'ok', holds()}
`)

// DataGone takes a job out of those that are held.
func (s *Store) DataGone(ctx context.Context, jobID string) error {
	rec, err := s.Get(ctx, jobID)
	if err != nil {
		return err
	}
	if err := rec.CheckVersion(); err != nil {
		return err
	}
	if rec.DataRemoved == nil {
		return fmt.Errorf("the data of job %s was not removed: %w", jobID, rowmill.ErrConflict)
	}
	f := store.Fence{JobID: jobID}
	a, _, err := s.run(ctx, goneScript, f, newToken(), rec.Spec.Account, order(rec.EndedAt(), jobID))
	if err == nil {
		err = fenced(f, a)
	}
	if err != nil {
		return fmt.Errorf("note that the data of job %s is gone: %w", jobID, err)
	}
	return nil
}

// ShowRunning notes that the job's client was told where it stands.
func (s *Store) ShowRunning(ctx context.Context, jobID string) error {
	_, err := s.edit(ctx, edit{what: "change job " + jobID, fence: store.Fence{JobID: jobID}, change: func(rec *store.Record) (bool, error) {
		if rec.ShownRunning {
			return false, nil
		}
		rec.ShownRunning = true
		return true, nil
	}})
	return err
}
