package e2e

import (
	"syscall"
	"testing"
	"time"
)

// outageSettings make the node notice early that a server is gone.
const outageSettings = `
jobs: {row_patience: 300ms, probe_interval: 500ms, part_interval: 250ms}
quotas: [{priority: 1, row_quota: 1000000, token_quota: 1000000000}]
`

// startPair starts two simulated servers with 300 rows per second each, and a node with
// a job in progress.
func startPair(t *testing.T, rows int) (one, other *simulated, n *node, id string) {
	t.Helper()
	one, other = startSimulated(t, "--ttft", "50ms", "--per-token", "0s", "--slots", "16"), startSimulated(t, "--ttft", "50ms", "--per-token", "0s", "--slots", "16")
	n = on(t, outageSettings, one, other)
	n.start(t)
	id = n.submit(t, submission{
		Inputs: serveBytes(t, csvOf(t, rows)), Model: model, Column: "text", Priority: 1,
		Sampling: map[string]any{"max_tokens": cardTokens},
	})
	n.until(t, id, "begun", func(r record) bool { return r.RowsDone > 0 && r.Status == "running" })
	return one, other, n, id
}

// unblamed fails unless the job has an output for every row and no row has lost an
// attempt.
func (n *node) unblamed(t *testing.T, id string, rows int) {
	t.Helper()
	n.succeedsWith(t, id, rows)
	if retries := n.metric(t, "rowmill_row_retries_total"); retries != 0 {
		t.Errorf("%.0f rows were blamed for the server", retries)
	}
	outputs, inputs := n.results(t, id)
	if len(outputs) != rows || len(inputs) != rows {
		t.Fatalf("%d outputs and %d inputs for %d rows", len(outputs), len(inputs), rows)
	}
	for i := range rows {
		if inputs[i] != rowText(i) || outputs[i] == nil {
			t.Fatalf("row %d: input %q, output %s", i, inputs[i], show(outputs[i]))
		}
	}
}

// TestServerDiesForGood kills one of two servers in the middle of a job. The other
// server finishes the job, and only rows from the dead server are repeated.
func TestServerDiesForGood(t *testing.T) {
	t.Parallel()
	const rows, inFlight = 1200, 16 + 2 + 16 // slots, a small queue on the server, and the rows that wait in the lane
	dead, alive, n, id := startPair(t, rows)
	dead.kill()
	killed := time.Now()
	n.unblamed(t, id, rows)
	t.Logf("the other server finished the job in %v", time.Since(killed).Round(time.Millisecond))
	alive.stop(t)

	answered := map[string]int{}
	for _, s := range append(dead.sightings(t), alive.sightings(t)...) {
		if s.good() {
			answered[s.Prompt]++
		}
	}
	again := 0
	for _, times := range answered {
		again += times - 1
	}
	if again > inFlight {
		t.Errorf("%d rows were answered again, more than the dead server had", again)
	}
	if gone := len(dead.sightings(t)); gone == 0 {
		t.Error("the dead server had no row before: nothing was tested")
	}
}

// TestServerHangs stops one of two servers in the middle of a job, like a server that
// swaps or waits for its GPU. After the node has given it up, the server continues. Its
// rows run elsewhere meanwhile, and the node uses it again.
func TestServerHangs(t *testing.T) {
	t.Parallel()
	const rows = 3000
	stopped, _, n, id := startPair(t, rows)
	said := len(n.log(t))
	stopped.signal(t, syscall.SIGSTOP)
	began := time.Now()
	said = n.says(t, said, "engine is down", "the breaker of the engine opened")
	noticed := time.Since(began)
	stopped.signal(t, syscall.SIGCONT)
	n.says(t, said, "engine is up", "a row of the engine is tried again")
	if n.job(t, id).over() {
		t.Fatal("the job was over before the server came back: nothing was tested")
	}
	t.Logf("noticed after %v", noticed.Round(time.Millisecond))
	n.unblamed(t, id, rows)
}
