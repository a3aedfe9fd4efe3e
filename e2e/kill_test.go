package e2e

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/seed"
)

// Settings of the killed nodes. Parts are small and frequent, so that much can be lost,
// and one flush has a known number of rows.
const (
	partBytes    = 256 << 10
	killSettings = "jobs: {part_bytes: 256KiB, part_interval: 1s, shard_rows: 8192}\n" +
		"quotas: [{priority: 1, row_quota: 1000000, token_quota: 1000000000}]"
)

// flushRows returns the largest number of rows in one flush: a part is written when
// texts and answers reach partBytes.
func flushRows(rows int) int {
	least := partBytes
	for i := range rows {
		least = min(least, len(rowText(i))+len(answerText(i)))
	}
	return partBytes / least
}

// TestKilledJobsResume kills a node with SIGKILL at random times of a job and starts it
// again on the same directory. The job must have exactly one output per row, in order,
// and no committed row may run again.
func TestKilledJobsResume(t *testing.T) {
	t.Parallel()
	rows, moments := size(20_000, 30_000, 100_000), size(1, 2, 10)
	csv := csvOf(t, rows)
	inline := rowTexts(rows)
	kinds := []struct {
		name   string
		submit func(*testing.T, *node) string
		// begun says when the kill may come: a download that was interrupted is not
		// repeated.
		begun func(record) bool
	}{
		{
			name: "inline",
			submit: func(t *testing.T, n *node) string {
				return n.submit(t, submission{Inputs: inline, Model: model, Priority: 1})
			},
			begun: func(record) bool { return true },
		},
		{
			name: "url",
			submit: func(t *testing.T, n *node) string {
				return n.submit(t, submission{Inputs: serveBytes(t, csv), Model: model, Column: "text", IDColumn: "id", Priority: 1})
			},
			begun: func(r record) bool { return r.NumRows != nil },
		},
	}
	seed := seed.ForTest(t)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWitness(t, rows, 5*time.Millisecond)

	for _, kind := range kinds {
		// The time of the undisturbed job, from begun to its end.
		w.forget()
		n := newNode(t, w.url, killSettings).start(t)
		id := kind.submit(t, n)
		n.until(t, id, "begun", kind.begun)
		begun := time.Now()
		n.finish(t, id)
		whole := time.Since(begun)
		n.checkRows(t, id, rows)
		if again := w.repeats(); again != 0 {
			t.Fatalf("%s: %d rows were run twice without a kill", kind.name, again)
		}
		n.kill()

		for i := range moments {
			after := time.Duration(random.Float64() * float64(whole))
			t.Run(kind.name+" "+strconv.Itoa(i), func(t *testing.T) {
				w.forget()
				n := newNode(t, w.url, killSettings).start(t)
				id := kind.submit(t, n)
				n.until(t, id, "begun", kind.begun)
				killOnce(t, n, w, id, after, rows)
			})
		}
	}
}

// killOnce kills the node after a pause, starts it again, and checks the job.
func killOnce(t *testing.T, n *node, w *witness, id string, after time.Duration, rows int) {
	t.Helper()
	time.Sleep(after) // the pause is random; it does not wait for an event
	n.kill()
	asked := w.seen()
	n.start(t)
	atRestart := n.job(t, id)

	n.succeedsWith(t, id, rows)
	n.checkRows(t, id, rows)

	before := 0
	for _, yes := range asked {
		if yes {
			before++
		}
	}
	again, inFlight := w.repeats(), int(w.peak.Load())
	bound := inFlight + flushRows(rows)
	t.Logf("killed after %v: %d rows asked for, at most %d in flight, %d done at restart; %d run again (bound %d)",
		after, before, inFlight, atRestart.RowsDone, again, bound)
	if again > bound {
		t.Errorf("%d rows were run again, more than the %d in flight and one flush", again, bound)
	}
}

// TestKilledManyTimes kills a job's node many times. Each process must make more
// progress.
func TestKilledManyTimes(t *testing.T) {
	t.Parallel()
	rows, lives := size(20_000, 50_000, 100_000), size(4, 8, 20)
	seed := seed.ForTest(t)
	random := rand.New(rand.NewPCG(seed, 1))
	w := newWitness(t, rows, 5*time.Millisecond)
	n := newNode(t, w.url, killSettings).start(t)
	inline := rowTexts(rows)
	id := n.submit(t, submission{Inputs: inline, Model: model, Priority: 1})
	done := int64(0)
	for life := range lives {
		if life > 0 { // a job is not run again after two crashes without progress
			n.until(t, id, "further", func(r record) bool { return r.RowsDone > done || r.over() })
		}
		time.Sleep(time.Duration(random.Int64N(int64(600 * time.Millisecond))))
		n.kill()
		n.start(t)
		job := n.job(t, id)
		if job.RowsDone < done {
			t.Fatalf("the job went back from %d to %d rows", done, job.RowsDone)
		}
		done = job.RowsDone
	}
	n.succeeds(t, id)
	n.checkRows(t, id, rows)
	again, bound := w.repeats(), lives*(int(w.peak.Load())+flushRows(rows))
	t.Logf("killed %d times: %d of %d rows run again (bound %d)", lives, again, rows, bound)
	if again > bound {
		t.Errorf("%d rows were run again, more than those in flight and one flush for each of %d kills", again, lives)
	}
}

// TestKilledDuringDownload interrupts a job's download. The job must fail and say so,
// because the service must not download twice.
func TestKilledDuringDownload(t *testing.T) {
	t.Parallel()
	w := newWitness(t, 1000, 0)
	n := newNode(t, w.url, "").start(t)
	url, begun := serveSlowly(t, csvOf(t, 1000))
	id := n.submit(t, submission{Inputs: url, Model: model, Column: "text", Priority: 1})
	select {
	case <-begun:
	case <-time.After(patience):
		t.Fatal("the download never began")
	}
	n.kill()
	n.start(t)
	job := n.finish(t, id)
	if job.Status != "failed" || job.FailureReason == nil || job.FailureReason.Code != "download_failed" {
		t.Fatalf("%+v (%+v), want download_failed", job, job.FailureReason)
	}
	n.wantNoFiles(t, id)
	if calls := w.calls.Load(); calls != 0 {
		t.Errorf("%d rows of half an input were run", calls)
	}
}

// TestAcknowledgedSubmissionsSurvive kills the node right after it has acknowledged the
// last of several submissions.
func TestAcknowledgedSubmissionsSurvive(t *testing.T) {
	t.Parallel()
	const jobs = 20
	w := newWitness(t, jobs, 0)
	n := newNode(t, w.url, "").start(t)
	ids := make([]string, 0, jobs)
	for i := range jobs {
		ids = append(ids, n.submit(t, submission{Inputs: []string{rowText(i)}, Model: model}))
	}
	n.kill()
	n.start(t)
	for i, id := range ids {
		n.succeeds(t, id)
		outputs, _ := n.results(t, id)
		if len(outputs) != 1 || outputs[0] == nil || *outputs[0] != answerText(i) {
			t.Fatalf("job %d has the outputs %v", i, outputs)
		}
	}
}
