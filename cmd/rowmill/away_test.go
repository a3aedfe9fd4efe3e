package main

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/internal/wait"
)

// TestRedisAway stops a node's Redis in both ways there are. Probes hear of it
// in time, clients are told to come again, and nobody's log overflows.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	records, log := redistest.Start(t), &watched{}
	m := prepare(t, filepath.Join(t.TempDir(), "data"), func(s *settings.Settings) {
		s.Store.URL, s.Objects.Shared = settings.Secret(records.URL()), true
	})
	m.Logger = slog.New(slog.NewJSONHandler(log, nil))
	api := m.run(t)
	id := submit(t, api, 3)
	await(t, api, id, func(j client.Job) bool { return j.Status.Terminal() })

	for way, test := range map[string]struct {
		stop, start func() error
	}{
		"hangs":   {records.Pause, records.Resume},
		"is gone": {records.Kill, func() error { return records.Restart(t.Context()) }},
	} {
		if err := test.stop(); err != nil {
			t.Fatal(err)
		}
		const probes = 1500 * time.Millisecond // what an orchestrator's patience is set to
		began := time.Now()
		status, text := fetch(t, m.URL+"/readyz?verbose")
		if took := time.Since(began); status != 503 || took > probes || !strings.Contains(text, "[-] store: ") {
			t.Errorf("Redis %s: readyz answers %d after %v:\n%s", way, status, took, text)
		}
		var refusal *client.APIError
		if _, err := api.Job(t.Context(), id); !errors.As(err, &refusal) || refusal.Status != 503 || refusal.Code != "unavailable" || refusal.RetryAfter <= 0 {
			t.Errorf("Redis %s: a job's record: %v", way, err)
		}
		if err := test.start(); err != nil {
			t.Fatal(err)
		}
		wait.For(t, "the node is ready again", func() bool { status, _ := fetch(t, m.URL+"/readyz"); return status == 200 })
		if _, err := api.Job(t.Context(), id); err != nil {
			t.Errorf("Redis %s, and is back: %v", way, err)
		}
	}
	if lines := strings.Count(log.String(), `"msg":"redis driver"`); lines > 12 { // each kind of line once every 10 s
		t.Errorf("the driver has %d lines in the log:\n%s", lines, log)
	}
}
