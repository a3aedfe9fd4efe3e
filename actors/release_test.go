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

// A clingingStore does not know the parts of a job when that is to end, so that
// its owner begins again, and takes no job back.
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

// A job that cannot be given back is still its owner's, so nobody else takes it:
// it goes on here.
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
			t.Error("the job was not to be given back")
		}
	})
}
