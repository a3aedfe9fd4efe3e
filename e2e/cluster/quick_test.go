package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/seed"
)

// calm is the duration of a job of these tests without its faults.
const calm = 4 * time.Second

// rowsFor returns the number of rows of a job that runs longer than the faults.
func rowsFor(c *Cluster, faults []Fault) int {
	lasts := calm
	for _, f := range faults {
		lasts += f.Lasts
	}
	workers := 0
	for _, n := range c.nodes() {
		if n.Runs && !n.Spare {
			workers++
		}
	}
	return int(c.config.rate() * float64(workers) * lasts.Seconds())
}

// try runs one trial of the named faults, with a batch of a dialect unless that is empty.
func try(t *testing.T, c *Cluster, dialect Dialect, seed uint64, names ...string) {
	t.Helper()
	var faults []Fault
	for _, name := range names {
		i := slices.IndexFunc(Faults(), func(f Fault) bool { return f.Name == name })
		if i < 0 {
			t.Fatalf("no fault is called %q", name)
		}
		f := Faults()[i]
		if c.network == nil && (f.Hosts || f.Root) {
			t.Skipf("SKIPPED, NOT TESTED: %s needs hosts of their own", name)
		}
		faults = append(faults, f)
	}
	o := must.Get(c.Try(t.Context(), dialect, seed, rowsFor(c, faults), faults...))(t)
	t.Log(o)
	if len(o.Faults) < len(faults) {
		t.Errorf("the job was over before %s: nothing was tested", faults[len(o.Faults)].Name)
	}
	for _, wrong := range o.Wrongs {
		t.Error(wrong)
	}
}

// String returns a summary of a trial.
func (o Outcome) String() string {
	return fmt.Sprintf("%s (%s): %d rows in %v, %d run again (%d may), %d aborted, taken over after %v; beside it %d jobs of another account (seed %d)",
		strings.Join(o.Faults, ", "), strings.Join(o.Timeline, ", "), o.Rows, o.Took.Round(100*time.Millisecond), o.Reruns, o.Bound, o.Aborted,
		o.Takeover.Round(10*time.Millisecond), o.Beside, o.Seed)
}

// TestQuick strikes a cluster of three nodes with a selection of the faults.
func TestQuick(t *testing.T) {
	soaks(t)
	c := start(t, Config{Roles: []string{"both", "both", "both"}})
	first := seed.ForTest(t)
	for i, names := range [][]string{
		{"kill -9 the owner", "kill -9 a worker", "power cut at Redis, everysec, takes the end"},
		{"kill -9 redis-server", "kill -9 the S3 server", "kill -9 all nodes at the end"},
		{"kill -9 the owner in the ingest"},
		{"kill -9 the S3 server in the ingest"},
		{"kill -9 all nodes", "kill -9 all nodes while data is removed"},
		{"SIGSTOP the owner for 10s", "SIGSTOP a worker for 3s"},
		{"owner cut off", "worker cut off"},
		{"half and half", "kill -9 a node and the S3 server while files are made"},
		{"30 % packet loss", "S3 unreachable for the owner"},
		{"Redis unreachable for the owner", "kill -9 the owner after the end"},
		{"a node joins", "SIGTERM to the owner"},
		{"disk full on a worker", "clock + 1 h"},
		{"two nodes of one name", "power cut at Redis, everysec"},
		{"Redis full", "rolling restart"},
	} {
		name := "no fault"
		if len(names) > 0 {
			name = strings.Join(names, " and ")
		}
		if !t.Run(name, func(t *testing.T) { try(t, c, "", first+uint64(i), names...) }) && t.Context().Err() != nil {
			return
		}
	}
}

// TestBatches strikes a cluster while it runs batches of each dialect.
func TestBatches(t *testing.T) {
	soaks(t)
	c := start(t, Config{Roles: []string{"both", "both", "both"}})
	first := seed.ForTest(t)
	for i, dialect := range []Dialect{OpenAI, Anthropic} {
		t.Run(string(dialect), func(t *testing.T) {
			try(t, c, dialect, first+uint64(i), "kill -9 the owner", "kill -9 all nodes", "kill -9 the answering node")
		})
	}
}

// TestOwnerAlone kills and stops owners that run no rows themselves: no row runs again. The
// nodes encrypt their requests.
func TestOwnerAlone(t *testing.T) {
	soaks(t)
	c := start(t, Config{Roles: []string{"api", "api", "engines", "engines"}, Secure: true})
	try(t, c, "", seed.ForTest(t), "kill -9 the owner", "SIGSTOP the owner for 10s")
}

// TestSplitBrain splits a cluster so that both sides have a Redis primary and run the job.
func TestSplitBrain(t *testing.T) {
	soaks(t)
	c := start(t, Config{Roles: []string{"both", "both", "both"}, Sentinels: true})
	for i, name := range []string{"split brain of 5s", "split brain of 20s"} {
		t.Run(name, func(t *testing.T) { try(t, c, "", seed.ForTest(t)+uint64(i), name) })
	}
}
