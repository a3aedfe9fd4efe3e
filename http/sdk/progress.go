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
	// progressEvery is the time between two reads of a job's record: as often as a
	// progress bar needs a new value.
	progressEvery = 500 * time.Millisecond
	// progressAlive is how long a stream is silent before it sends an empty line. Proxies
	// usually close silent connections after a minute.
	progressAlive = 15 * time.Second
)

// streamProgress answers GET /v1/stream-job-progress/{job_id}: one JSON object per line,
// until the job has ended. When a line says that all rows are done, the client assumes
// success and requests the results at once. So the service sends such a line only when
// the results can be read. The stream of a failed or cancelled job ends without such a
// line.
func (d *Dialect) streamProgress(c *gin.Context) error {
	record, err := d.Jobs.Find(c, c.Param("job_id"))
	if err != nil {
		return err
	}
	c.Header("Content-Type", "application/x-ndjson")
	c.Header("Cache-Control", "no-store")
	c.Header("X-Accel-Buffering", "no") // nginx would buffer the lines
	c.Status(http.StatusOK)
	lines := &progressWriter{out: d.Exchange.Writer(c), flush: http.NewResponseController(c.Writer).Flush}

	ctx, id := c.Request.Context(), record.Job.ID
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		readable := request.CheckHasResults(record, results.FileVariant{}) == nil
		if err := lines.write(record.Job, readable, d.Now()); err != nil || record.Job.Status.IsTerminal() || d.Draining() {
			return nil // the client disconnected, the job has ended, or the node drains
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
		default: // continue: the next read may succeed, and the lines already sent stay true
			d.Exchange.Logger.Warn("reading the progress of a job failed, retrying",
				exchange.KeyRequest, exchange.RequestID(c), exchange.KeyJob, id, exchange.KeyErr, err)
		}
	}
}

// progressWriter writes a line for each change of a job's rows or tokens.
type progressWriter struct {
	out       io.Writer
	flush     func() error
	begun     bool
	rows      int64     // number of rows in the last line about rows
	tokens    int64     // number of tokens in the last line about tokens, input and output together
	lastWrite time.Time // time of the last write
}

type progressLine struct {
	Type   string `json:"update_type"`
	Result any    `json:"result"`
}

type tokenProgressEvent struct {
	Input     int64            `json:"input_tokens"`
	Output    int64            `json:"output_tokens"`
	PerSecond exchange.Decimal `json:"total_tokens_processed_per_second"`
}

// write writes lines for the values that changed since the last call, or an empty line
// after a long silence. readable says whether the job's results can be read.
func (l *progressWriter) write(job rowmill.Job, readable bool, now time.Time) error {
	tokens := tokensOf(job, now)
	rows := rowsToShow(job, readable)
	var lines []progressLine
	if sum := tokens.Input + tokens.Output; !l.begun || sum != l.tokens {
		lines, l.tokens = append(lines, progressLine{"tokens", tokens}), sum
	}
	if !l.begun || rows != l.rows {
		lines, l.rows = append(lines, progressLine{"progress", rows}), rows
	}
	var text []byte
	for _, line := range lines {
		encoded, err := exchange.Encode(line)
		if err != nil {
			return err
		}
		text = append(text, encoded...)
	}
	if len(text) == 0 && now.Sub(l.lastWrite) >= progressAlive {
		text = []byte("\n")
	}
	l.begun = true
	if len(text) == 0 {
		return nil
	}
	l.lastWrite = now
	if _, err := l.out.Write(text); err != nil {
		return err
	}
	return l.flush()
}

// rowsToShow returns the number of done rows for a line. While the results cannot be
// read, this number is less than the number of all rows.
func rowsToShow(job rowmill.Job, readable bool) int64 {
	if job.NumRows != nil && !readable {
		return max(0, min(job.RowsDone, *job.NumRows-1))
	}
	return job.RowsDone
}

// tokensOf returns the number of tokens of the committed rows, and the average rate of
// tokens since the job started.
func tokensOf(job rowmill.Job, now time.Time) tokenProgressEvent {
	line := tokenProgressEvent{Input: exchange.OrZero(job.InputTokens), Output: exchange.OrZero(job.OutputTokens)}
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
