package redis_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/redis"
	"github.com/rowmill/rowmill/store/storetest"
)

// TestFenceHoldsAtTheWrite takes the job away between the read and the write of a
// change.
func TestFenceHoldsAtTheWrite(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "appendfsync everysec")
	s := open(t, redis.Config{URL: server.URL()})
	for name, take := range map[string]func(store.Fence) error{
		"the session ends": func(f store.Fence) error { return s.CloseSession(t.Context(), f.Session) },
		"a release":        func(f store.Fence) error { return s.Release(t.Context(), f) },
		"another owner": func(f store.Fence) error {
			err := s.CloseSession(t.Context(), f.Session)
			_, claim := s.Claim(t.Context(), f.JobID, newSession(t, s), store.Claim{})
			return errors.Join(err, claim)
		},
	} {
		f := claimed(t, s, "job "+name, newSession(t, s))
		taken := false
		_, err := s.Update(t.Context(), f, func(r *store.Record) error {
			r.Shards = 9
			if taken {
				return nil
			}
			taken = true
			return take(f)
		})
		if !errors.Is(err, rowmill.ErrLeaseLost) {
			t.Errorf("%s: %v, want ErrLeaseLost", name, err)
		}
		if rec, err := s.Get(t.Context(), f.JobID); err != nil || rec.Shards != 0 {
			t.Errorf("%s: the late write is there: %d shards, %v", name, rec.Shards, err)
		}
	}
	// A cancel between the two is detected, and the change runs again on the cancelled
	// job.
	f := claimed(t, s, "job cancelled", newSession(t, s))
	_, err := s.Update(t.Context(), f, func(r *store.Record) error {
		_, err := s.Cancel(t.Context(), f.JobID, time.Now(), nil)
		return err
	})
	if !errors.Is(err, rowmill.ErrTerminal) {
		t.Errorf("an update beside a cancel: %v, want ErrTerminal", err)
	}
	storetest.CheckConsistency(t, s.Backend(), s)
}

// TestSimultaneousReservations lets jobs of the same account reserve at the same time, from several
// stores, an amount that only one can have.
func TestSimultaneousReservations(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "appendfsync everysec")
	const callers = 8
	var stores []*redis.Store
	for range callers {
		stores = append(stores, open(t, redis.Config{URL: server.URL()}))
	}
	session := newSession(t, stores[0])
	for round := range 50 {
		limit := float64(round + 1)
		var granted atomic.Int32
		var all sync.WaitGroup
		begin := make(chan struct{})
		for i, s := range stores {
			f := claimed(t, s, fmt.Sprintf("job-%d-%d", round, i), session)
			all.Go(func() {
				<-begin
				_, err := s.Reserve(t.Context(), f, 1, &limit)
				var refused *store.CostLimitError
				switch {
				case err == nil:
					granted.Add(1)
				case !errors.As(err, &refused):
					t.Errorf("reserve: %v", err)
				}
			})
		}
		close(begin)
		all.Wait()
		if granted.Load() != 1 {
			t.Fatalf("round %d: %d jobs were granted an amount for one", round, granted.Load())
		}
	}
	storetest.CheckConsistency(t, stores[0].Backend(), stores[0])
}

// TestReservationsAreFewCalls checks that the number of calls grows with the number of
// reservations, not with its square: two calls for each, and one more when the money
// runs out meanwhile.
func TestReservationsAreFewCalls(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "appendfsync everysec")
	s := open(t, redis.Config{URL: server.URL()})
	session := newSession(t, s)
	const crowd = 200
	var fences []store.Fence
	for i := range crowd {
		fences = append(fences, claimed(t, s, fmt.Sprint("job-", i), session))
	}
	before := scripts(t, server)
	var all sync.WaitGroup
	for _, f := range fences {
		all.Go(func() {
			limit := float64(crowd)
			if _, err := s.Reserve(t.Context(), f, 1, &limit); err != nil {
				t.Errorf("reserve: %v", err)
			}
		})
	}
	all.Wait()
	if calls := scripts(t, server) - before; calls > 4*crowd {
		t.Errorf("%d reservations took %d calls of scripts", crowd, calls)
	}
	storetest.CheckConsistency(t, s.Backend(), s)
}

// scripts returns the number of scripts that a server has executed.
func scripts(t *testing.T, server *redistest.Server) (calls int) {
	t.Helper()
	text, err := server.Command("INFO", "commandstats")
	must.Succeed(t, err)
	for _, line := range strings.Split(text, "\n") {
		if rest, found := strings.CutPrefix(line, "cmdstat_evalsha:calls="); found {
			n, _, _ := strings.Cut(rest, ",")
			if calls, err = strconv.Atoi(n); err != nil {
				t.Fatal(err)
			}
		}
	}
	return calls
}
