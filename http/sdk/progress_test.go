package sdk

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

func TestProgress_LastLineWaitsForTheResults(t *testing.T) {
	t.Parallel()
	job := func(status rowmill.Status, done int64) rowmill.Job {
		rows := int64(5)
		return rowmill.Job{Status: status, RowCounts: rowmill.RowCounts{RowsDone: done}, NumRows: &rows}
	}
	for _, tt := range []struct {
		job      rowmill.Job
		readable bool
		want     int64
	}{
		{rowmill.Job{Status: rowmill.StatusStarting}, false, 0},
		{job(rowmill.StatusRunning, 0), false, 0},
		{job(rowmill.StatusRunning, 4), false, 4},
		{job(rowmill.StatusRunning, 5), false, 4},
		{job(rowmill.StatusFailed, 5), false, 4},
		{job(rowmill.StatusSucceeded, 5), false, 4}, // retention removed the results, or the job is an estimate
		{job(rowmill.StatusSucceeded, 5), true, 5},
	} {
		if got := rowsToShow(tt.job, tt.readable); got != tt.want {
			t.Errorf("%s with %d rows done, readable %v: %d, want %d", tt.job.Status, tt.job.RowsDone, tt.readable, got, tt.want)
		}
	}
}

func TestProgress_EmptyLineKeepsTheStreamOpen(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	l := &progressWriter{out: &out, flush: func() error { return nil }}
	began := time.Now()
	for _, after := range []time.Duration{0, progressEvery, progressAlive - 1, progressAlive, progressAlive + progressEvery} {
		must.Succeed(t, l.write(rowmill.Job{Status: rowmill.StatusRunning}, false, began.Add(after)))
	}
	want := `{"update_type":"tokens","result":{"input_tokens":0,"output_tokens":0,"total_tokens_processed_per_second":0.0}}` + "\n" +
		`{"update_type":"progress","result":0}` + "\n\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
