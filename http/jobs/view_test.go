package jobs

import (
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
)

func TestJob_CostsAlwaysHaveADecimalPoint(t *testing.T) {
	t.Parallel()
	for in, want := range map[float64]string{0: "0.0", 1: "1.0", 0.25: "0.25", 1e-7: "1e-07", 1234567: "1234567.0"} {
		cost := in
		text, err := exchange.Encode(NewView(caller.Principal{}, &rowmill.Job{JobUsage: rowmill.JobUsage{JobCost: &cost, CostEstimate: &cost}, Estimate: &rowmill.Estimate{Low: cost, High: cost}}))
		if err != nil || !strings.Contains(string(text), `"job_cost":`+want+`,`) || !strings.Contains(string(text), `"cost_estimate":`+want+`,`) ||
			!strings.Contains(string(text), `"low":`+want+`,"high":`+want+`}`) {
			t.Errorf("%v: %s, %v", in, text, err)
		}
		for _, name := range []string{`"job_cost"`, `"cost_estimate"`, `"estimate"`, `"low"`, `"high"`} {
			if strings.Count(string(text), name) != 1 {
				t.Errorf("%s does not occur exactly once: %s", name, text)
			}
		}
	}
}

// Without a price the cost is null and not 0.
func TestJob_CostsWithoutAPriceAreNull(t *testing.T) {
	t.Parallel()
	text, err := exchange.Encode(NewView(caller.Principal{}, &rowmill.Job{Estimate: &rowmill.Estimate{InputTokens: 7}}))
	for _, want := range []string{`"job_cost":null`, `"cost_estimate":null`, `"low":null,"high":null`, `"input_tokens":7`} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("lacks %s: %s, %v", want, text, err)
		}
	}
}

func TestStatus_NamesFailedRows(t *testing.T) {
	t.Parallel()
	rows := int64(60)
	for says, failed := range map[string]int64{"Job completed successfully": 0, "Job completed; 5 of 60 rows failed": 5} {
		job := &rowmill.Job{Status: rowmill.StatusSucceeded, NumRows: &rows, RowCounts: rowmill.RowCounts{FailedRows: failed}}
		if got := statusMessage(job); got != says {
			t.Errorf("message %q, want %q", got, says)
		}
	}
}
