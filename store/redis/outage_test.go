package redis_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/redis"
	"github.com/rowmill/rowmill/store/storetest"
)

func command(t testing.TB, s *redistest.Server, args ...string) string {
	t.Helper()
	answer, err := s.Command(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return answer
}

// says checks that an error contains the words.
func says(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want one that says %q", what, words)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v; want it to say %q", what, err, word)
		}
	}
}

// writes makes every kind of write once.
func writes(t *testing.T, s *redis.Store, f store.Fence) map[string]error {
	t.Helper()
	ctx := t.Context()
	nothing := func(*store.Record) error { return nil }
	_, _, create := s.Create(ctx, storetest.NewRecord("job-new", "a", "row"), &store.Idempotency{Key: "k", BodyHash: "h", TTL: time.Hour})
	_, claim := s.Claim(ctx, "job-waiting", f.Session, store.Claim{})
	_, update := s.Update(ctx, f, nothing)
	_, finish := s.Finish(ctx, f, func(r *store.Record) error { return r.Job.Become(rowmill.StatusFailed, time.Now()) })
	_, cancel := s.Cancel(ctx, f.JobID, time.Now(), nil)
	_, reserve := s.Reserve(ctx, f, 2, nil)
	_, session := s.OpenSession(ctx, "n", time.Hour)
	_, value := s.PutValue(ctx, "v", []byte(`1`), 0)
	return map[string]error{
		"Create": create, "Claim": claim, "Update": update, "Finish": finish, "Cancel": cancel, "Reserve": reserve,
		"OpenSession": session, "PutValue": value,
		"PutKey":       s.PutKey(ctx, store.APIKey{ID: "k"}),
		"AppendAudit":  s.AppendAudit(ctx, store.AuditEntry{ID: "e", At: time.Now(), Account: "a", Action: "x", Details: []byte(`{}`)}),
		"Release":      s.Release(ctx, f),
		"CommitParts":  s.CommitParts(ctx, f, []store.Part{{Key: "late", Rows: 1, Totals: of(1)}}),
		"ReplaceParts": s.ReplaceParts(ctx, f, store.Part{Key: "whole", Rows: 2, Totals: of(2), Complete: true}),
		"Ping":         s.Ping(ctx),
	}
}

// prepared stores an owned job with a part, and a waiting job.
func prepared(t *testing.T, s *redis.Store) store.Fence {
	t.Helper()
	if _, _, err := s.Create(t.Context(), storetest.NewRecord("job-waiting", "a", "row"), nil); err != nil {
		t.Fatal(err)
	}
	f := claimed(t, s, "job", newSession(t, s))
	must.Succeed(t, s.CommitParts(t.Context(), f, []store.Part{{Key: "p", Rows: 2, Totals: of(2)}}))
	must.Get(s.Reserve(t.Context(), f, 1, nil))(t)
	return f
}

// refusesWrites checks that writes fail without ErrOutcomeUnknown, and that none of
// them has an effect.
func refusesWrites(t *testing.T, server *redistest.Server, s *redis.Store, f store.Fence, words ...string) {
	t.Helper()
	before, err := s.Get(t.Context(), f.JobID)
	must.Succeed(t, err)
	keys := command(t, server, "DBSIZE")
	for name, err := range writes(t, s, f) {
		says(t, name, err, words...)
		if errors.Is(err, store.ErrOutcomeUnknown) || !errors.Is(err, rowmill.ErrUnavailable) {
			t.Errorf("%s: %v; but the server has refused it for now", name, err)
		}
	}
	after, err := s.Get(t.Context(), f.JobID)
	if err != nil || after.Version != before.Version {
		t.Errorf("the job has version %d after %d, %v", after.Version, before.Version, err)
	}
	if got := command(t, server, "DBSIZE"); got != keys {
		t.Errorf("the server has %s keys after %s", got, keys)
	}
	storetest.CheckConsistency(t, s.Backend(), s)
}

func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redis.Config{URL: server.URL()})
	f := prepared(t, s)
	command(t, server, "CONFIG", "SET", "maxmemory", "1")
	refusesWrites(t, server, s, f, "maxmemory", "raise maxmemory")
	command(t, server, "CONFIG", "SET", "maxmemory", "0")

	// When memory runs out in the middle, no job is stored in part.
	used, _, _ := strings.Cut(command(t, server, "INFO", "memory")[len("# Memory\r\nused_memory:"):], "\r")
	var bytes int
	must.Get(fmt.Sscan(used, &bytes))(t)
	command(t, server, "CONFIG", "SET", "maxmemory", fmt.Sprint(bytes+300_000))
	row := strings.Repeat("x", 5000)
	made := 0
	for ; made < 1000; made++ {
		id := fmt.Sprint("job-", made)
		if _, _, err := s.Create(t.Context(), storetest.NewRecord(id, "b", row), nil); err != nil {
			says(t, "create", err, "maxmemory")
			break
		}
	}
	if made == 0 || made == 1000 {
		t.Fatalf("%d jobs fit into 300 KB", made)
	}
	storetest.CheckConsistency(t, s.Backend(), s)
	command(t, server, "CONFIG", "SET", "maxmemory", "0")
	for name, err := range writes(t, s, f) {
		if err != nil && !errors.Is(err, rowmill.ErrTerminal) { // after the job is finished
			t.Errorf("%s with memory: %v", name, err)
		}
	}
	storetest.CheckConsistency(t, s.Backend(), s)
}

func TestReadOnlyReplica(t *testing.T) {
	t.Parallel()
	server, primary := redistest.Start(t), redistest.Start(t)
	s := open(t, redis.Config{URL: server.URL(), Timeouts: hasty})
	f := prepared(t, s)
	open(t, redis.Config{URL: primary.URL()})
	if err := primary.Stop(); err != nil { // so that nothing is replicated
		t.Fatal(err)
	}
	command(t, server, "REPLICAOF", "127.0.0.1", fmt.Sprint(primary.Port()))
	refusesWrites(t, server, s, f, "read-only replica", "let the URL name the primary")
	if _, err := redis.Open(t.Context(), redis.Config{URL: server.URL()}); err == nil {
		t.Error("a replica is opened")
	} else {
		says(t, "open a replica", err, "role", "primary")
	}
	command(t, server, "REPLICAOF", "NO", "ONE")
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("ping, once it is the primary: %v", err)
	}
}

func TestTooFewReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redis.Config{URL: server.URL(), Timeouts: hasty})
	f := prepared(t, s)
	command(t, server, "CONFIG", "SET", "min-replicas-to-write", "1")
	refusesWrites(t, server, s, f, "too few replicas", "min-replicas-to-write")
}

func TestNoRoomForConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	command(t, server, "CONFIG", "SET", "maxclients", "1")
	hold := open(t, redis.Config{URL: server.URL(), PoolSize: 1})
	_, err := redis.Open(t.Context(), redis.Config{URL: server.URL(), Timeouts: hasty})
	says(t, "open", err, "maxclients")
	if err := hold.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSlowServer pauses the server for less time than calls wait.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redis.Config{URL: server.URL(), Timeouts: redis.Timeouts{Answer: 100 * time.Millisecond, Retry: time.Minute}})
	f := prepared(t, s)
	command(t, server, "CLIENT", "PAUSE", "400", "ALL")
	rec, err := s.Update(t.Context(), f, func(r *store.Record) error { r.Shards++; return nil })
	if err != nil || rec.Shards != 1 {
		t.Errorf("update of a slow server: %d shards, %v", rec.Shards, err)
	}
	command(t, server, "CLIENT", "PAUSE", "400", "ALL")
	if err := s.CommitParts(t.Context(), f, []store.Part{{Key: "slow", Rows: 3, Totals: of(3)}}); err != nil {
		t.Errorf("commit to a slow server: %v", err)
	}
	if got, err := s.Get(t.Context(), "job"); err != nil || got.Version != rec.Version+1 || got.Job.RowsDone != 5 {
		t.Errorf("the job has version %d and %d rows, %v", got.Version, got.Job.RowsDone, err)
	}
	storetest.CheckConsistency(t, s.Backend(), s)
}

func TestServerRestarts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redis.Config{URL: server.URL(), Timeouts: redis.Timeouts{Retry: time.Minute}})
	once := open(t, redis.Config{URL: server.URL(), Timeouts: hasty})
	f := prepared(t, s)
	must.Succeed(t, server.Stop())
	// The first calls use broken connections.
	retryUntil(t, func() bool {
		_, err := once.Get(t.Context(), "job")
		if !errors.Is(err, rowmill.ErrUnavailable) {
			t.Fatalf("get while the server is gone: %v", err)
		}
		return strings.Contains(fmt.Sprint(err), "cannot be reached: check that it runs")
	})
	waited := make(chan error, 1)
	go func() {
		waited <- s.CommitParts(t.Context(), f, []store.Part{{Key: "q", Rows: 1, Totals: of(1)}})
	}()
	must.Succeed(t, server.Restart(t.Context()))
	if err := <-waited; err != nil {
		t.Errorf("a commit that waits for the server: %v", err)
	}
	command(t, server, "SCRIPT", "FLUSH")
	if err := s.CommitParts(t.Context(), f, []store.Part{{Key: "r", Rows: 1, Totals: of(1)}}); err != nil {
		t.Errorf("a commit after the server forgot its scripts: %v", err)
	}
	storetest.CheckConsistency(t, s.Backend(), s)
}

// retryUntil repeats done until it returns true.
func retryUntil(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); {
		if time.Now().After(end) {
			t.Fatal("it does not come to pass")
		}
	}
}

// TestFailover kills the primary. The store must continue on the replica that a
// Sentinel promotes.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replica := redistest.Start(t, fmt.Sprintf("replicaof 127.0.0.1 %d", primary.Port()), "repl-diskless-sync-delay 0")
	waitFor(t, replica, "replication", "master_link_status:up")
	sentinel := redistest.StartSentinel(t, "main", primary, 500*time.Millisecond)
	waitFor(t, sentinel, "sentinel", "slaves=1")
	config := redis.Config{
		URL:      "redis+sentinel://" + sentinel.Addr() + "/main/0",
		Timeouts: redis.Timeouts{Answer: time.Second, Retry: time.Minute},
	}
	_, err := redis.Open(t.Context(), config)
	says(t, "open without a bound for lost writes", err, "min-replicas-to-write 1", "store.allow_lost_writes")
	config.AllowLostWrites = true
	s := open(t, config)
	if err := s.ConfirmPrimary(t.Context()); err != nil {
		t.Errorf("confirm before the failover: %v", err)
	}
	warned, err := s.ListDurabilityRisks(t.Context())
	if err != nil || len(warned) != 1 || !strings.Contains(warned[0], "a failover loses") {
		t.Errorf("durability: %q, %v", warned, err)
	}
	w := &writer{store: s, fence: claimed(t, s, "job", newSession(t, s))}
	for range 50 {
		must.Succeed(t, w.commit(t.Context()))
	}
	// Wait until the replica has all writes; writes that it lacks would be lost.
	retryUntil(t, func() bool {
		_, acked, found := strings.Cut(command(t, primary, "INFO", "replication"), ",offset=")
		acked, _, _ = strings.Cut(acked, ",")
		return found && strings.Contains(command(t, primary, "INFO", "replication"), "master_repl_offset:"+acked+"\r")
	})
	must.Succeed(t, primary.Kill())
	start := time.Now()
	for range 50 {
		must.Succeed(t, w.commit(t.Context()))
	}
	t.Logf("the first commits after the kill took %v", time.Since(start).Round(time.Millisecond))
	w.holds(t, s, always)
	storetest.CheckConsistency(t, s.Backend(), s)
	if err := errors.Join(s.Ping(t.Context()), s.ConfirmPrimary(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestEmptied takes all records from under a store. What it acknowledged afterwards would belong to
// nothing that a restart knows.
func TestEmptied(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redis.Config{URL: server.URL(), Timeouts: hasty})
	command(t, server, "FLUSHALL")
	_, err := s.PutValue(t.Context(), "name", []byte("1"), 0)
	says(t, "a write", err, "all records are gone", "restart the nodes")
	if err := s.Ping(t.Context()); !errors.Is(err, rowmill.ErrUnavailable) {
		t.Errorf("ping: %v, want ErrUnavailable", err)
	}
	open(t, redis.Config{URL: server.URL(), Timeouts: hasty})
	if _, err := s.PutValue(t.Context(), "name", []byte("1"), 0); err != nil {
		t.Errorf("after a restart of a node: %v", err)
	}
}

// TestFailedAt stops and starts the server.
func TestFailedAt(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redis.Config{URL: server.URL(), Timeouts: hasty})
	if at := s.FailedAt(); at.Unix() != 0 {
		t.Errorf("failed at %v before a failure", at)
	}
	must.Succeed(t, server.Kill())
	before := time.Now()
	if _, err := s.Time(t.Context()); err == nil {
		t.Error("a stopped server answers")
	}
	if at := s.FailedAt(); at.Before(before) {
		t.Errorf("failed at %v, want after %v", at, before)
	}
}

// TestConfirm lets Sentinels disagree with a client that still writes to another server.
func TestConfirm(t *testing.T) {
	t.Parallel()
	primary, other := redistest.Start(t), redistest.Start(t)
	sentinel := redistest.StartSentinel(t, "main", primary, time.Minute)
	s := open(t, redis.Config{URL: "redis+sentinel://" + sentinel.Addr() + "/main/0", Timeouts: hasty, AllowLostWrites: true})
	confirm := func(words ...string) {
		t.Helper()
		err := s.ConfirmPrimary(t.Context())
		if len(words) == 0 && err != nil {
			t.Errorf("confirm: %v", err)
		} else if len(words) > 0 {
			says(t, "confirm", err, words...)
			if !errors.Is(err, rowmill.ErrUnavailable) {
				t.Errorf("confirm: %v, want ErrUnavailable", err)
			}
		}
	}
	confirm()
	command(t, sentinel, "SENTINEL", "SET", "main", "quorum", "2")
	confirm(sentinel.Addr(), "NOQUORUM")
	command(t, sentinel, "SENTINEL", "SET", "main", "quorum", "1")
	confirm()
	command(t, sentinel, "SENTINEL", "REMOVE", "main")
	command(t, sentinel, "SENTINEL", "MONITOR", "main", "127.0.0.1", strconv.Itoa(other.Port()), "1")
	confirm(other.Addr(), "writes to another server")
}

// waitFor waits until a section of INFO contains a word.
func waitFor(t *testing.T, s *redistest.Server, section, word string) {
	t.Helper()
	retryUntil(t, func() bool { return strings.Contains(command(t, s, "INFO", section), word) })
}
