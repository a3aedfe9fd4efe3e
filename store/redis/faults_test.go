package redis_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/redis"
	"github.com/rowmill/rowmill/store/storetest"
)

// hasty allows one attempt.
var hasty = redis.Timeouts{Dial: 10 * time.Second, Answer: 10 * time.Second, Retry: time.Nanosecond}

// claimed creates a job and makes session its owner.
func claimed(t testing.TB, s *redis.Store, id, session string, rows ...string) store.Fence {
	t.Helper()
	if _, _, err := s.Create(t.Context(), storetest.NewRecord(id, "a", append(rows, "row")...), nil); err != nil {
		t.Fatal(err)
	}
	rec := must.Get(s.Claim(t.Context(), id, session, store.Claim{}))(t)
	return store.Fence{JobID: id, Session: session, Epoch: rec.Epoch}
}

func newSession(t testing.TB, s *redis.Store) string {
	t.Helper()
	session := must.Get(s.OpenSession(t.Context(), "n", time.Hour))(t)
	return session
}

// of returns the totals of n rows.
func of(n int64) store.RowTotals {
	return store.RowTotals{Rows: n, InputTokens: 10 * n, OutputTokens: 3 * n}
}

// always is later than every acknowledgement.
var always = time.Now().AddDate(1, 0, 0)

// A writer commits parts to its own job, one after the other.
type writer struct {
	store *redis.Store
	fence store.Fence
	rows  int64    // in acknowledged parts
	acked []string // keys of the acknowledged parts
	times []time.Time
	doubt *store.Part
}

// commit repeats the part in doubt, or writes the next part.
func (w *writer) commit(ctx context.Context) error {
	p := store.Part{Key: fmt.Sprintf("%s/part-%d", w.fence.JobID, len(w.acked)), Shard: len(w.acked) % 3, Rows: 7, Totals: of(7)}
	if w.doubt != nil {
		p = *w.doubt
	}
	if err := w.store.CommitParts(ctx, w.fence, []store.Part{p}); err != nil {
		w.doubt = &p
		return err
	}
	w.doubt, w.rows, w.acked, w.times = nil, w.rows+p.Rows, append(w.acked, p.Key), append(w.times, time.Now())
	return nil
}

// holds checks that a writer's job has all parts that were acknowledged before safe,
// and no unknown part except the one in doubt. The last parts may be missing.
func (w *writer) holds(t *testing.T, s *redis.Store, safe time.Time) {
	t.Helper()
	parts, err := s.ListParts(t.Context(), w.fence.JobID)
	if err != nil {
		if len(w.times) > 0 && w.times[0].Before(safe) || !errors.Is(err, rowmill.ErrNotFound) {
			t.Fatal(err)
		}
		return
	}
	have := map[string]bool{}
	for _, p := range parts {
		have[p.Key] = true
	}
	missing := 0
	for i, key := range w.acked {
		switch {
		case have[key] && missing > 0:
			t.Errorf("job %s: part %d is there and an earlier one is not", w.fence.JobID, i)
		case !have[key]:
			missing++
			if w.times[i].Before(safe) {
				t.Errorf("job %s: part %d of %d, acknowledged at %v, is lost", w.fence.JobID, i, len(w.acked), w.times[i])
			}
		}
		delete(have, key)
	}
	if w.doubt != nil {
		delete(have, w.doubt.Key)
	}
	if len(have) > 0 {
		t.Errorf("job %s has parts %v that were never written", w.fence.JobID, have)
	}
}

// crowd starts writers and returns them after they have failed and stopped. then must
// make them fail; it runs after enough commits were acknowledged.
func crowd(t *testing.T, s *redis.Store, round string, enough func(commits int) bool, then func()) []*writer {
	t.Helper()
	session := newSession(t, s)
	writers := make([]*writer, 8)
	acknowledged := make(chan struct{})
	var all sync.WaitGroup
	for i := range writers {
		w := &writer{store: s, fence: claimed(t, s, fmt.Sprintf("job-%s-%d", round, i), session)}
		writers[i] = w
		all.Go(func() {
			for {
				if err := w.commit(t.Context()); err != nil {
					return
				}
				acknowledged <- struct{}{}
			}
		})
	}
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		<-done
		all.Wait()
		close(stopped)
	}()
	started := false
	for n := 0; ; n++ {
		if !started && enough(n) {
			started = true
			go func() {
				then()
				close(done)
			}()
		}
		select {
		case <-acknowledged:
		case <-stopped:
			return writers
		}
	}
}

func TestKillLosesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redis.Config{URL: server.URL()})
	for round := range 4 {
		once := open(t, redis.Config{URL: server.URL(), Timeouts: hasty})
		writers := crowd(t, once, fmt.Sprint("round", round), func(commits int) bool { return commits >= 100+37*round }, func() {
			if err := server.Kill(); err != nil {
				t.Errorf("kill: %v", err)
			}
		})
		must.Succeed(t, server.Restart(t.Context()))
		for _, w := range writers {
			w.holds(t, s, always)
			w.store = s
			if err := w.commit(t.Context()); err != nil { // the part in doubt, under the same session
				t.Fatalf("the repeat of a commit in doubt: %v", err)
			}
			w.holds(t, s, always)
		}
		storetest.CheckConsistency(t, s.Backend(), s)
	}
}
