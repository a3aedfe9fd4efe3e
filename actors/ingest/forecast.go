package ingest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// A Queue describes the servers of a model, and the jobs that use the servers now.
type Queue struct {
	Slots int   // rows that the servers together run at the same time
	Jobs  int   // number of other jobs of the model
	Rows  int64 // rows of these jobs that are not done
}

// maxQueued limits how many waiting jobs ReadQueue reads.
const maxQueued = 200

// ReadQueue returns the jobs of the account that use a model now, apart from job. It does not
// count jobs with a damaged record.
func ReadQueue(ctx context.Context, jobs store.Jobs, account, model, job string, now time.Time) (q Queue, err error) {
	active, err := jobs.ListActiveJobs(ctx, []string{account}, now, maxQueued)
	if err != nil {
		return q, fmt.Errorf("list the jobs of the account: %w", err)
	}
	for _, id := range active[0] {
		head, err := jobs.Head(ctx, id)
		switch {
		case errors.Is(err, store.ErrDamaged), errors.Is(err, rowmill.ErrNotFound): // deleted since the list
			continue
		case err != nil:
			return q, fmt.Errorf("read a job of the account: %w", err)
		}
		if other := head.Job; id != job && !other.Status.IsTerminal() && other.RunType == rowmill.RunFull && other.Model == model && other.NumRows != nil {
			q.Jobs++
			q.Rows += *other.NumRows - other.RowsDone
		}
	}
	return q, nil
}

// How the time of a row grows with the number of rows at the servers: with this power of that
// number. A small model on a big GPU is limited by the rows, a big model by its weights. The
// values were chosen so that 80 % of the jobs of TestForecast in bench/virtual end within their
// intervals.
const (
	slowdownLow  = 0.35
	slowdown     = 0.5
	slowdownHigh = 0.65
)

// forecastSeconds sets the seconds of an estimate: the time of a job with this number of rows,
// from the answers to a sample that ran alone. It sets no seconds for embeddings, because many
// rows share a request, and without servers.
func forecastSeconds(e *rowmill.Estimate, kind rowmill.Kind, rows int64, answers []AnsweredRow, q Queue) {
	n := float64(len(answers))
	if n == 0 || rows == 0 || q.Slots == 0 || kind == rowmill.KindEmbedding {
		return
	}
	var sum, squares, longest float64
	for _, a := range answers {
		sum += a.Seconds
		squares += a.Seconds * a.Seconds
		longest = max(longest, a.Seconds)
	}
	mean := sum / n
	deviation := math.Sqrt(max(0, squares/n-mean*mean) / n) // of the mean
	all := float64(rows)
	ahead := min(float64(q.Rows), float64(q.Jobs)*all) // jobs share servers, so no job waits longer than for as many rows of each other job
	most := min(float64(q.Slots), all+ahead)
	growth := most / min(n, most)
	seconds := func(row, tail, slowdown float64) *float64 {
		took := ((all+ahead)*row/most + tail) * math.Pow(growth, slowdown)
		took = math.Round(1000*took) / 1000
		return &took
	}
	e.Seconds = seconds(mean, longest/2, slowdown)
	e.SecondsLow = seconds(max(0, mean-normal*deviation), mean/2, slowdownLow)
	e.SecondsHigh = seconds(mean+normal*deviation, longest, slowdownHigh)
}
