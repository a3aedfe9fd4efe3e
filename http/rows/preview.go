package rows

import (
	"context"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/jobs"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

const (
	// defaultPreview and maxPreview are the default and the largest number of rows in a
	// preview.
	defaultPreview = 100
	maxPreview     = 1000
	// maxCountedRows limits the rows that a request reads to count their values. The shares of
	// the values in these rows are close to the shares in all rows.
	maxCountedRows = 100_000
	// maxConditions limits the number of conditions of a filter.
	maxConditions = 20
)

// Values of the field status of a row in a preview.
const (
	rowDone    = "done"
	rowFailed  = "failed"
	rowPending = "pending"
)

// parseFilter reads a filter of rows from the query.
func parseFilter(c *gin.Context, p *request.Problems) results.RowFilter {
	filter := results.RowFilter{Text: c.Query("text"), Code: c.Query("code"), Finish: c.Query("finish_reason")}
	conditions := c.QueryArray("where")
	if len(conditions) > maxConditions {
		p.Add("where", "is given %d times; at most %d are allowed", len(conditions), maxConditions)
	}
	for _, condition := range conditions {
		property, value, found := strings.Cut(condition, "=")
		if !found {
			p.Add("where", "is %q; it must be PROPERTY=VALUE, or =VALUE for the whole answer", textfmt.Shorten(condition, 32))
		}
		filter.Where = append(filter.Where, results.PropertyValue{Property: property, Value: value})
	}
	return filter
}

// checkFilter refuses a filter that selects no row of the job, whatever its answers are.
func checkFilter(filter *results.RowFilter, record store.Record) error {
	if len(filter.Where) > 0 && record.Spec.Model.Kind == rowmill.KindEmbedding {
		return rowmill.Invalid("where", "is for answers with text; the answers of this job are embeddings")
	}
	return nil
}

// countProperties answers GET /v1/jobs/{job_id}/preview/counts: how often the values of each
// property of the answers occur.
func (r *Rows) countProperties(c *gin.Context) (any, error) {
	var p request.Problems
	filter := parseFilter(c, &p)
	if err := p.Err(); err != nil {
		return nil, err
	}
	record, err := r.jobWithRows(c)
	if err == nil {
		err = checkFilter(&filter, record)
	}
	if err != nil {
		return nil, err
	}
	counter, counted, read := &results.PropertyCounter{}, int64(0), int64(0)
	if record.IsCutIntoShards() || record.DataRemoved != nil {
		counter, counted, read, err = r.Archive.CountProperties(c.Request.Context(), record, filter, maxCountedRows)
		if err != nil {
			return nil, err
		}
	}
	return gin.H{
		"properties": counter.Properties(), "finish_reasons": counter.FinishReasons(),
		"counted": counted, "rows_read": read, "num_rows": record.Job.NumRows,
	}, nil
}

// previewRow is a row in a preview.
type previewRow struct {
	Row    int64   `json:"row"`
	Status string  `json:"status"`
	Input  *string `json:"input"`  // null while the row is pending
	Output any     `json:"output"` // null unless the status is done
	Cut    bool    `json:"cut"`    // true if input or output is shortened
	Code   *string `json:"code"`   // error code of a failed row

	ID           *string               `json:"id"`            // null if the job has no ID column
	Finish       *rowmill.FinishReason `json:"finish_reason"` // null if the server gave none
	InputTokens  int64                 `json:"input_tokens"`
	OutputTokens int64                 `json:"output_tokens"`
	Seconds      float64               `json:"duration_seconds"` // of the last counted attempt
}

func viewPreview(n int64, row *results.PreviewRow) previewRow {
	if row == nil {
		return previewRow{Row: n, Status: rowPending}
	}
	view := previewRow{
		Row: n, Status: rowDone, Input: &row.Input, Output: exchange.ToDecimals(row.Output), Cut: row.Cut,
		InputTokens: row.InputTokens, OutputTokens: row.OutputTokens, Seconds: row.Seconds,
	}
	if row.ID != "" {
		view.ID = &row.ID
	}
	if row.Finish != "" {
		view.Finish = &row.Finish
	}
	if row.Code != "" {
		view.Status, view.Code = rowFailed, &row.Code
	}
	return view
}

// showPreview answers GET /v1/jobs/{job_id}/preview with a range of rows. Rows that are not
// committed have the status pending; with done=true they are left out, as are, with a filter,
// rows that the filter does not select.
func (r *Rows) showPreview(c *gin.Context) (any, error) {
	var p request.Problems
	offset := exchange.QueryInt(c, &p, "offset", 0, 0, store.MaxRows)
	limit := exchange.QueryInt(c, &p, "limit", defaultPreview, 1, maxPreview)
	read := r.Archive.ReadPreview
	if exchange.QueryBool(c, &p, "done") {
		read = r.Archive.ReadDone
	}
	filter := parseFilter(c, &p)
	if !filter.IsEmpty() {
		read = func(ctx context.Context, record store.Record, offset, limit int64) (archive.Preview, error) {
			return r.Archive.FindRows(ctx, record, filter, offset, limit)
		}
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	record, err := r.Jobs.FindInPath(c)
	if err == nil {
		err = checkFilter(&filter, record)
	}
	if err != nil {
		return nil, err
	}
	found := archive.Preview{Record: record, End: offset}
	if record.IsCutIntoShards() || record.DataRemoved != nil {
		if found, err = read(c.Request.Context(), record, offset, limit); err != nil {
			return nil, err
		}
	}
	job := found.Record.Job
	views := make([]previewRow, len(found.Rows))
	for i, row := range found.Rows {
		n := offset + int64(i)
		if row != nil {
			n = row.Row
		}
		views[i] = viewPreview(n, row)
	}
	body := gin.H{
		"rows": views, "next_offset": nil, "status": jobs.NewView(caller.PrincipalOf(c), &job).Status,
		"num_rows": job.NumRows, "rows_done": job.RowsDone,
	}
	if total := job.NumRows; total != nil && found.Record.IsCutIntoShards() && found.End < *total {
		body["next_offset"] = found.End
	}
	return body, nil
}
