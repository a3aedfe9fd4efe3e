package redis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/redis"
	"github.com/rowmill/rowmill/store/storetest"
)

// hasty does not try again.
var hasty = redis.Timeouts{Dial: 10 * time.Second, Answer: 10 * time.Second, Retry: time.Nanosecond}

// claimed creates a job and makes session its owner.
func claimed(t testing.TB, s *redis.Store, id, session string, rows ...string) store.Fence {
	t.Helper()
	if _, _, err := s.Create(t.Context(), storetest.Record(id, "a", append(rows, "row")...), nil); err != nil {
		t.Fatal(err)
	}
	rec, err := s.Claim(t.Context(), id, session, store.Adopter{})
	if err != nil {
		t.Fatal(err)
	}
	return store.Fence{JobID: id, Session: session, Epoch: rec.Epoch}
}

func newSession(t testing.TB, s *redis.Store) string {
	t.Helper()
	session, err := s.OpenSession(t.Context(), "n", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// of are the totals of n rows.
func of(n int64) store.Totals { return store.Totals{Rows: n, InputTokens: 10 * n, OutputTokens: 3 * n} }

// always is later than every acknowledgement.
var always = time.Now().AddDate(1, 0, 0)

// A writer commits one part after the other to a job of its own.
type writer struct {
	store *redis.Store
	fence store.Fence
	rows  int64    // in acknowledged parts
	acked []string // their keys
	times []time.Time
	doubt *store.Part
}

// commit writes the part in doubt again, or else the next one.
func (w *writer) commit(ctx context.Context) error {
	p := store.Part{Key: fmt.Sprintf("%s/part-%d", w.fence.JobID, len(w.acked)), Shard: len(w.acked) % 3, Rows: 7, Totals: of(7)}
	if w.doubt != nil {
		p = *w.doubt
	}
	if err := w.store.CommitParts(ctx, w.fence, []store.Part{p}, of(w.rows+p.Rows)); err != nil {
		w.doubt = &p
		return err
	}
	w.doubt, w.rows, w.acked, w.times = nil, w.rows+p.Rows, append(w.acked, p.Key), append(w.times, time.Now())
	return nil
}

// holds checks that a writer's job has the parts acknowledged to it before
// safe and none beyond the one in doubt. A tail of the later ones may be
// missing.
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
		t.Errorf("job %s: it has the parts %v, which nobody wrote", w.fence.JobID, have)
	}
}

// consistent checks what the server holds against itself, behind the store's
// back: indexes, counters and ledger must follow from jobs and parts.
func consistent(t *testing.T, server *redistest.Server, s *redis.Store, prefix string) {
	t.Helper()
	lines := func(args ...string) []string {
		t.Helper()
		text, err := server.Command(args...)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		if text == "" {
			return nil
		}
		return strings.Split(text, "\n")
	}
	number := func(text string) int64 {
		t.Helper()
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	used := map[string]store.Totals{} // by account
	owned := lines("HKEYS", prefix+"owned")
	open := 0
	for _, key := range lines("KEYS", prefix+"job:*") {
		id := strings.TrimPrefix(key, prefix+"job:")
		job := lines("HMGET", key, "status", "session", "account", "order", "rows", "input", "version")
		status, session, account, order := rowmill.Status(job[0]), job[1], job[2], job[3]
		listed := lines("ZSCORE", prefix+"jobs:"+account, order) != nil
		waits := lines("ZSCORE", prefix+"waiting:"+account, order) != nil
		is := slices.Contains(owned, id)
		if !listed || waits != (!status.Terminal() && session == "") || is != (!status.Terminal() && session != "") {
			t.Errorf("job %s, %s, session %q: listed %v, waits %v, owned %v", id, status, session, listed, waits, is)
		}
		if is {
			open++
		}
		parts, err := s.ListParts(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		var sum store.Totals
		var keys []string
		for _, p := range parts {
			sum, keys = sum.Plus(p.Totals), append(keys, p.Key)
		}
		shards := lines("ZRANGE", prefix+"shards:"+id, "0", "-1")
		slices.Sort(keys)
		slices.Sort(shards)
		if !slices.Equal(keys, shards) {
			t.Errorf("job %s: parts %v, in shards %v", id, keys, shards)
		}
		if len(parts) > 0 && (number(job[4]) != sum.Rows || number(job[5]) != sum.InputTokens) {
			t.Errorf("job %s: the record has %s rows and %s tokens, the parts %d and %d", id, job[4], job[5], sum.Rows, sum.InputTokens)
		}
		used[account] = used[account].Plus(sum)
	}
	if len(owned) != open {
		t.Errorf("owned are %v, of which %d are open jobs", owned, open)
	}
	for account, want := range used {
		for _, id := range lines("SMEMBERS", prefix+"reserved:"+account) {
			if job := lines("HMGET", prefix+"job:"+id, "status", "reserved"); rowmill.Status(job[0]).Terminal() || job[1] == "0" {
				t.Errorf("job %s, %s, is listed with %s set aside", id, job[0], job[1])
			}
		}
		if got, _ := storetest.SumOf(t, s, account, time.Time{}, time.Now().AddDate(1, 0, 0)); got != want {
			t.Errorf("account %s: the ledger has %+v, the parts %+v", account, got, want)
		}
	}
	if waiters := lines("SMEMBERS", prefix+"waiters"); len(waiters) > 0 {
		for _, account := range waiters {
			if lines("ZRANGE", prefix+"waiting:"+account, "0", "0") == nil {
				t.Errorf("account %s waits for nothing", account)
			}
		}
	}
}

// crowd starts writers and returns them, stopped, once they have failed. That
// is for then to bring about, which runs once enough commits were acknowledged.
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
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, w := range writers {
			w.holds(t, s, always)
			w.store = s
			if err := w.commit(t.Context()); err != nil { // the one in doubt, under the same session
				t.Fatalf("the repeat of a commit in doubt: %v", err)
			}
			w.holds(t, s, always)
		}
		consistent(t, server, s, "rowmill:")
	}
}
