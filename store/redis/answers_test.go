package redis_test

import (
	"context"
	"encoding/json"
	"errors"
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
	ctx := t.Context()
	get := func(id string) store.Record {
		t.Helper()
		rec := must.Get(s.Get(ctx, id))(t)
		return rec
	}
	check := func(ok bool, what string, got any) {
		t.Helper()
		if !ok {
			t.Errorf("%s: %+v", what, got)
		}
	}
	session := newSession(t, s)
	limit := 100.0
	for round, lose := range []int32{0, 1, 1, 2} { // the first round loads all scripts
		id := func(name string) string { return name + string(rune('0'+round)) }
		must := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s with %d answers lost: %v", what, lose, err)
			}
			if left := g.lose.Load(); left > 0 {
				t.Fatalf("%s: %d answers were not lost", what, left)
			}
		}
		arm := func() { g.lose.Store(lose) }
		losing := func(*store.Record) { arm() } // drops the answer to the write after this change

		arm()
		_, existed, err := s.Create(ctx, storetest.NewRecord(id("job"), "a", "row"), nil)
		must("create", err)
		check(!existed, "a created job existed", existed)
		arm()
		idem := store.Idempotency{Key: id("k"), BodyHash: "h", TTL: time.Hour}
		_, existed, err = s.Create(ctx, storetest.NewRecord(id("idem"), "b", "row"), &idem)
		must("create with a key", err)
		check(!existed, "a created job existed", existed)

		arm()
		rec, err := s.Claim(ctx, id("job"), session, store.Claim{})
		must("claim", err)
		check(rec.Epoch > 0 && rec.Version == 2 && rec.Session == session, "claimed", rec)
		f := store.Fence{JobID: id("job"), Session: session, Epoch: rec.Epoch}

		rec, err = s.Update(ctx, f, func(r *store.Record) error {
			losing(r)
			r.Shards++
			return errors.Join(r.Job.Become(rowmill.StatusStarting, time.Now()), r.Job.Become(rowmill.StatusRunning, time.Now()))
		})
		must("update", err)
		check(rec.Shards == 1 && rec.Version == 3 && get(id("job")).Shards == 1, "updated", rec)

		arm()
		must("commit", s.CommitParts(ctx, f, []store.Part{{Key: "p", Rows: 4, Totals: of(4)}}))
		rec = get(id("job"))
		check(rec.Version == 4 && rec.Job.RowsDone == 4, "committed", rec)

		arm()
		must("replace", s.ReplaceParts(ctx, f, store.Part{Key: "q", Rows: 4, Totals: of(4), Complete: true}))
		check(get(id("job")).Version == 5, "replaced", get(id("job")))

		arm()
		rec, err = s.Reserve(ctx, f, 1, &limit)
		must("reserve", err)
		check(rec.Version == 6 && rec.Reserved == rowmill.MoneyFromUSD(1), "reserved", rec)

		arm()
		must("release", s.Release(ctx, f))
		check(get(id("job")).Version == 7 && get(id("job")).Session == "", "released", get(id("job")))

		rec, err = s.Cancel(ctx, id("idem"), time.Now(), losing)
		must("cancel", err)
		check(rec.Job.Status == rowmill.StatusCancelled, "cancelled", rec)

		rec, err = s.Claim(ctx, id("job"), session, store.Claim{})
		must("claim again", err)
		f.Epoch = rec.Epoch
		rec, err = s.Finish(ctx, f, func(r *store.Record) error {
			losing(r)
			rows := int64(4)
			r.Job.NumRows = &rows
			return r.Job.Become(rowmill.StatusSucceeded, time.Now())
		})
		must("finish", err)
		check(rec.Job.Status == rowmill.StatusSucceeded && rec.Reserved == 0, "finished", rec)

		arm()
		rec, err = s.AddArtifact(ctx, id("job"), "v", store.Artifact{Key: "k"})
		must("add an artifact", err)
		check(rec.Artifacts["v"].Key == "k", "artifact", rec)

		arm()
		must("drop", s.DropParts(ctx, id("job")))
		arm()
		rec, err = s.RemoveData(ctx, id("job"), time.Now())
		must("remove data", err)
		check(rec.DataRemoved != nil, "data removed", rec)
		arm()
		must("data gone", s.MarkDataDeleted(ctx, id("job")))
		arm()
		must("show running", s.MarkShownRunning(ctx, id("job")))
		check(get(id("job")).ShownRunning, "shown", get(id("job")))
		arm()
		version, err := s.PutValue(ctx, id("v"), json.RawMessage(`1`), 0)
		must("put a value", err)
		check(version == 1, "version", version)
		arm()
		must("put a key", s.PutKey(ctx, store.APIKey{ID: id("k")}))
		arm()
		must("replace a key", s.ReplaceKey(ctx, store.APIKey{ID: id("k"), Hash: []byte{1}}, nil))
		arm()
		must("delete a key", s.DeleteKey(ctx, id("k")))
		arm()
		must("append to the audit record", s.AppendAudit(ctx, store.AuditEntry{
			ID: id("e"), At: time.Now(), Account: id("a"), Action: "key.create", Details: json.RawMessage(`{}`),
		}))
		entries, _, err := s.ListAudit(ctx, id("a"), 10, "")
		must("list the audit record", err)
		check(len(entries) == 1, "entries", entries)

		arm()
		other, err := s.OpenSession(ctx, "n", time.Hour)
		must("open a session", err)
		arm()
		must("renew", s.RenewSession(ctx, other))
		arm()
		must("close a session", s.CloseSession(ctx, other))
	}
	if sum, _ := storetest.SumUsage(t, s, "a", time.Now().AddDate(0, 0, -2), time.Now().AddDate(0, 0, 2)); sum != of(16) {
		t.Errorf("usage %+v, want that of four parts", sum)
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
