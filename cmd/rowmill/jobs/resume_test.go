package jobs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestResume(t *testing.T) {
	t.Parallel()
	s := newService(t, done)
	c := newCall(t, s)
	c.run("resume", jobID).want(t, 0, "made")
	if c.out.String() != "job-next\n" {
		t.Errorf("%q", c.out.String())
	}
	c.run("resume", jobID, "--rows", "failed", "--priority", "0", "--name", "again", "--idempotency-key", "k", "-o", "json").want(t, 0)
	if !strings.Contains(c.out.String(), `"job_id": "job-next"`) {
		t.Errorf("%q", c.out.String())
	}
	want := []map[string]any{
		{"(key)": ""}, // the service decides
		{"(key)": "k", "rows": "failed", "job_priority": 0.0, "name": "again"},
	}
	if diff := cmp.Diff(want, s.submissions); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	c.run("resume", "job-gone").want(t, 5, "resume job-gone", "not_found")
}

func TestResultsPartial(t *testing.T) {
	t.Parallel()
	s := newService(t, record("running", `,"num_rows":3000,"rows_done":1200`), record("cancelled", `,"num_rows":3000,"rows_done":1234`), done)
	s.running = true
	c := newCall(t, s)
	// A running job has no URL of its results: they are streamed.
	c.run("results", jobID, "--partial", "--output", "DIR/now.parquet").want(t, 0, "running with 1,200/3,000 rows done; the other rows are null", "wrote DIR/now.parquet")
	if strings.Contains(c.err.String(), "resume") {
		t.Errorf("a running job is to be resumed: %s", c.err.String())
	}
	if got, err := os.ReadFile(filepath.Join(c.dir, "now.parquet")); err != nil || string(got) != s.content {
		t.Errorf("%q, %v", got, err)
	}
	if last := s.queries[len(s.queries)-1]; !strings.HasSuffix(last, "/results?format=parquet&partial=true") {
		t.Error(last)
	}
	s.running = false
	c.run("results", jobID, "--partial", "--include-inputs", "--output", "DIR/some.parquet").want(t, 0, "cancelled with 1,234/3,000 rows done", "rowmill jobs resume "+jobID)
	c.run("results", jobID, "--partial", "--output", "DIR/all.parquet").want(t, 0, "wrote")
	if strings.Contains(c.err.String(), "null") {
		t.Errorf("of all rows it says %s", c.err.String())
	}
	for _, query := range s.queries {
		if strings.Contains(query, "/results") && !strings.Contains(query, "partial=true") {
			t.Errorf("asked for %s", query)
		}
	}
}

// The default name of partial results differs from the name of full results.
func TestResultsPartialHaveTheirOwnName(t *testing.T) {
	t.Parallel()
	for partial, want := range map[bool]string{true: "n.partial.parquet", false: "n.results.parquet"} {
		var s resultFlags
		s.want.Partial = partial
		if err := s.resolvePath("n"); err != nil || s.path != want {
			t.Errorf("partial %v: %q, %v", partial, s.path, err)
		}
	}
}

// A user who waits for a job that does not succeed learns how to get its finished rows.
func TestAttachToAJobThatIsResumable(t *testing.T) {
	t.Parallel()
	const more = `,"num_rows":3000,"rows_done":1234,"failed_rows":7`
	next := "1,234 rows are done; get them: rowmill jobs results " + jobID + " --partial; run the rest: rowmill jobs resume " + jobID
	c := newCall(t, newService(t, record("cancelled", more)))
	c.run("attach", jobID, "--output", "DIR/a.parquet").want(t, 6, "was cancelled", next)
	c = newCall(t, newService(t, record("failed", more)))
	c.run("attach", jobID, "--output", "DIR/a.parquet").want(t, 3, next)
	c = newCall(t, newService(t, record("failed", `,"num_rows":3000,"rows_done":200,"failed_rows":200`)))
	c.run("attach", jobID, "--output", "DIR/a.parquet").want(t, 3, "no row has an answer; see why: rowmill jobs errors "+jobID+"; run the rows again: rowmill jobs resume "+jobID)
	for _, without := range []string{record("cancelled", ""), record("failed", more+`,"run_type":"COST_ESTIMATE"`)} {
		c = newCall(t, newService(t, without))
		if c.run("attach", jobID, "--output", "DIR/a.parquet"); strings.Contains(c.err.String(), "resume") {
			t.Errorf("nothing is left to be had, and it says %s", c.err.String())
		}
	}
}
