package ingest

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// queuedJobs is a store with these jobs. A job without a head has an unreadable record.
type queuedJobs struct {
	store.Jobs

	heads map[string]*store.JobHead
	err   error
}

func (q queuedJobs) ListActiveJobs(context.Context, []string, time.Time, int) ([][]string, error) {
	var ids []string
	for id := range q.heads {
		ids = append(ids, id)
	}
	return [][]string{ids}, nil
}

func (q queuedJobs) Head(_ context.Context, id string) (*store.JobHead, error) {
	if h := q.heads[id]; h != nil {
		return h, nil
	}
	return nil, q.err
}

// A job with a damaged record, and a job that was deleted, do not fail the estimate of another
// job. A store that does not answer does.
func TestReadQueueSkipsUnreadableJobs(t *testing.T) {
	t.Parallel()
	rows := int64(10)
	running := rowmill.Job{Status: rowmill.StatusRunning, RunType: rowmill.RunFull, Model: "m", NumRows: &rows, RowCounts: rowmill.RowCounts{RowsDone: 4}}
	for _, unreadable := range []error{store.ErrDamaged, rowmill.ErrNotFound, rowmill.ErrUnavailable} {
		jobs := queuedJobs{heads: map[string]*store.JobHead{"readable": {Job: running}, "unreadable": nil}, err: unreadable}
		queue, err := ReadQueue(t.Context(), jobs, "a", "m", "estimate", time.Now())
		if errors.Is(unreadable, rowmill.ErrUnavailable) {
			if !errors.Is(err, rowmill.ErrUnavailable) {
				t.Errorf("the store does not answer: %v", err)
			}
		} else if err != nil || queue != (Queue{Jobs: 1, Rows: 6}) {
			t.Errorf("%v: %+v, %v", unreadable, queue, err)
		}
	}
}

// A sample of equal rows that fills the servers gives the time of a job exactly, apart from its
// end. Other jobs take their shares of the servers.
func TestForecastSeconds(t *testing.T) {
	t.Parallel()
	answers := make([]AnsweredRow, 100)
	for i := range answers {
		answers[i].Seconds = 2
	}
	for name, test := range map[string]struct {
		rows      int64
		queue     Queue
		low, high float64
	}{
		"full servers":           {10_000, Queue{Slots: 50}, 401, 402},
		"few rows":               {20, Queue{Slots: 50}, 3, 4},
		"a short job in the way": {10_000, Queue{Slots: 50, Jobs: 1, Rows: 500}, 421, 422},
		"two long jobs":          {10_000, Queue{Slots: 50, Jobs: 2, Rows: 1_000_000}, 1201, 1202},
		"more servers":           {10_000, Queue{Slots: 400}, 51 * math.Pow(4, slowdownLow), 52 * math.Pow(4, slowdownHigh)},
	} {
		var e rowmill.Estimate
		forecastSeconds(&e, rowmill.KindGeneration, test.rows, answers, test.queue)
		if math.Abs(*e.SecondsLow-test.low) > 0.01 || math.Abs(*e.SecondsHigh-test.high) > 0.01 || *e.Seconds < test.low || *e.Seconds > test.high {
			t.Errorf("%s: %v s (%v to %v), want %v to %v", name, *e.Seconds, *e.SecondsLow, *e.SecondsHigh, test.low, test.high)
		}
	}
	for name, forecast := range map[string]func(e *rowmill.Estimate){
		"embeddings":        func(e *rowmill.Estimate) { forecastSeconds(e, rowmill.KindEmbedding, 10, answers, Queue{Slots: 1}) },
		"without servers":   func(e *rowmill.Estimate) { forecastSeconds(e, rowmill.KindGeneration, 10, answers, Queue{}) },
		"without an answer": func(e *rowmill.Estimate) { forecastSeconds(e, rowmill.KindGeneration, 10, nil, Queue{Slots: 1}) },
	} {
		var e rowmill.Estimate
		if forecast(&e); e.Seconds != nil || e.SecondsLow != nil || e.SecondsHigh != nil {
			t.Errorf("%s: a forecast of %v s", name, *e.Seconds)
		}
	}
}
