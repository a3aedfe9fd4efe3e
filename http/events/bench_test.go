package events

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/storetest"
)

// BenchmarkSecond measures the work of a node in a second. Ten accounts have 1,000 jobs in
// all that have not ended, and one job of each account changes. Each listener follows the
// jobs of an account.
func BenchmarkSecond(b *testing.B) {
	for _, listeners := range []int{0, 1, 50} {
		b.Run(fmt.Sprint(listeners), func(b *testing.B) { benchmarkSecond(b, listeners) })
	}
}

func benchmarkSecond(b *testing.B, listeners int) {
	s := must.Get(bolt.Open(b.Context(), bolt.Config{Path: filepath.Join(b.TempDir(), "records.db")}))(b)
	b.Cleanup(func() { _ = s.Close() })
	storetest.FillJobs(b, s, 1000, false)
	h := New(Config{
		Store: s, Logger: slog.New(slog.DiscardHandler), Now: time.Now, Most: listeners,
		Waiting: func(*rowmill.Job, string) string { return "" },
	})
	var all []*Listener
	for i := range listeners {
		l := must.Get(h.Join(b.Context(), []Topic{{Account: fmt.Sprint("account-", i%10)}}, ""))(b)
		b.Cleanup(l.Leave)
		all = append(all, l)
	}
	h.mu.Lock()
	if h.stop != nil {
		h.stop() // the benchmark polls by itself
	}
	h.mu.Unlock()
	for turn := 0; b.Loop(); turn++ {
		h.mu.Lock()
		for _, t := range h.topics {
			for id, i := range t.items { // the first one
				i.shown = fmt.Sprint(turn)
				t.items[id] = i
				break
			}
		}
		h.mu.Unlock()
		must.Succeed(b, h.poll(b.Context(), h.activeTopics))
		for _, l := range all {
			changes := l.TakeChanges()
			if len(changes) != 1 {
				b.Fatalf("%d changes", len(changes))
			}
			if _, _, err := h.ReadJob(b.Context(), changes[0].Job); err != nil {
				b.Fatal(err)
			}
		}
	}
}
