package access

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/kv/mem"
	"github.com/rowmill/rowmill/store/records"
)

// testClock is a clock that a test sets.
type testClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *testClock) set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

func (c *testClock) pass(d time.Duration) { c.set(c.now().Add(d)) }

// countedLists counts the reads of the list of keys.
type countedLists struct {
	store.Store
	lists int
}

func (k *countedLists) ListKeys(ctx context.Context) ([]store.APIKey, error) {
	k.lists++
	return k.Store.ListKeys(ctx)
}

func openRecords(t *testing.T) *bolt.Store {
	t.Helper()
	records, err := bolt.Open(t.Context(), bolt.Config{Path: filepath.Join(t.TempDir(), "records.db")})
	must.Succeed(t, err)
	t.Cleanup(func() { records.Close() })
	return records
}

func TestKeyring_RevokingAndExpiryTakeEffectWithinSeconds(t *testing.T) {
	t.Parallel()
	records := openRecords(t)
	c := &testClock{at: time.Unix(1_700_000_000, 0)}
	ring := NewKeyring(records, nil, nil, 0, c.now)
	text, record := NewKey("acme", caller.RoleUser, "n", c.at)
	expires := c.at.Add(time.Hour)
	record.Expires = &expires
	must.Succeed(t, records.PutKey(t.Context(), record))
	works := func() bool {
		who, err := ring.findPrincipal(t.Context(), text)
		return err == nil && who.Account == "acme" && who.Role == caller.RoleUser && who.KeyID == record.ID
	}
	if !works() {
		t.Fatal("the key does not work")
	}
	c.set(expires.Add(-time.Nanosecond))
	if !works() {
		t.Error("the key expired early")
	}
	c.set(expires)
	if works() {
		t.Error("the key outlived its expiry")
	}
	c.set(expires.Add(-time.Minute))
	if !works() {
		t.Fatal("the key does not work any more")
	}
	must.Succeed(t, records.DeleteKey(t.Context(), record.ID))
	c.pass(keysFresh)
	if works() {
		t.Error("a revoked key works")
	}
}

// TestKeyring_NewKeyWorksAtOnce tests that a key works as soon as another node has created it,
// although this node has just read a list without the key.
func TestKeyring_NewKeyWorksAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kept := must.Get(records.Open(t.Context(), mem.New(time.Now), nil))(t)
		defer kept.Close()
		ring := NewKeyring(kept, nil, nil, 0, time.Now)
		if _, err := ring.findPrincipal(t.Context(), "rk_00_x"); !errors.Is(err, rowmill.ErrNotFound) {
			t.Fatalf("an unknown key gives %v", err)
		}
		time.Sleep(time.Millisecond)
		text, record := NewKey("acme", caller.RoleUser, "n", time.Now())
		must.Succeed(t, kept.PutKey(t.Context(), record))
		began := time.Now()
		if _, err := ring.findPrincipal(t.Context(), text); err != nil || time.Since(began) > readEvery {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestKeyring_UnknownKeysCauseFewReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kept := must.Get(records.Open(t.Context(), mem.New(time.Now), nil))(t)
		defer kept.Close()
		counted := &countedLists{Store: kept}
		ring := NewKeyring(counted, nil, nil, 0, time.Now)
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() { _, _ = ring.findPrincipal(t.Context(), "rk_00_x") })
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		if counted.lists != 11 {
			t.Errorf("listed %d times in a second, want 11", counted.lists)
		}
	})
}

func TestKeyring_UseIsRecordedOncePerMinute(t *testing.T) {
	t.Parallel()
	records := openRecords(t)
	c := &testClock{at: time.Unix(1_700_000_000, 0)}
	ring := NewKeyring(records, nil, nil, 0, c.now)
	versions := func() int64 {
		_, version, err := records.GetValue(t.Context(), lastUseValueName("k"))
		must.Succeed(t, err)
		return version
	}
	for range 3 {
		must.Succeed(t, ring.recordUse(t.Context(), "k"))
	}
	first := versions()
	c.pass(usedEvery)
	must.Succeed(t, ring.recordUse(t.Context(), "k"))
	if again := versions(); again != first+1 {
		t.Errorf("version %d after %d", again, first)
	}
	if err := ring.recordUse(t.Context(), ""); err != nil {
		t.Errorf("the configured key: %v", err)
	}
}

// gatedKeys lists the keys and then waits at a gate before it returns them.
type gatedKeys struct {
	store.Store
	listed, open chan struct{}
}

func (g *gatedKeys) ListKeys(ctx context.Context) ([]store.APIKey, error) {
	keys, err := g.Store.ListKeys(ctx)
	if g.listed != nil {
		g.listed <- struct{}{}
		<-g.open
	}
	return keys, err
}

func TestKeyring_IgnoresListReadBeforeRevocation(t *testing.T) {
	t.Parallel()
	records := openRecords(t)
	gated := &gatedKeys{Store: records, listed: make(chan struct{}), open: make(chan struct{})}
	ring := NewKeyring(gated, nil, nil, 0, time.Now)
	text, record := NewKey("acme", caller.RoleUser, "n", time.Now())
	must.Succeed(t, records.PutKey(t.Context(), record))
	found := make(chan error)
	go func() {
		_, err := ring.findPrincipal(t.Context(), text)
		found <- err
	}()
	<-gated.listed // a list that contains the key
	must.Succeed(t, records.DeleteKey(t.Context(), record.ID))
	ring.InvalidateKeys()
	gated.open <- struct{}{}
	select {
	case <-gated.listed: // the keyring reads the list again
		gated.open <- struct{}{}
		if err := <-found; !errors.Is(err, rowmill.ErrNotFound) {
			t.Errorf("a revoked key is found: %v", err)
		}
	case err := <-found:
		t.Errorf("a list from before the revocation is believed: %v", err)
	}
}

// slowKeys takes longer to list keys than a list stays fresh.
type slowKeys struct {
	store.Store
	clock *testClock
}

func (s slowKeys) ListKeys(ctx context.Context) ([]store.APIKey, error) {
	s.clock.pass(2 * keysFresh)
	return s.Store.ListKeys(ctx)
}

func TestKeyring_SlowStoreAcceptsValidKeys(t *testing.T) {
	t.Parallel()
	records := openRecords(t)
	c := &testClock{at: time.Unix(1_700_000_000, 0)}
	ring := NewKeyring(slowKeys{records, c}, nil, nil, 0, c.now)
	text, record := NewKey("acme", caller.RoleUser, "n", c.at)
	must.Succeed(t, records.PutKey(t.Context(), record))
	if _, err := ring.findPrincipal(t.Context(), text); err != nil {
		t.Error(err)
	}
	if _, err := ring.findPrincipal(t.Context(), "rk_00_x"); !errors.Is(err, rowmill.ErrNotFound) {
		t.Errorf("an unknown key: %v", err)
	}
}

func TestKeyring_LeavingClientDoesNotFailOthers(t *testing.T) {
	t.Parallel()
	records := openRecords(t)
	gated := &gatedKeys{Store: records, listed: make(chan struct{}), open: make(chan struct{})}
	ring := NewKeyring(gated, nil, nil, 0, time.Now)
	text, record := NewKey("acme", caller.RoleUser, "n", time.Now())
	must.Succeed(t, records.PutKey(t.Context(), record))
	leaving, leave := context.WithCancel(t.Context())
	left, stayed := make(chan error), make(chan error)
	go func() {
		_, err := ring.findPrincipal(leaving, text)
		left <- err
	}()
	<-gated.listed
	go func() {
		_, err := ring.findPrincipal(t.Context(), text)
		stayed <- err
	}()
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the client that left got %v", err)
	}
	close(gated.open)
	if err := <-stayed; err != nil {
		t.Errorf("the client that stayed got %v", err)
	}
}
