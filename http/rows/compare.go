package rows

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/jobs"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

const (
	// maxRowsRead limits the rows of each job that a request reads to find different rows.
	maxRowsRead = 10_000
	// maxRowsCounted limits the rows of each job that a request reads to count equal rows.
	maxRowsCounted = 100_000
	// rowsAtOnce limits the rows of each job in memory. Each may have 32 KiB of text.
	rowsAtOnce = 500
	// maxPageBytes limits the texts of a page of compared rows.
	maxPageBytes = 32 << 20
	// decimalSize is the usual length of a number of an embedding in JSON.
	decimalSize = 12
	// maxExtraReads limits the reads of a request of outputs that are longer than in a preview, and of
	// rows of a random sample that are far apart.
	maxExtraReads = 2_000
)

// comparedJob is a job in a comparison.
type comparedJob struct {
	ID           string               `json:"job_id"`
	Name         *string              `json:"name"`
	Model        string               `json:"model"`
	Function     *rowmill.FunctionRef `json:"function"`
	Prompt       *string              `json:"prompt"`
	System       *string              `json:"system_prompt"`
	Status       rowmill.Status       `json:"status"`
	NumRows      *int64               `json:"num_rows"`
	RowsDone     int64                `json:"rows_done"`
	FailedRows   int64                `json:"failed_rows"`
	Cost         *exchange.Decimal    `json:"cost"` // until now if the job is not over
	InputTokens  *int64               `json:"input_tokens"`
	OutputTokens *int64               `json:"output_tokens"`
	Seconds      *float64             `json:"seconds"` // from the start of the job to its end or until now
}

// comparedRow is a row in a comparison.
type comparedRow struct {
	Row       int64            `json:"row"`
	Input     *string          `json:"input"`      // of the first job that has the row; null if none has it
	Cut       bool             `json:"cut"`        // true if the input is shortened
	SameInput bool             `json:"same_input"` // false if the inputs of two jobs differ
	Different bool             `json:"different"`  // true if the outputs of two jobs differ
	Outputs   []comparedOutput `json:"outputs"`    // in the order of the jobs
}

// comparedOutput is the output of one job in a comparedRow.
type comparedOutput struct {
	Status string  `json:"status"`
	Output any     `json:"output"` // without reasoning; null unless the status is done
	Cut    bool    `json:"cut"`    // true if the output is shortened
	Code   *string `json:"code"`   // error code of a failed row
}

// compare answers GET /v1/jobs/compare with a range of rows of two to four jobs.
func (r *Rows) compare(c *gin.Context) (any, error) {
	var p request.Problems
	offset := exchange.QueryInt(c, &p, "offset", 0, 0, store.MaxRows)
	limit := exchange.QueryInt(c, &p, "limit", defaultPreview, 1, maxPreview)
	onlyDifferent := exchange.QueryBool(c, &p, "different")
	all, err := r.openComparison(c, &p)
	if err != nil {
		return nil, err
	}
	total := all.rows.N
	rows, size, end := []comparedRow{}, 0, min(total, offset+limit)
	if onlyDifferent {
		end = min(total, offset+maxRowsRead)
	}
	next, err := all.each(c.Request.Context(), offset, end, func(row *jointRow) bool {
		if different := row.isDifferent(); different || !onlyDifferent {
			view, bytes := row.view(different)
			rows, size = append(rows, view), size+bytes
		}
		return int64(len(rows)) < limit && size < maxPageBytes
	})
	if err != nil {
		return nil, err
	}
	body := gin.H{"jobs": r.viewCompared(c, all.records), "num_rows": total, "rows": rows, "next_offset": nil}
	if next < total {
		body["next_offset"] = next
	}
	return body, nil
}

// summarize answers GET /v1/jobs/compare/summary with the number of equal rows of two to four
// jobs.
func (r *Rows) summarize(c *gin.Context) (any, error) {
	var p request.Problems
	all, err := r.openComparison(c, &p)
	if err != nil {
		return nil, err
	}
	counts := newAgreement(len(all.records))
	next, err := all.each(c.Request.Context(), 0, min(all.rows.N, maxRowsCounted), func(row *jointRow) bool {
		counts.add(row)
		return true
	})
	if err != nil {
		return nil, err
	}
	return gin.H{
		"jobs": r.viewCompared(c, all.records), "num_rows": all.rows.N, "counted": next,
		"equal": counts.equal, "different": counts.different, "pending": counts.pending, "different_inputs": counts.differentInputs, "properties": counts.views(),
	}, nil
}

// A comparison reads the rows of several jobs.
type comparison struct {
	*archive.Archive
	records    []store.Record
	rows       jobs.CommonRows
	extraReads int // reads of single outputs, and of rows that do not follow the rows before
}

// openComparison finds the jobs in the query. It refuses jobs that cannot be compared.
func (r *Rows) openComparison(c *gin.Context, p *request.Problems) (*comparison, error) {
	found, err := r.Jobs.FindCompared(c, p, func(record store.Record) error { return request.CheckHasPartialRows(record, results.FileVariant{}) })
	if err != nil {
		return nil, err
	}
	common, err := jobs.FindCommonRows(found)
	return &comparison{Archive: r.Archive, records: found, rows: common}, err
}

// each calls visit for the common rows from from (included) to to (excluded), until visit returns
// false or there were too many extra reads. next is the index of the next common row.
func (a *comparison) each(ctx context.Context, from, to int64, visit func(*jointRow) bool) (next int64, err error) {
	for next = from; next < to; {
		columns, rows := make([][]*results.PreviewRow, len(a.records)), min(rowsAtOnce, to-next)
		for i := range a.records {
			if columns[i], err = a.readColumn(ctx, i, next, rows); err != nil {
				return next, err
			}
			rows = int64(len(columns[i]))
		}
		for i := range rows {
			row, err := a.join(ctx, a.rows.Number(0, next), columns, i)
			if err != nil {
				return next, err
			}
			if next++; !visit(row) || a.extraReads >= maxExtraReads {
				return next, nil
			}
		}
	}
	return next, nil
}

// readColumn reads at most n common rows of a job, from row from on. It reads all rows between two
// rows that are near each other, too.
func (a *comparison) readColumn(ctx context.Context, job int, from, n int64) (column []*results.PreviewRow, err error) {
	for int64(len(column)) < n {
		next := from + int64(len(column))
		first, last := a.rows.Number(job, next), next
		for last+1 < from+n && a.rows.Number(job, last+1)-first < rowsAtOnce {
			last++
		}
		found, err := a.ReadPreview(ctx, a.records[job], first, a.rows.Number(job, last)-first+1)
		if err != nil {
			return nil, err
		}
		a.records[job] = found.Record
		if len(column) > 0 {
			a.extraReads++
		}
		for i := next; i <= last; i++ {
			at := a.rows.Number(job, i) - first
			if at >= int64(len(found.Rows)) {
				return column, nil
			}
			column = append(column, found.Rows[at])
		}
	}
	return column, nil
}

// viewCompared returns the jobs of a comparison for an answer.
func (r *Rows) viewCompared(c *gin.Context, records []store.Record) []comparedJob {
	views, now := make([]comparedJob, len(records)), r.Jobs.Now()
	for i, record := range records {
		job := record.Job
		views[i] = comparedJob{
			ID: job.ID, Name: job.Name, Model: job.Model, Function: job.Function, Prompt: job.Prompt, System: job.System,
			Status: jobs.NewView(caller.PrincipalOf(c), &job).Status, NumRows: job.NumRows, RowsDone: job.RowsDone, FailedRows: job.FailedRows,
			Cost:        (*exchange.Decimal)(cmp.Or(job.JobCost, record.Spec.Model.Cost(&job))),
			InputTokens: job.InputTokens, OutputTokens: job.OutputTokens, Seconds: secondsRun(&job, now),
		}
	}
	return views
}

// secondsRun returns the time from the start of a job to its end or to now, in seconds. It
// returns nil if the job has not started.
func secondsRun(job *rowmill.Job, now time.Time) *float64 {
	if job.Started == nil {
		return nil
	}
	if job.Completed != nil {
		now = *job.Completed
	}
	seconds := math.Round(1000*max(0, now.Sub(*job.Started).Seconds())) / 1000
	return &seconds
}
