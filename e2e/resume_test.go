package e2e

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/rowmill/rowmill/internal/must"
)

// resumeSettings make many small parts, so that an interrupted job leaves complete,
// partial and unstarted shards.
const resumeSettings = `
jobs: {part_bytes: 64KiB, part_interval: 200ms, shard_rows: 400, max_failed_rows: 400}
quotas: [{priority: 1, row_quota: 1000000, token_quota: 1000000000}]
`

// TestWhatWasPaidForCanBeHad cancels a job in the middle, downloads its committed rows,
// resumes it, and kills the node while the rest runs. It compares the result with an
// undisturbed job.
func TestWhatWasPaidForCanBeHad(t *testing.T) {
	t.Parallel()
	rows := size(2_000, 2_000, 20_000)
	sim := startSimulated(t, "--slots", "64", "--ttft", "10ms", "--per-token", "500us")
	n := on(t, resumeSettings, sim).start(t)
	user := newAuthor(t, n, apiKey)
	url := serveBytes(t, csvOf(t, rows))
	submit := func() string {
		return n.submit(t, submission{Inputs: url, Model: model, Column: "text", IDColumn: "id", Priority: 1})
	}
	undisturbed := n.succeeds(t, submit())
	want := user.parquet(t, undisturbed.ID)

	old := submit()
	n.until(t, old, "well under way", func(r record) bool { return r.RowsDone > int64(rows/4) })
	user.must(t, "", "jobs", "results", old, "--partial", "--include-inputs", "--include-logprobs", "--output", "running.parquet")
	if some := checkSome(t, want, readParquet(t, filepath.Join(user.dir, "running.parquet"))); some <= rows/4 || some == rows {
		t.Errorf("the partial results of the running job have %d outputs", some)
	}
	user.must(t, "", "jobs", "cancel", old)
	cancelled := n.job(t, old)
	if cancelled.Status != "cancelled" || cancelled.RowsDone >= int64(rows) {
		t.Fatalf("%+v", cancelled)
	}
	partial := n.checkPartial(t, user, cancelled, want)

	made := strings.TrimSpace(user.must(t, "", "jobs", "resume", old))
	n.until(t, made, "well under way", func(r record) bool { return r.RowsDone > cancelled.RowsDone+int64(rows/8) })
	n.kill()
	n.start(t)
	user.must(t, "", "jobs", "attach", made, "--output", "attached.parquet")
	job := n.job(t, made)
	if job.Status != "succeeded" || job.RowsDone != int64(rows) || job.FailedRows != 0 || job.TakenOver != cancelled.RowsDone {
		t.Fatalf("%+v (%+v) of a job with %d committed rows", job, job.FailureReason, cancelled.RowsDone)
	}
	if some := checkSome(t, want, user.parquet(t, made)); some != rows {
		t.Errorf("%d of %d rows have an output", some, rows)
	}
	if job.Continues == nil || *job.Continues != old {
		t.Errorf("the job continues %v", job.Continues)
	}
	if again := n.job(t, old); again.ContinuedBy == nil || *again.ContinuedBy != made || again.Status != "cancelled" || again.Cost != cancelled.Cost {
		t.Errorf("the cancelled job is %+v now", again)
	}
	// Each of the two jobs is charged for the rows that it ran.
	if job.InputTokens+cancelled.InputTokens != undisturbed.InputTokens || job.OutputTokens+cancelled.OutputTokens != undisturbed.OutputTokens {
		t.Errorf("%d and %d tokens, then %d and %d; undisturbed %d and %d", cancelled.InputTokens, cancelled.OutputTokens,
			job.InputTokens, job.OutputTokens, undisturbed.InputTokens, undisturbed.OutputTokens)
	}
	if job.Cost == 0 || math.Abs(job.Cost+cancelled.Cost-undisturbed.Cost) > 1e-9 {
		t.Errorf("the jobs cost %v and %v, undisturbed %v", cancelled.Cost, job.Cost, undisturbed.Cost)
	}
	t.Logf("%d of %d rows were taken over; cost %v and %v", job.TakenOver, rows, cancelled.Cost, job.Cost)
	if _, code := user.rowmill(t, "", "jobs", "resume", made); code == 0 {
		t.Error("a job with nothing left to run was resumed")
	}
	// Committed rows did not run again.
	sim.stop(t)
	asked := map[string]int{}
	for _, s := range sim.sightings(t) {
		asked[s.Prompt]++
	}
	for i, row := range partial {
		if times := asked[promptHash(rowText(i))]; times < 2 || row[2] != null && times > 2 {
			t.Errorf("row %d was asked %d times by three jobs; its output was %q when the second ended", i, times, row[2])
		}
	}
}

// TestFailedRowsRunAgain resumes a succeeded job with failed rows.
func TestFailedRowsRunAgain(t *testing.T) {
	t.Parallel()
	const rows = 150
	sim := startSimulated(t, "--slots", "64", "--ttft", "1ms", "--per-token", "20us", "--fault", "schema_violation=0.7")
	n := on(t, resumeSettings, sim).start(t)
	user := newAuthor(t, n, apiKey)
	inputs := rowTexts(rows)
	old := n.finish(t, n.submit(t, submission{
		Inputs: inputs, Model: model, Priority: 1, Schema: json.RawMessage(cardSchema), Sampling: map[string]any{"max_tokens": cardTokens},
	}))
	if old.Status != "succeeded" || old.FailedRows == 0 {
		t.Fatalf("%+v (%+v)", old, old.FailureReason)
	}
	before, _ := n.results(t, old.ID)
	sim.fault(t, `{"schema_violation": 0}`)
	if _, code := user.rowmill(t, "", "jobs", "resume", old.ID, "--rows", "missing"); code == 0 {
		t.Error("a success was resumed without its failed rows")
	}
	job := n.finish(t, strings.TrimSpace(user.must(t, "", "jobs", "resume", old.ID, "--rows", "failed")))
	if job.Status != "succeeded" || job.RowsDone != rows || job.FailedRows != 0 || job.TakenOver != rows-old.FailedRows {
		t.Fatalf("%+v (%+v), of a job with %d failed rows", job, job.FailureReason, old.FailedRows)
	}
	after, inputsAfter := n.results(t, job.ID)
	tokens := int64(0) // of the answers to rows that ran
	for i := range rows {
		switch {
		case inputsAfter[i] != inputs[i] || after[i] == nil:
			t.Fatalf("row %d is %q with the output %s", i, inputsAfter[i], show(after[i]))
		case before[i] == nil:
			tokens += tokensOf(*after[i])
		case *after[i] != *before[i]:
			t.Fatalf("row %d went well with %s and is %s now", i, *before[i], *after[i])
		}
	}
	if job.OutputTokens != tokens || job.Cost >= old.Cost {
		t.Errorf("%d tokens were billed, but the %d rows that ran have %d tokens; cost %v after %v", job.OutputTokens, old.FailedRows, tokens, job.Cost, old.Cost)
	}
}

// checkPartial compares the partial results of an unsuccessful job with its record and
// all rows, and returns them.
func (n *node) checkPartial(t *testing.T, user *author, job record, want [][]string) [][]string {
	t.Helper()
	missing := n.failedRows(t, job.ID)
	user.must(t, "", "jobs", "results", job.ID, "--partial", "--include-inputs", "--include-logprobs", "--output", "partial.parquet")
	got := readParquet(t, filepath.Join(user.dir, "partial.parquet"))
	if some := checkSome(t, want, got); int64(some) != job.RowsDone || len(want)-len(missing) != some {
		t.Fatalf("%d rows have an output, %d are listed as missing; %d are done of %d", some, len(missing), job.RowsDone, len(want))
	}
	var outputs struct{ Outputs []*string }
	n.call(t, http.MethodGet, "/v1/jobs/"+job.ID+"/results?partial=true", nil, &outputs)
	if len(outputs.Outputs) != len(got) {
		t.Fatalf("%d rows as JSON, %d as Parquet", len(outputs.Outputs), len(got))
	}
	for i, out := range outputs.Outputs {
		if (out == nil) != (got[i][2] == null) || out != nil && *out != got[i][2] {
			t.Fatalf("row %d is %s as JSON, %q as Parquet", i, show(out), got[i][2])
		}
		if code, none := missing[i]; none != (out == nil) || none && code != "not_run" {
			t.Fatalf("row %d has the output %s and the error %q", i, show(out), code)
		}
	}
	return got
}

// checkSome fails unless got has the rows of want, in order; rows may lack the output.
// It returns how many have one.
func checkSome(t *testing.T, want, got [][]string) (some int) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}
	for i, row := range got {
		expected := want[i]
		if row[2] == null {
			expected = []string{expected[0], expected[1], null, null}
		} else {
			some++
		}
		if !slices.Equal(row, expected) {
			t.Fatalf("row %d is %q, want %q", i, row, expected)
		}
	}
	return some
}

// null is the text for an absent value of a Parquet file.
const null = "\x00null"

// parquet downloads the results of a succeeded job with all columns.
func (a *author) parquet(t *testing.T, id string) [][]string {
	t.Helper()
	a.must(t, "", "jobs", "results", id, "--include-inputs", "--include-logprobs", "--output", id+".parquet")
	return readParquet(t, filepath.Join(a.dir, id+".parquet"))
}

// readParquet returns the rows of a file without nested columns.
func readParquet(t *testing.T, path string) (all [][]string) {
	t.Helper()
	data := must.Get(os.ReadFile(path))(t)
	file := must.Get(parquet.OpenFile(bytes.NewReader(data), int64(len(data))))(t)
	for _, group := range file.RowGroups() {
		rows := make([]parquet.Row, group.NumRows())
		reader := group.Rows()
		read, err := reader.ReadRows(rows)
		if read != len(rows) {
			t.Fatalf("%d of %d rows of a group could be read: %v", read, len(rows), err)
		}
		for _, row := range rows {
			values := make([]string, len(row))
			for i, value := range row {
				if values[i] = null; !value.IsNull() {
					values[i] = value.String()
				}
			}
			all = append(all, values)
		}
		must.Succeed(t, reader.Close())
	}
	return all
}

// fault sets the faults of a running server.
func (s *simulated) fault(t *testing.T, faults string) {
	t.Helper()
	answer, err := http.Post(s.url+"/sim/faults", "application/json", strings.NewReader(faults))
	must.Succeed(t, err)
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("the simulated server refuses the faults %s: %s", faults, answer.Status)
	}
}
