package sdk

import (
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/results"
)

const (
	// progressEvery is the time between looks at a job whose progress is
	// watched: as often as a progress bar is worth redrawing.
	progressEvery = 500 * time.Millisecond
	// progressAlive is how long a stream is silent before an empty line shows
	// that it lives. Proxies usually cut silent connections after a minute.
	progressAlive = 15 * time.Second
)

// progress answers GET /v1/stream-job-progress/{job_id}: a JSON object a line,
// until the job is over. The client takes a progress line that equals the
// number of rows for success and asks for results at once, so that it is sent
// only when they can be read; of other jobs the stream just ends.
func (d *Dialect) progress(c *gin.Context) error {
	record, err := d.Jobs.Find(c, c.Param("job_id"))
	if err != nil {
		return err
	}
	c.Header("Content-Type", "application/x-ndjson")
	c.Header("Cache-Control", "no-store")
	c.Header("X-Accel-Buffering", "no") // nginx would gather the lines
	c.Status(http.StatusOK)
	lines := &progressLines{out: d.Exchange.Writer(c), flush: http.NewResponseController(c.Writer).Flush}

	ctx, id := c.Request.Context(), record.Job.ID
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		readable := request.NoResults(record, results.Variant{}) == nil
		if err := lines.show(record.Job, readable, d.Now()); err != nil || record.Job.Status.Terminal() || d.Draining() {
			return nil // the client is gone, or nothing follows, or it should watch through another node
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := d.Store.Get(ctx, id)
		switch {
		case err == nil:
			record = now
		case ctx.Err() != nil:
			return nil
		default: // the store may come back; what was said stays true
			d.Exchange.Logger.Warn("reading the progress of a job failed",
				exchange.KeyRequest, exchange.RequestID(c), exchange.KeyJob, id, exchange.KeyErr, err)
		}
	}
}

// progressLines writes what has changed of a job.
type progressLines struct {
	out    io.Writer
	flush  func() error
	begun  bool
	rows   int64     // last told
	tokens int64     // last told, in and out
	told   time.Time // when something was written last
}

type progressLine struct {
	Type   string `json:"update_type"`
	Result any    `json:"result"`
}

type tokensLine struct {
	Input     int64            `json:"input_tokens"`
	Output    int64            `json:"output_tokens"`
	PerSecond exchange.Decimal `json:"total_tokens_processed_per_second"`
}

// show writes lines for what is new, or an empty one after a long silence.
func (l *progressLines) show(job rowmill.Job, readable bool, now time.Time) error {
	tokens := tokensOf(job, now)
	rows := rowsToShow(job, readable)
	var text []byte
	add := func(kind string, result any) error {
		line, err := exchange.Encode(progressLine{kind, result})
		text = append(text, line...)
		return err
	}
	if sum := tokens.Input + tokens.Output; !l.begun || sum != l.tokens {
		if err := add("tokens", tokens); err != nil {
			return err
		}
		l.tokens = sum
	}
	if !l.begun || rows != l.rows {
		if err := add("progress", rows); err != nil {
			return err
		}
		l.rows = rows
	}
	if len(text) == 0 && now.Sub(l.told) >= progressAlive {
		text = []byte("\n")
	}
	l.begun = true
	if len(text) == 0 {
		return nil
	}
	l.told = now
	if _, err := l.out.Write(text); err != nil {
		return err
	}
	return l.flush()
}

// rowsToShow is how many rows are done, or one less as long as all are done
// and the results are not readable.
func rowsToShow(job rowmill.Job, readable bool) int64 {
	if job.NumRows != nil && !readable {
		return max(0, min(job.RowsDone, *job.NumRows-1))
	}
	return job.RowsDone
}

// tokensOf are the tokens of the committed rows, and their average pace.
func tokensOf(job rowmill.Job, now time.Time) tokensLine {
	var line tokensLine
	if job.InputTokens != nil {
		line.Input = *job.InputTokens
	}
	if job.OutputTokens != nil {
		line.Output = *job.OutputTokens
	}
	if job.Completed != nil {
		now = *job.Completed
	}
	if job.Started != nil {
		if took := now.Sub(*job.Started).Seconds(); took > 0 {
			line.PerSecond = exchange.Decimal(float64(line.Input+line.Output) / took)
		}
	}
	return line
}
