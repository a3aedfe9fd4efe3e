package bolt_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/storetest"
)

// A watch fails the test when the store logs a warning.
type watch struct {
	slog.Handler
	t testing.TB
}

func (w watch) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (w watch) Handle(_ context.Context, r slog.Record) error {
	w.t.Errorf("the store says: %s", r.Message)
	return nil
}

func open(t testing.TB, config bolt.Config) *bolt.Store {
	t.Helper()
	config.Logger = slog.New(watch{slog.DiscardHandler, t})
	s := must.Get(bolt.Open(t.Context(), config))(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// TestListAllocates limits the allocations of a list per job. A document that package
// document cannot decode itself takes four times as many.
func TestListAllocates(t *testing.T) {
	s := open(t, bolt.Config{Path: filepath.Join(t.TempDir(), "records.db")})
	const jobs, most = 50, 25
	for i := range jobs {
		rec := storetest.NewRecord(storetest.JobID(i), "a", "row")
		rec.Job.Sampling = map[string]any{"temperature": 0.5}
		if _, _, err := s.Create(t.Context(), rec, nil); err != nil {
			t.Fatal(err)
		}
		must.Get(s.Cancel(t.Context(), rec.Job.ID, time.Now(), nil))(t)
	}
	allocated := testing.AllocsPerRun(10, func() {
		if list, _, err := s.List(t.Context(), "a", jobs, ""); err != nil || len(list) != jobs {
			t.Fatal(len(list), err)
		}
	}) / jobs
	if allocated > most {
		t.Errorf("%.1f allocations for a job, want at most %d", allocated, most)
	}
}
