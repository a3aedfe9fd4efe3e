package dir

import (
	"context"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/blobtest"
	"github.com/rowmill/rowmill/internal/must"
)

// clock is a clock that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// values is a Values in memory.
type values struct {
	mu       sync.Mutex
	docs     map[string]json.RawMessage
	versions map[string]int64
}

func newValues() *values {
	return &values{docs: map[string]json.RawMessage{}, versions: map[string]int64{}}
}

func (v *values) GetValue(_ context.Context, name string) (json.RawMessage, int64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.versions[name] == 0 {
		return nil, 0, rowmill.ErrNotFound
	}
	return v.docs[name], v.versions[name], nil
}

func (v *values) PutValue(_ context.Context, name string, doc json.RawMessage, version int64) (int64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.versions[name] != version {
		return 0, rowmill.ErrConflict
	}
	v.docs[name], v.versions[name] = doc, version+1
	return version + 1, nil
}

func loadKeys(t testing.TB, v Values) *Keyring {
	t.Helper()
	k := must.Get(LoadKeyring(t.Context(), v))(t)
	return k
}

func openBucket(t testing.TB, config Config) *Bucket {
	t.Helper()
	b := must.Get(Open(config))(t)
	t.Cleanup(func() { must.Succeed(t, b.Close()) })
	return b
}

// serve serves the bucket that current returns, and sets the bucket's public
// URL.
func serve(t testing.TB, current func() *Bucket) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { current().Handler().ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	return server.URL
}

// kill releases the lock only, as when a process is killed.
func kill(t testing.TB, b *Bucket) {
	t.Helper()
	must.Succeed(t, b.scratch.lock.Close())
	b.scratch.closed.Store(true)
}

// noLeftovers checks that only objects and locks are left.
func noLeftovers(t testing.TB, root string) {
	t.Helper()
	if n := leftovers(t, root); n != 0 {
		t.Errorf("%d files are left over", n)
	}
}

// leftovers counts the files that are neither objects nor locks.
func leftovers(t testing.TB, root string) int {
	t.Helper()
	n := 0
	must.Succeed(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && strings.HasPrefix(path, filepath.Join(root, "tmp")) && entry.Name() != lockName {
			n++
		}
		return err
	}))
	return n
}

func TestConformance(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T) blobtest.Harness {
		root, c, v := filepath.Join(t.TempDir(), "data", "objects"), newClock(), newValues()
		config := Config{Root: root, Keys: loadKeys(t, v), Clock: c.Now}
		var mu sync.Mutex
		current := openBucket(t, config)
		config.PublicURL = serve(t, func() *Bucket {
			mu.Lock()
			defer mu.Unlock()
			return current
		})
		must.Succeed(t, current.SetPublicURL(config.PublicURL))
		return blobtest.Harness{
			Bucket: current,
			Reopen: func(t testing.TB) blob.Bucket {
				kill(t, current)
				config.Keys = loadKeys(t, v)
				next := openBucket(t, config)
				mu.Lock()
				defer mu.Unlock()
				current = next
				return next
			},
			Advance:   c.Advance,
			Leftovers: func(t testing.TB) int { return leftovers(t, root) },
		}
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
