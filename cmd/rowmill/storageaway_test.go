package main

import (
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/internal/s3test"
	"github.com/rowmill/rowmill/internal/wait"
)

// outage runs a job on a node and breaks the node's storage. It checks that the job
// waits longer than jobs.storage_patience and reports the reason, and that it continues
// after the repair.
func outage(t *testing.T, change func(*settings.Settings), strike, mend func() error, message, readyz string) *client.Client {
	t.Helper()
	log := &watched{}
	m := prepare(t, filepath.Join(t.TempDir(), "data"), func(s *settings.Settings) {
		change(s)
		s.Jobs.StoragePatience, s.Simulator.TTFT = 500*time.Millisecond, 200*time.Millisecond
		s.Simulator.Slots = 4
	})
	m.Logger = slog.New(slog.NewTextHandler(log, nil))
	api := m.run(t)
	id := submit(t, api, 100)
	await(t, api, id, func(j client.Job) bool { return j.RowsDone > 0 })
	must.Succeed(t, strike())
	struck := time.Now()
	await(t, api, id, func(j client.Job) bool { return strings.Contains(j.Message, message) })
	if status, text := readiness(t, m); status != 503 || !strings.Contains(text, readyz) {
		t.Errorf("readyz answers %d:\n%s", status, text)
	}
	wait.For(t, "the patience has passed many times", func() bool {
		job, err := api.Job(t.Context(), id)
		if err != nil || job.Status.IsTerminal() {
			t.Fatalf("%v, %s", err, job.Raw)
		}
		return time.Since(struck) > 5*time.Second
	})
	rows := slices.Repeat([]string{strings.Repeat("x", 1000)}, 3000)
	var refusal *client.APIError
	_, err := api.Submit(t.Context(), client.Submission{Rows: client.RowsOf(rows...), Model: "llama-3.1-8b"})
	if !errors.As(err, &refusal) || refusal.Status != 503 || refusal.RetryAfter <= 0 {
		t.Errorf("a large submission meets %v", err)
	}
	must.Succeed(t, mend())
	if job := await(t, api, id, func(j client.Job) bool { return j.Status.IsTerminal() }); job.Status != "succeeded" || job.RowsDone != 100 {
		t.Errorf("the job ended so: %s", job.Raw)
	}
	wait.For(t, "the node is ready again", func() bool { status, _ := fetch(t, m.Listeners.URL+"/readyz"); return status == 200 })
	for line, most := range map[string]int{"storage cannot be used": 3, "storage can be used again": 3, "level=WARN": 20} {
		if n := strings.Count(log.String(), line); n > most || n == 0 && most == 3 {
			t.Errorf("%d lines %q:\n%s", n, line, log)
		}
	}
	return api
}

// Redis reaches its memory limit in the middle of a job.
func TestRedisFull(t *testing.T) {
	t.Parallel()
	records := redistest.Start(t, "maxmemory-policy noeviction")
	limit := func(to string) func() error {
		return func() error { _, err := records.Command("CONFIG", "SET", "maxmemory", to); return err }
	}
	outage(t, func(s *settings.Settings) { s.Store.URL, s.Objects.Shared = settings.Secret(records.URL()), true },
		limit("1"), limit("0"), "Waiting for the record store, which has no room since ", "[-] store: ")
}

// The S3 server stops in the middle of a job.
func TestS3Away(t *testing.T) {
	t.Parallel()
	records, objects := redistest.Start(t), s3test.Start(t)
	outage(t, func(s *settings.Settings) {
		s.Store.URL = settings.Secret(records.URL())
		s.Objects = settings.ObjectStorage{
			URL: "s3://" + objects.Bucket, Endpoint: objects.Endpoint,
			AccessKey: settings.Secret(objects.AccessKey), SecretKey: settings.Secret(objects.SecretKey),
		}
	}, func() error { objects.Kill(); return nil }, func() error { return objects.Restart(t.Context()) },
		"Waiting for object storage, which cannot be used since ", "[-] objects: CANNOT BE USED since ")
}

// TestRedisAway stops a node's Redis in two ways. Probes fail, clients are asked to
// retry, and the logs do not flood.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	records, log, began := redistest.Start(t), &watched{}, time.Now()
	m := prepare(t, filepath.Join(t.TempDir(), "data"), func(s *settings.Settings) {
		s.Store.URL, s.Objects.Shared = settings.Secret(records.URL()), true
	})
	m.Logger = slog.New(slog.NewJSONHandler(log, nil))
	api := m.run(t)
	id := submit(t, api, 3)
	await(t, api, id, func(j client.Job) bool { return j.Status.IsTerminal() })

	for way, test := range map[string]struct {
		stop, start func() error
	}{
		"hangs":   {records.Pause, records.Resume},
		"is gone": {records.Kill, func() error { return records.Restart(t.Context()) }},
	} {
		must.Succeed(t, test.stop())
		status, text := readiness(t, m)
		if status != 503 || !strings.Contains(text, "[-] store") {
			t.Errorf("Redis %s: readyz answers %d:\n%s", way, status, text)
		}
		var refusal *client.APIError
		if _, err := api.Job(t.Context(), id); !errors.As(err, &refusal) || refusal.Status != 503 || refusal.Code != "unavailable" || refusal.RetryAfter <= 0 {
			t.Errorf("Redis %s: a job's record: %v", way, err)
		}
		must.Succeed(t, test.start())
		wait.For(t, "the node is ready again", func() bool { status, _ := fetch(t, m.Listeners.URL+"/readyz"); return status == 200 })
		if _, err := api.Job(t.Context(), id); err != nil {
			t.Errorf("Redis %s, and is back: %v", way, err)
		}
	}
	const period = 10 * time.Second // each kind of line is logged once in this time
	most := 12 * (1 + int(time.Since(began)/period))
	if lines := strings.Count(log.String(), `"msg":"message of the redis driver"`); lines > most {
		t.Errorf("the driver has %d lines in the log:\n%s", lines, log)
	}
}
