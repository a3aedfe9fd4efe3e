package jobs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rowmill/rowmill/cmd/rowmill/exit"
)

// estimated returns the record of an estimate job.
func estimated(more string) string {
	return record("succeeded", `,"run_type":"COST_ESTIMATE","num_rows":12000,"rows_done":50,"cost_estimate":1.25`+more)
}

// figures returns the lines of a table, with single spaces.
func figures(out string) string {
	var lines []string
	for line := range strings.Lines(out) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

func TestSubmitEstimate(t *testing.T) {
	t.Parallel()
	sampled := estimated(`,"estimate":{"method":"sampled","sample_rows":50,"sample_input_tokens":1000400,"low":1,"high":1.5,"input_tokens":240000000,"output_tokens":7000000,"seconds":754.2,"seconds_low":600,"seconds_high":3605}`)
	s := newService(t, record("pending", `,"run_type":"COST_ESTIMATE"`), sampled)
	c := newCall(t, s)
	c.stdin = strings.Repeat("x\n", 1001)
	c.run("submit", "-", "--estimate").want(t, 0, "using priority 1", "created "+jobID)
	want := strings.Join([]string{
		"model gpt-oss-20b",
		"rows 12,000",
		"cost estimate 1.250000 USD (1.000000 to 1.500000)",
		"tokens in 240,000,000",
		"tokens out 7,000,000 (estimated)",
		"time estimate 12:34 (10:00 to 1:00:05) if it starts now",
		"method from the answers to a sample of 50 rows (1,000,400 tokens in)",
	}, "\n")
	if got := figures(c.out.String()); got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
	if s.submissions[0]["cost_estimate"] != true || s.submissions[0]["job_priority"] != 1.0 {
		t.Errorf("submitted %v", s.submissions[0])
	}
	for _, query := range s.queries {
		if strings.Contains(query, "results") {
			t.Errorf("an estimate's results were asked for: %s", query)
		}
	}
	c.run("get", jobID).want(t, 0)
	if !strings.Contains(figures(c.out.String()), "cost estimate 1.250000 USD (1.000000 to 1.500000)") {
		t.Errorf("get printed\n%s", c.out.String())
	}
}

// A submission with a deadline prints the forecast of the answer, and so does the record of the job.
func TestSubmitWithDeadline(t *testing.T) {
	t.Parallel()
	forecast := `"forecast":{"seconds":90.4,"seconds_low":60,"seconds_high":120,"finishes_at":"2026-11-27T05:40:00.5Z","deadline":"2026-11-27T06:00:00Z","met":true}`
	s := newService(t, record("succeeded", `,"num_rows":1,"rows_done":1,"deadline":"2026-11-27T06:00:00Z",`+forecast))
	s.forecast = "," + forecast
	const text = "ends at 2026-11-27T05:40:00Z, within the deadline, after 1:30 (1:00 to 2:00)"
	c := newCall(t, s)
	c.stdin = "x\n"
	c.run("submit", "-", "--detach", "--deadline", "2026-11-27T06:00Z", "--only-if-met").want(t, 0, "at most 90 seconds", "forecast: "+text, "created "+jobID)
	if sent := s.submissions[0]; sent["deadline"] != "2026-11-27T06:00Z" || sent["admit"] != "only_if_met" {
		t.Errorf("submitted %v", sent)
	}
	c.run("get", jobID).want(t, 0)
	if got := figures(c.out.String()); !strings.Contains(got, "deadline 2026-11-27T06:00:00Z\nforecast "+text) {
		t.Errorf("get printed\n%s", got)
	}
	c.run("submit", "-", "--detach", "--only-if-met").want(t, exit.Usage, "--only-if-met needs --deadline")
	s.refuse = 409
	c.run("submit", "-", "--detach", "--deadline", "2026-11-27T06:00Z", "--only-if-met").want(t, exit.Failure, "refused")
}

func TestEstimateWithoutAPrice(t *testing.T) {
	t.Parallel()
	s := newService(t, record("pending", `,"run_type":"COST_ESTIMATE"`), record("succeeded", `,"run_type":"COST_ESTIMATE","num_rows":2,"cost_estimate":null,`+
		`"estimate":{"method":"unsampled","sample_rows":0,"sample_input_tokens":0,"low":null,"high":null,"input_tokens":24,"output_tokens":24}`))
	c := newCall(t, s)
	c.stdin = "x\n"
	c.run("submit", "-", "--estimate").want(t, 0)
	if got := figures(c.out.String()); !strings.Contains(got, "cost estimate none: the model has no price\ntokens in 24") {
		t.Errorf("printed\n%s", got)
	}
}

func TestAttachToEstimate(t *testing.T) {
	t.Parallel()
	unsampled := estimated(`,"estimate":{"method":"unsampled","sample_rows":0,"sample_input_tokens":0,"low":1,"high":1.5,"input_tokens":2,"output_tokens":3}`)
	c := newCall(t, newService(t, unsampled))
	c.run("attach", jobID, "--output", "DIR/o.parquet").want(t, 0)
	if !strings.Contains(c.out.String(), "no row was run") {
		t.Errorf("printed\n%s", c.out.String())
	}
	if _, err := os.Stat(filepath.Join(c.dir, "o.parquet")); err == nil {
		t.Error("an estimate has left a file of results")
	}
	c = newCall(t, newService(t, record("succeeded", `,"run_type":"COST_ESTIMATE"`)))
	c.run("attach", jobID, "--output", "DIR/o.parquet").want(t, 1, "without an estimate")
	failed := record("failed", `,"run_type":"COST_ESTIMATE","failure_reason":{"message":"Too many rows.","code":"row_quota_exceeded","additional_context":""}`)
	c = newCall(t, newService(t, failed))
	c.stdin = "a\n"
	c.run("submit", "-", "--estimate").want(t, 3, "row_quota_exceeded")
}

func TestEstimateRefusesFlagsOfResults(t *testing.T) {
	t.Parallel()
	s := newService(t, done)
	c := newCall(t, s)
	c.stdin = "a\n"
	c.run("submit", "-", "--estimate", "--output", "DIR/o.parquet", "--include-inputs").want(t, 2, "leave out --output, --include-inputs")
	if len(s.submissions) > 0 {
		t.Error("something was sent")
	}
}

func TestInterruptedEstimateComesBackWithoutAFile(t *testing.T) {
	t.Parallel()
	s := newService(t, record("running", `,"run_type":"COST_ESTIMATE"`))
	c := newCall(t, s)
	c.stdin = "a\n"
	ctx, cancel := context.WithCancelCause(t.Context())
	c.ctx = ctx
	s.onLook = func(int) { cancel(exit.Signal{Signal: syscall.SIGINT}) }
	c.run("submit", "-", "--estimate").want(t, 130, "rowmill jobs attach "+jobID+"\nor end it")
}

func TestCutInputsAreSaid(t *testing.T) {
	t.Parallel()
	c := newCall(t, newService(t, record("succeeded", `,"num_rows":3,"rows_done":3,"truncated_rows":2`)))
	c.run("attach", jobID, "--output", "DIR/o.parquet").want(t, 0, "2 inputs were cut", "--no-truncate")
	c.run("get", jobID).want(t, 0)
	if !strings.Contains(figures(c.out.String()), "cut inputs 2") {
		t.Errorf("get printed\n%s", c.out.String())
	}
}
