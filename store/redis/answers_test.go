package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
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

// A gap is a proxy that can drop answers to writes: the server has executed the
// request, and the connection breaks.
type gap struct {
	net.Listener
	server string
	lose   atomic.Int32 // number of answers to drop
	last   atomic.Bool  // the proxy accepts no connection after a loss
	all    sync.WaitGroup
}

// isWrite matches a script call with a token, and commands that change a session.
var isWrite = regexp.MustCompile(`\r\nrowmill:\r\n\$36\r\n|^\*\d+\r\n\$3\r\n(set|del)\r\n`)

func newGap(t *testing.T, server *redistest.Server) *gap {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	g := &gap{Listener: l, server: server.Addr()}
	g.all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			g.all.Go(func() { g.serve(client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		g.all.Wait() // ends with the store's connections, which were closed before
	})
	return g
}

func (g *gap) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", g.server)
	if err != nil {
		return
	}
	var write atomic.Bool // the next answer belongs to a write
	g.all.Go(func() {
		defer server.Close()
		for question := make([]byte, 1<<16); ; {
			n, err := client.Read(question) // until either side closes
			if isWrite.Match(question[:n]) {
				write.Store(true)
			}
			if err == nil {
				_, err = server.Write(question[:n])
			}
			if err != nil {
				return
			}
		}
	})
	answer := make([]byte, 1<<16)
	for {
		n, err := server.Read(answer)
		if err != nil || write.Swap(false) && g.loses() {
			server.Close()
			return
		}
		if _, err := client.Write(answer[:n]); err != nil {
			return
		}
	}
}

// loses reports whether to drop the next answer to a write.
func (g *gap) loses() bool {
	if g.lose.Load() <= 0 {
		return false
	}
	if g.last.Load() {
		g.Close()
	}
	return g.lose.Add(-1) >= 0
}

// TestLostAnswers drops the answer to each kind of write once. The call must try again,
// and its effect must exist once.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := newGap(t, server)
	s := open(t, redis.Config{URL: "redis://" + g.Addr().String()})
	for round, lose := range []int32{0, 1, 1, 2} { // the first round loads all scripts
		for _, end := range []string{"Finish", "Cancel"} {
			c := &storetest.Caller{Store: s, Fence: store.Fence{JobID: fmt.Sprint(end, round)}, Ctx: t.Context()}
			c.RunAll(t, end, func(o storetest.Operation) error {
				if o.Kind != storetest.Reads {
					g.lose.Store(lose)
				}
				err := o.Call(c)
				if left := g.lose.Load(); left > 0 {
					t.Fatalf("%s: %d answers were not lost", o.Method, left)
				}
				return err
			})
			if entries, _, err := s.ListAudit(t.Context(), c.JobID, 10, ""); err != nil || len(entries) != 1 {
				t.Errorf("the audit record has %+v, %v", entries, err)
			}
		}
	}
	want := store.RowTotals{Rows: 8 * 14, InputTokens: 8 * 14 * 3, OutputTokens: 8 * 14 * 5} // each job runs four of its ten rows twice
	if sum, _ := storetest.SumUsage(t, s, "a", time.Now().AddDate(0, 0, -2), time.Now().AddDate(0, 0, 2)); sum != want {
		t.Errorf("usage %+v, want %+v", sum, want)
	}
}

// TestUnknownOutcomeIsRemembered drops an answer and then the connection to the server: the last
// attempt cannot have taken effect, but the first attempt has.
func TestUnknownOutcomeIsRemembered(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := newGap(t, server)
	s := open(t, redis.Config{URL: "redis://" + g.Addr().String(), Timeouts: redis.Timeouts{Retry: time.Second}})
	f := claimed(t, s, "job", newSession(t, s))
	if _, err := s.Update(t.Context(), f, func(*store.Record) error { return nil }); err != nil { // loads the script
		t.Fatal(err)
	}
	g.last.Store(true)
	_, err := s.Update(t.Context(), f, func(r *store.Record) error {
		g.lose.Store(1)
		r.Shards = 7
		return nil
	})
	says(t, "update", err, "cannot be reached")
	if !errors.Is(err, store.ErrOutcomeUnknown) {
		t.Errorf("update: %v, want ErrOutcomeUnknown", err)
	}
	if rec, err := open(t, redis.Config{URL: server.URL()}).Get(t.Context(), "job"); err != nil || rec.Shards != 7 {
		t.Errorf("the update without an answer has left %d shards, %v", rec.Shards, err)
	}
}

// TestUnknownOutcome checks that only a write that was sent and not answered is
// ErrOutcomeUnknown.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redis.Config{URL: server.URL(), Timeouts: redis.Timeouts{Answer: 100 * time.Millisecond, Retry: 150 * time.Millisecond}})
	f := claimed(t, s, "job", newSession(t, s))
	part := []store.Part{{Key: "p", Rows: 1, Totals: of(1)}}
	if err := s.CommitParts(t.Context(), f, nil); err != nil { // loads the script
		t.Fatal(err)
	}
	must.Succeed(t, server.Pause())
	if err := s.CommitParts(t.Context(), f, part); !errors.Is(err, store.ErrOutcomeUnknown) || !errors.Is(err, rowmill.ErrUnavailable) {
		t.Errorf("a commit to a server that hangs: %v, want ErrOutcomeUnknown", err)
	}
	if _, err := s.Get(t.Context(), "job"); err == nil || errors.Is(err, store.ErrOutcomeUnknown) {
		t.Errorf("a read from a server that hangs: %v", err)
	}
	hurried, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // shorter than Answer
	defer cancel()
	if err := s.Ping(hurried); !errors.Is(err, rowmill.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ping of a server that hangs: %v", err)
	}
	must.Succeed(t, server.Resume())
	// The write takes effect late, and its repeat then finds it.
	retry(t, func() error { return s.CommitParts(t.Context(), f, part) })
	if parts, err := s.ListParts(t.Context(), "job"); err != nil || len(parts) != 1 {
		t.Errorf("parts %v, %v", parts, err)
	}
	storetest.CheckConsistency(t, s.Backend(), s)

	must.Succeed(t, server.Stop())
	err := s.CommitParts(t.Context(), f, part) // on a broken connection, so the outcome is unknown
	for range 40 {
		if !errors.Is(err, store.ErrOutcomeUnknown) {
			break
		}
		err = s.CommitParts(t.Context(), f, part)
	}
	if err == nil || errors.Is(err, store.ErrOutcomeUnknown) {
		t.Errorf("a commit to a server that is gone: %v; it was never sent", err)
	}
}

// retry repeats a call until it succeeds, like the callers of the store.
func retry(t *testing.T, call func() error) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for {
		err := call()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it still fails: %v", err)
		}
	}
}
