package actors_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/internal/must"
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
		failure(t, b.end(b.submit(rowmill.Spec{Inline: numbered(20), JobQuotas: rowmill.JobQuotas{RowQuota: 10}})), rowmill.CodeRowQuota)
		if left := balky.ends.Load(); left >= 0 {
			t.Errorf("%d refusals are left", left)
		}
	})
}

// Users see progress from the start: the rows of a new job are committed after one or two
// seconds, and later at least every 5 s.
func TestRowsAreCommittedSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Second) }) // the dead-letter throttle of the actor library ends by itself
		b := setup(t, &scripted{answer: slowly(200 * time.Millisecond)}, func(c *actors.Config) {
			c.Parts, c.Servers, c.DrainTimeout = actors.PartConfig{}, actors.ServerConfig{}, time.Second
		})
		time.Sleep(2 * time.Second)
		id := b.submit(rowmill.Spec{Inline: numbered(8000)})
		begun, changed, rows := time.Now(), time.Now(), int64(0)
		for {
			job := must.Get(b.store.Get(t.Context(), id))(t).Job
			if job.Status.IsTerminal() {
				break
			}
			now := time.Now()
			if job.RowsDone > rows {
				changed, rows = now, job.RowsDone
			}
			if limit := max(2500*time.Millisecond, now.Sub(begun)/10); now.Sub(changed) > min(limit, 7*time.Second) {
				t.Fatalf("%v after the submission, the job had %d committed rows for %v", now.Sub(begun), rows, now.Sub(changed))
			}
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(begun); took < 2*time.Minute {
			t.Errorf("the job ended after %v: the test says nothing about a long job", took)
		}
	})
}
