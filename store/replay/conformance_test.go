package replay_test

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv/mem"
	"github.com/rowmill/rowmill/store/records"
	"github.com/rowmill/rowmill/store/replay"
	"github.com/rowmill/rowmill/store/storetest"
)

// A complaint collects the log messages about lost writes.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (c *logText) Write(line []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(line)
}

func (c *logText) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// TestConformance runs the conformance suite on a Store that checks all the time, over
// a store that loses nothing. It must behave like the wrapped store and log nothing.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		var mu sync.Mutex
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		read := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
		said := new(logText)
		t.Cleanup(func() {
			if text := said.String(); strings.Contains(text, "forgotten") && strings.Contains(text, "job=") {
				t.Errorf("nothing was lost, but the log says: %s", text)
			}
		})
		engine := mem.New(read)
		return storetest.Harness{
			Open: func(t testing.TB) store.Store {
				t.Helper()
				engine = engine.Reopen()
				below := must.Get(records.Open(t.Context(), engine, nil))(t)
				s := replay.New(replay.Config{Store: below, Log: slog.New(slog.NewTextHandler(said, nil)), CheckInterval: 50 * time.Millisecond})
				t.Cleanup(func() {
					if err := s.Close(); err != nil {
						t.Errorf("close: %v", err)
					}
				})
				return s
			},
			Advance: func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) },
			Now:     read,
		}
	})
}

// notRepeated has the writes to a job's record that this test does not lose. Other tests
// lose claims. A Store does not repeat the other writes.
var notRepeated = []string{"Claim", "Unpark", "MarkShownRunning", "KeepInput", "MarkInputRemoved", "MarkDataDeleted"}

// TestEachWriteIsRepeated loses each write to a job's record, and checks that a check repairs
// it.
func TestEachWriteIsRepeated(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"Finish", "Cancel"} {
		v := newVault(t)
		n := v.node()
		c := &storetest.Caller{Store: n, Fence: store.Fence{JobID: "job-1"}, Ctx: t.Context()}
		for _, o := range storetest.Operations(end) {
			v.keep()
			n.must(o.Call(c))
			if o.Kind < storetest.CreatesJob || slices.Contains(notRepeated, o.Method) {
				continue
			}
			version := n.get().Version
			v.forget()
			n.check()
			if rec := n.get(); rec.Version < version || o.Check != nil && !o.Check(&rec) {
				t.Errorf("%s was lost and not repeated: %+v", o.Method, rec)
			}
		}
	}
}
