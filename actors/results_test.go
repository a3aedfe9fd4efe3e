package actors_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/store"
)

// A balkyStore refuses the first commits of parts and the first ends of jobs.
type balkyStore struct {
	store.Store
	commits, ends atomic.Int64
}

var errBalky = errors.New("connection reset")

func (s *balkyStore) CommitParts(ctx context.Context, f store.Fence, parts []store.Part) error {
	if s.commits.Add(-1) >= 0 {
		return errBalky
	}
	return s.Store.CommitParts(ctx, f, parts)
}

func (s *balkyStore) Finish(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	if s.ends.Add(-1) >= 0 {
		return store.Record{}, errBalky
	}
	return s.Store.Finish(ctx, f, change)
}

// Parts that the store refuses for a while are committed later, and their rows do
// not run again.
func TestCommitsAreTriedAgain(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: echo}
		balky := &balkyStore{}
		balky.commits.Store(2)
		b := setup(t, e, func(c *actors.Config) { balky.Store, c.Store = c.Store, balky })
		texts := numbered(20)
		b.checkEcho(b.end(b.submit(rowmill.Spec{Inline: texts})), texts)
		if n := e.calls.Load(); n != int64(len(texts)) || balky.commits.Load() >= 0 {
			t.Errorf("%d requests for %d rows, and %d refusals left", n, len(texts), balky.commits.Load())
		}
	})
}

// The failure of a job is recorded as soon as the store accepts it.
func TestTheEndOfAJobIsTriedAgain(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		balky := &balkyStore{}
		balky.ends.Store(2)
		b := setup(t, &scripted{answer: echo}, func(c *actors.Config) { balky.Store, c.Store = c.Store, balky })
		failure(t, b.end(b.submit(rowmill.Spec{Inline: numbered(20), RowQuota: 10})), rowmill.CodeRowQuota)
		if left := balky.ends.Load(); left >= 0 {
			t.Errorf("%d refusals are left", left)
		}
	})
}
