package kvtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store/kv"
)

func testFailureLeavesNothing(s *suite) {
	boom := errors.New("boom")
	for what, fail := range map[string]func() error{
		"error": func() error { return boom },
		"panic": func() error { panic(boom) },
	} {
		err := s.Update(s.Context(), func(t kv.Tx) error {
			t.Put(table, []byte("a"), nil)
			t.AddToCounters(other, []byte("n"), 1)
			return fail()
		})
		if what == "error" && !errors.Is(err, boom) || err == nil {
			s.Errorf("%s: update returns %v, want the error of the transaction", what, err)
		}
		if _, found := s.get("a"); found || len(s.scanKeys(kv.Range{Table: other})) > 0 {
			s.Errorf("%s: writes of the failed transaction are found, want none", what)
		}
	}
}

func testKeysAreBounded(s *suite) {
	longest := strings.Repeat("k", kv.MaxKey)
	s.put(longest, "v")
	s.wantValue(longest, "v")
	for _, key := range []string{"", longest + "k"} {
		err := s.Update(s.Context(), func(t kv.Tx) error {
			t.Put(table, []byte("a"), nil)
			t.Put(table, []byte(key), nil)
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), strconv.Itoa(len(key))+" bytes") {
			s.Errorf("put a key of %d bytes: %v, want an error with the number of bytes", len(key), err)
		}
	}
	if _, found := s.get("a"); found {
		s.Error("another write of a transaction with a bad key is found, want none")
	}
}

// runConcurrently calls do from 8 goroutines at the same time, rounds times in each
// goroutine.
func (s *suite) runConcurrently(rounds int, do func(worker, round int) error) {
	s.Helper()
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for round := range rounds {
				if err := do(worker, round); err != nil {
					s.Errorf("worker %d: %v", worker, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// testNoUpdateIsLost increments a number from several goroutines, each time by a read and
// a write. Every increment must count.
func testNoUpdateIsLost(s *suite) {
	s.runConcurrently(20, func(int, int) error {
		return s.Update(s.Context(), func(t kv.Tx) error {
			raw, err := t.Get(table, []byte("n"))
			if err != nil {
				return err
			}
			n, _ := strconv.Atoi(string(raw))
			t.Put(table, []byte("n"), []byte(strconv.Itoa(n+1)))
			return nil
		})
	})
	s.wantValue("n", "160")
}

// testOneCreatesAKey lets several goroutines create the same key. Exactly one must find
// it absent.
func testOneCreatesAKey(s *suite) {
	var made atomic.Int32
	s.runConcurrently(20, func(_, round int) error {
		first := false
		err := s.Update(s.Context(), func(t kv.Tx) error {
			key := fmt.Appendf(nil, "k%d", round)
			absent, err := t.IsAbsent(table, key)
			if first = err == nil && absent; first {
				t.Put(table, key, nil)
			}
			return err
		})
		if first && err == nil {
			made.Add(1)
		}
		return err
	})
	if n := made.Load(); n != 20 {
		s.Errorf("20 keys were created %d times, want once each", n)
	}
}

// testGuardKey adds entries up to a limit that a scan counts. The guard key, which all
// writers write, makes the scan exact.
func testGuardKey(s *suite) {
	const most = 10
	guard := []byte("guard")
	s.runConcurrently(5, func(worker, round int) error {
		return s.Update(s.Context(), func(t kv.Tx) error {
			if _, err := t.Get(other, guard); err != nil {
				return err
			}
			n := 0
			for _, err := range t.Scan(kv.Range{Table: table}) {
				if err != nil {
					return err
				}
				n++
			}
			if n < most {
				t.Put(other, guard, nil)
				t.Put(table, fmt.Appendf(nil, "%d-%d", worker, round), nil)
			}
			return nil
		})
	})
	if n := len(s.scanKeys(kv.Range{Table: table})); n != most {
		s.Errorf("%d entries, want %d", n, most)
	}
}

// testErrorsCountAtOneMoment moves amounts between two keys. A transaction fails if it does
// not see the constant sum. Such a transaction has read at two moments, so its error must
// not count.
func testErrorsCountAtOneMoment(s *suite) {
	s.put("a", "5", "b", "5")
	both := func(t kv.Tx) (a, b int, err error) {
		for key, n := range map[string]*int{"a": &a, "b": &b} {
			raw, err := t.Get(table, []byte(key))
			if err != nil {
				return 0, 0, err
			}
			*n, _ = strconv.Atoi(string(raw))
		}
		return a, b, nil
	}
	s.runConcurrently(20, func(worker, round int) error {
		return s.Update(s.Context(), func(t kv.Tx) error {
			a, b, err := both(t)
			switch {
			case err != nil:
				return err
			case a+b != 10:
				return fmt.Errorf("a is %d and b is %d, want a sum of 10", a, b)
			case worker%2 == 0:
				return nil // this transaction only reads
			}
			by := 1 - 2*(round%2)
			t.Put(table, []byte("a"), []byte(strconv.Itoa(a+by)))
			t.Put(table, []byte("b"), []byte(strconv.Itoa(b-by)))
			return nil
		})
	})
}

func testAdd(s *suite) {
	add := func(more ...int64) {
		s.Helper()
		s.update(func(t kv.Tx) error { t.AddToCounters(table, []byte("n"), more...); return nil })
	}
	want := func(want ...int64) {
		s.Helper()
		value, _ := s.get("n")
		if got, err := kv.DecodeCounters([]byte(value)); err != nil || !slices.Equal(got, want) {
			s.Errorf("the counters are %v, %v; want %v", got, err, want)
		}
	}
	add(1, 2)
	add(10, 1<<53+1)
	want(11, 1<<53+3)
	add(1, 1, 7) // a later version of the program has more counters
	add(1)       // an earlier version of the program has fewer counters
	want(13, 1<<53+4, 7)
	add(math.MaxInt64, math.MaxInt64-1<<53-3)
	want(math.MaxInt64, math.MaxInt64, 7)
	add(-1, 0, -9)
	want(math.MaxInt64-1, math.MaxInt64, -2)
}

func testAddsDoNotConflict(s *suite) {
	var runs atomic.Int32
	s.runConcurrently(20, func(int, int) error {
		return s.Update(s.Context(), func(t kv.Tx) error {
			runs.Add(1)
			t.AddToCounters(table, []byte("n"), 1, 2)
			return nil
		})
	})
	value, _ := s.get("n")
	if got, err := kv.DecodeCounters([]byte(value)); err != nil || !slices.Equal(got, []int64{160, 320}) {
		s.Errorf("the counters are %v, %v, want 160 and 320", got, err)
	}
	if n := runs.Load(); n != 160 {
		s.Errorf("160 transactions ran %d times, want once each", n)
	}
}

// alive reports whether a session is alive, as a transaction sees it.
func (s *suite) alive(session string) (alive bool) {
	s.Helper()
	must.Succeed(s, s.View(s.Context(), func(t kv.Tx) error {
		both, err := t.AreAlive("never", session)
		if err == nil {
			alive = both[1] && !both[0]
		}
		return err
	}))
	return alive
}

func testSessions(s *suite) {
	ctx, ttl := s.Context(), cmp.Or(s.TTL, time.Minute)
	open := func() string {
		s.Helper()
		session, err := s.OpenSession(ctx, "node", ttl)
		if err != nil || !s.alive(session) {
			s.Fatalf("open a session: %v, want no error and an open session", err)
		}
		return session
	}
	first, second := open(), open()
	if err := s.CloseSession(ctx, second); err != nil || s.alive(second) {
		s.Errorf("close a session: %v, want no error and no open session", err)
	}
	s.Advance(ttl * 2 / 3)
	if err := s.RenewSession(ctx, first); err != nil {
		s.Errorf("renew: %v", err)
	}
	s.Advance(ttl * 2 / 3)
	if !s.alive(first) {
		s.Error("a renewed session has expired, want it open")
	}
	s.Advance(ttl)
	if s.alive(first) || s.alive("") || s.alive("never") {
		s.Error("a session that has expired or never existed counts as open, want not")
	}
	if err := s.RenewSession(ctx, first); !errors.Is(err, rowmill.ErrLeaseLost) {
		s.Errorf("renew a session that has expired: %v, want ErrLeaseLost", err)
	}
	if n, err := s.CountLiveSessions(ctx); err != nil || n != 0 {
		s.Errorf("%d open sessions, %v, want 0", n, err)
	}
}

// testFenceHoldsAtCommit closes a session while transactions that require the session
// write. A transaction that starts after the close must fail.
func testFenceHoldsAtCommit(s *suite) {
	session := must.Get(s.OpenSession(s.Context(), "node", time.Hour))(s)
	errDead := errors.New("dead")
	var closed atomic.Bool
	s.runConcurrently(20, func(worker, round int) error {
		if worker == 0 && round == 10 {
			if err := s.CloseSession(s.Context(), session); err != nil {
				return err
			}
			closed.Store(true)
		}
		dead := closed.Load()
		err := s.Update(s.Context(), func(t kv.Tx) error {
			alive, err := t.AreAlive(session)
			if err == nil && !alive[0] {
				err = errDead
			}
			t.Put(table, fmt.Appendf(nil, "%d-%d", worker, round), nil)
			return err
		})
		switch {
		case err == nil && dead:
			return errors.New("a transaction was committed after its session had been closed")
		case errors.Is(err, errDead) && worker == 0 && round < 10:
			return errors.New("a transaction was refused before its session was closed")
		case errors.Is(err, errDead):
			return nil
		}
		return err
	})
}

func testContextAndClose(s *suite) {
	nothing := func(kv.Tx) error { return nil }
	for what, call := range map[string]func(ctx context.Context) error{
		"view":   func(ctx context.Context) error { return s.View(ctx, nothing) },
		"update": func(ctx context.Context) error { return s.Update(ctx, nothing) },
		"ping":   s.Ping,
	} {
		if err := call(s.Context()); err != nil {
			s.Errorf("%s: %v, want no error", what, err)
		}
		if err := call(endedContext()); !errors.Is(err, context.Canceled) {
			s.Errorf("%s with a context that has ended: %v, want context.Canceled", what, err)
		}
	}
	for range 2 {
		if err := s.Close(); err != nil {
			s.Errorf("close: %v", err)
		}
	}
	read := func(t kv.Tx) error { _, err := t.Get(table, []byte("a")); return err }
	if err := s.View(s.Context(), read); err == nil {
		s.Error("a view of a closed backend succeeds, want an error")
	}
	if err := s.Update(s.Context(), read); err == nil {
		s.Error("an update of a closed backend succeeds, want an error")
	}
}
