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

// A clingingStore refuses the first end of a job, as if it had lost parts, so the
// owner gives the job back. It also refuses each release.
type clingingStore struct {
	store.Store
	ends, releases atomic.Int64
}

func (s *clingingStore) Finish(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	if s.ends.Add(1) == 1 {
		return store.Record{}, rowmill.ErrConflict
	}
	return s.Store.Finish(ctx, f, change)
}

func (s *clingingStore) Release(context.Context, store.Fence) error {
	s.releases.Add(1)
	return errors.New("a fault that nobody knows")
}

// If a job cannot be given back, the store still has this node as its owner, so no
// other node claims the job. The job continues here.
func TestAJobThatCannotBeGivenBackGoesOn(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		records := &clingingStore{}
		b := setup(t, &scripted{answer: echo}, func(c *actors.Config) {
			records.Store = c.Store
			c.Store, c.StoragePatience = records, short
		})
		texts := numbered(10)
		b.checkEcho(b.end(b.submit(rowmill.Spec{Inline: texts})), texts)
		if records.releases.Load() == 0 {
			t.Error("the owner did not try to give the job back")
		}
	})
}
