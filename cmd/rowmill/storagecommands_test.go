package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/internal/s3test"
	"github.com/rowmill/rowmill/internal/wait"
	"github.com/rowmill/rowmill/store/deployment"
)

// leave writes a result file for a job that no record knows.
func leave(t *testing.T, bucket blob.Bucket, name string) (id string) {
	t.Helper()
	id = rowmill.NewJobID()
	w, err := bucket.Create(t.Context(), layout.JobPrefix(id)+name, layout.Parquet)
	if err == nil {
		_, err = w.Write([]byte("paid for"))
	}
	if err == nil {
		_, err = w.Commit()
	}
	must.Succeed(t, err)
	return id
}

// opened opens the storage of a stopped node.
func opened(t *testing.T, m *NodeProcess) *NodeProcess {
	t.Helper()
	must.Succeed(t, m.Storage.open(t.Context()))
	return m
}

// settled is like opened, and also gives the storage an identity.
func settled(t *testing.T, m *NodeProcess) *NodeProcess {
	t.Helper()
	must.Succeed(t, m.Storage.Start(t.Context()))
	return m
}

func closed(t *testing.T, m *NodeProcess) {
	t.Helper()
	if err := m.Storage.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStorageCommands(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	command := func(code int, stdin string, args ...string) string {
		t.Helper()
		got, out, said := runCommand(t.Context(), nil, stdin, append(strings.Fields("storage "+args[0]), append(args[1:], "--data", data)...)...)
		if got != code {
			t.Errorf("rowmill storage %s: code %d, want %d\n%s%s", strings.Join(args, " "), got, code, out, said)
		}
		return out + said
	}
	says := func(text string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(text, word) {
				t.Errorf("%q is not in\n%s", word, text)
			}
		}
	}
	m := settled(t, prepare(t, data, nil))
	closed(t, m)
	says(command(0, "", "check"), m.Storage.deployment.ID)

	m = opened(t, prepare(t, data, nil))
	one, two := leave(t, m.Storage.Bucket, "results/full-1-a.parquet"), leave(t, m.Storage.Bucket, "input/rows.jsonl")
	closed(t, m)
	says(command(1, "", "check"), one, two, "do not agree")
	says(command(2, "", "purge"), "name the jobs to remove")
	says(command(5, "", "purge", one, "--yes"), "not all of the named jobs are set aside")
	says(command(0, "", "quarantine"), one, two, "8 B")
	says(command(0, "", "purge", "--older-than", "1h"), "JOB")
	says(command(0, "", "purge", "--all", "--dry-run"), one, two)
	says(command(1, "no\n", "purge", "--all"), "nothing was removed")
	says(command(5, "", "purge", one, "none", "--yes"), "not all of the named jobs are set aside")
	says(command(0, "yes\n", "purge", one, one), "1 jobs were removed")
	says(command(0, "", "purge", "--all", "--yes"), two, "1 jobs were removed")
	command(0, "", "check")

	var report struct {
		deployment.CheckReport
		Skew *float64 `json:"clock_skew_seconds"`
	}
	if err := json.Unmarshal([]byte(command(0, "", "check", "-o", "json")), &report); err != nil || !report.Matches() || report.Skew == nil {
		t.Errorf("%+v, %v", report, err)
	}
}

// Two deployments on one bucket, with a Redis database each: the second one does not
// start, and nothing of the first one changes. When the records of the first one are
// lost, the node is not ready, removes nothing, and does not start again until an
// operator allows it.
func TestTwoDeploymentsOnOneBucket(t *testing.T) {
	t.Parallel()
	records, objects := redistest.Start(t), s3test.Start(t)
	on := func(database string) func(*settings.Settings) {
		return func(s *settings.Settings) {
			s.Store.URL = settings.Secret(strings.TrimSuffix(records.URL(), "0") + database)
			s.Objects.URL, s.Objects.Endpoint = "s3://"+objects.Bucket+"/production", objects.Endpoint
			s.Objects.AccessKey, s.Objects.SecretKey = settings.Secret(objects.AccessKey), settings.Secret(objects.SecretKey)
			s.Cluster.Listen, s.Cluster.Node = freeAddress(t), "node"+database
			s.Retention.Interval, s.APIKey = time.Second, "secret-of-an-administrator"
		}
	}
	first := start(t, t.TempDir(), on("0"))
	lost := leave(t, first.Storage.Bucket, "results/full-1-a.parquet")

	second := prepare(t, t.TempDir(), on("1"))
	var differ *deployment.MismatchError
	err := second.Run(t.Context())
	if !errors.As(err, &differ) {
		t.Fatalf("the second one started, or ended with %v", err)
	}
	for _, part := range []string{first.Storage.deployment.ID, "/1", "s3://" + objects.Bucket + "/production", "rowmill storage adopt"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}

	wait.For(t, "the first one finds the job that it does not know", func() bool {
		_, text := readiness(t, first)
		return strings.Contains(text, "1 jobs with 8 bytes IN THE BUCKET AND IN NO RECORD")
	})
	must.Get(records.Command("FLUSHALL"))(t)
	wait.For(t, "the first one notices that its records are gone", func() bool {
		status, text := readiness(t, first)
		return status == 503 && strings.Contains(text, "the records were lost")
	})
	if _, err := first.Storage.Bucket.Stat(t.Context(), layout.JobPrefix(lost)+"results/full-1-a.parquet"); err != nil {
		t.Errorf("what nobody knows was removed: %v", err)
	}
	again := prepare(t, t.TempDir(), on("0"))
	if err := again.Run(t.Context()); !errors.As(err, &differ) {
		t.Fatalf("it started with records that know nothing: %v", err)
	}
	word := opened(t, prepare(t, t.TempDir(), on("0")))
	if adopted, _, _, err := word.Storage.deploymentStorage().AdoptIdentity(t.Context()); err != nil || adopted != first.Storage.deployment {
		t.Errorf("adopted %v, %v, want %v", adopted, err, first.Storage.deployment)
	}
	closed(t, word)
	wait.For(t, "the first one is ready again", func() bool {
		status, _ := fetch(t, first.Listeners.URL+"/readyz")
		return status == 200
	})
}

// A node with an embedded store moves to a shared store and bucket, and back to its
// own. Each time it finds all of its data.
func TestNodeThatGoesToAClusterAndBack(t *testing.T) {
	t.Parallel()
	records, data := redistest.Start(t), t.TempDir()
	alone := start(t, data, nil)
	own := alone.Storage.deployment
	kept := leave(t, alone.Storage.Bucket, "results/full-1-a.parquet")
	stop(t, alone)

	// Only the directory of objects is shared: the records in Redis do not know its
	// jobs.
	err := prepare(t, data, func(s *settings.Settings) {
		s.Store.URL, s.Objects.Shared = settings.Secret(records.URL()), true
		s.Cluster.Listen = freeAddress(t)
	}).Run(t.Context())
	var differ *deployment.MismatchError
	if !errors.As(err, &differ) {
		t.Fatalf("it started with records that do not know its objects: %v", err)
	}

	back := start(t, data, nil)
	if back.Storage.deployment != own {
		t.Errorf("it came back as %v, was %v", back.Storage.deployment, own)
	}
	if _, err := back.Storage.Bucket.Stat(t.Context(), layout.JobPrefix(kept)+"results/full-1-a.parquet"); err != nil {
		t.Error(err)
	}
}

// A running node checks its own records, and reads all results if it is asked to.
func TestStorageCheckBesideANode(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	m := start(t, data, nil)
	env := environ(m, m.API.FirstKey)
	if code, _, said := runCommand(t.Context(), env, "one\ntwo\n", "jobs", "submit", "-", "--output", filepath.Join(t.TempDir(), "out.json")); code != 0 {
		t.Fatal(said)
	}
	check := func(want int, args ...string) string {
		t.Helper()
		code, out, said := runCommand(t.Context(), env, "", append([]string{"storage", "check", "--data", data}, args...)...)
		if code != want {
			t.Errorf("%q: code %d, want %d\n%s%s", args, code, want, out, said)
		}
		return out + said
	}
	for _, args := range [][]string{nil, {"--read"}} {
		if said := check(0, args...); !strings.Contains(said, m.Storage.deployment.ID) || !strings.Contains(said, "checks them itself") {
			t.Error(said)
		}
	}
	files, err := filepath.Glob(filepath.Join(data, "objects", layout.Jobs, "*", "results", layout.Full+"*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	content, err := os.ReadFile(files[0])
	must.Succeed(t, err)
	content[len(content)/8] ^= 1
	must.Succeed(t, os.WriteFile(files[0], content, 0o600))
	check(0)
	if said := check(1, "--read", "-o", "json"); !strings.Contains(said, filepath.Base(files[0])) {
		t.Error(said)
	}

	env[1] = "ROWMILL_API_KEY=wrong"
	if said := check(4); !strings.Contains(said, "a node uses the records") || strings.Contains(said, "known jobs") {
		t.Error(said)
	}
	other := start(t, t.TempDir(), nil)
	env = environ(other, other.API.FirstKey)
	if said := check(2); !strings.Contains(said, "has its records at") {
		t.Error(said)
	}
}
