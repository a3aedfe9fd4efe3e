package http

import (
	"context"
	"errors"
	"fmt"
	nethttp "net/http"
	"sort"
	"strconv"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

const (
	// defaultPreview and maxPreview are rows of a preview.
	defaultPreview = 100
	maxPreview     = 1000
	// maxPreviewParts is how many parts a preview reads: rows that run at the
	// same time lie in parts of many sizes. A page that needs more is shorter.
	maxPreviewParts = 64
)

// The states of a row in a preview.
const (
	rowDone    = "done"
	rowFailed  = "failed"
	rowPending = "pending"
)

// previewRow is a row as a preview shows it.
type previewRow struct {
	Row    int64   `json:"row"`
	Status string  `json:"status"`
	Input  *string `json:"input"`  // null while the row is pending
	Output any     `json:"output"` // null unless the row is done
	Cut    bool    `json:"cut"`    // input or output is longer than what is shown
	Code   *string `json:"code"`   // of a failed row
}

// preview answers GET /v1/jobs/{job_id}/preview: what is committed of some
// rows, from the results of a succeeded job, otherwise from the parts.
func (s *Server) preview(c *gin.Context) {
	var p problems
	offset := queryInt(c, &p, "offset", 0, 0, store.MaxRows)
	limit := queryInt(c, &p, "limit", defaultPreview, 1, maxPreview)
	if err := p.err(); err != nil {
		s.fail(c, err)
		return
	}
	var body gin.H
	err := s.readRows(c, func(record store.Record) error {
		rows, end, err := s.previewOf(c.Request.Context(), record, offset, limit)
		body = gin.H{
			"rows": rows, "next_offset": nil, "status": caller(c).view(record.Job).Status,
			"num_rows": record.Job.NumRows, "rows_done": record.Job.RowsDone,
		}
		if total := record.Job.NumRows; total != nil && end < *total {
			body["next_offset"] = end
		}
		return err
	})
	if err != nil {
		s.fail(c, err)
		return
	}
	answer(c, nethttp.StatusOK, body)
}

// queryInt reads a parameter between two bounds, both included.
func queryInt(c *gin.Context, p *problems, name string, absent, low, high int64) int64 {
	text, given := c.GetQuery(name)
	if !given {
		return absent
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		p.add(name, "is %q; it must be an integer from %d to %d", shorten(text, 32), low, high)
	}
	return n
}

// previewOf returns rows from offset on, and the first row behind them.
func (s *Server) previewOf(ctx context.Context, record store.Record, offset, limit int64) (rows []previewRow, end int64, err error) {
	end = offset
	if total := record.Job.NumRows; total != nil {
		end = max(offset, min(offset+limit, *total))
	}
	rows = make([]previewRow, end-offset)
	for i := range rows {
		rows[i] = previewRow{Row: offset + int64(i), Status: rowPending}
	}
	full, finished := record.Artifacts[artifactFull]
	switch {
	case len(rows) == 0:
		return rows, end, nil
	case !finished:
		return s.previewParts(ctx, record.Job.ID, rows, offset)
	}
	err = s.withObjects(ctx, func(files []results.Source) error {
		found, err := results.PreviewResults(ctx, files[0], files[1], offset, end)
		fillPreview(rows, found)
		return err
	}, full.Key, record.Artifacts[artifactRows].Key)
	return rows, end, err
}

// fillPreview puts what was found into rows, which begin with row rows[0].Row.
func fillPreview(rows []previewRow, found []results.PreviewRow) {
	for _, f := range found {
		view := &rows[f.Row-rows[0].Row]
		view.Status, view.Input, view.Output, view.Cut = rowDone, &f.Input, f.Output, f.Cut
		if vector, isVector := f.Output.([]float32); isVector {
			numbers := make([]decimal32, len(vector))
			for i, n := range vector {
				numbers[i] = decimal32(n)
			}
			view.Output = numbers
		}
		if f.Code != "" {
			view.Status, view.Code = rowFailed, &f.Code
		}
	}
}

// previewParts fills rows from a job's parts. Which part holds a row its record
// says; where a shard begins, its first part.
func (s *Server) previewParts(ctx context.Context, jobID string, rows []previewRow, offset int64) ([]previewRow, int64, error) {
	parts, err := s.Store.ListParts(ctx, jobID)
	if err != nil {
		return nil, 0, fmt.Errorf("list parts: %w", err)
	}
	end := offset + int64(len(rows))
	holders := make([]string, len(rows)) // keys of parts
	shards := byShard(parts)
	firsts := map[int]int64{}
	first := func(i int) int64 { // of a shard; the error is kept
		row, known := firsts[i]
		if !known && err == nil {
			row, err = s.firstOfShard(ctx, shards[i][0])
			firsts[i] = row
		}
		return row
	}
	begin := sort.Search(len(shards), func(i int) bool { return first(i) > offset })
	for i := max(0, begin-1); i < len(shards) && err == nil && first(i) < end; i++ {
		for _, part := range shards[i] {
			if err == nil {
				err = noteHolder(holders, part, first(i)-offset)
			}
		}
	}
	if err != nil {
		return nil, 0, err
	}
	rows = rows[:withinParts(holders)]
	wanted := map[string][]int64{}
	for i, key := range holders[:len(rows)] {
		if key != "" {
			wanted[key] = append(wanted[key], offset+int64(i))
		}
	}
	for key, numbers := range wanted {
		err := s.withObjects(ctx, func(files []results.Source) error {
			found, err := results.PreviewPart(ctx, files[0], numbers)
			fillPreview(rows, found)
			return err
		}, key)
		if err != nil {
			return nil, 0, err
		}
	}
	return rows, offset + int64(len(rows)), nil
}

// byShard groups parts, which are in the order of their shards.
func byShard(parts []store.Part) [][]store.Part {
	var shards [][]store.Part
	for _, part := range parts {
		if n := len(shards); n > 0 && shards[n-1][0].Shard == part.Shard {
			shards[n-1] = append(shards[n-1], part)
		} else {
			shards = append(shards, []store.Part{part})
		}
	}
	return shards
}

// firstOfShard is the first row of the shard of a part that was committed
// before all others of it: then all its rows are accepted.
func (s *Server) firstOfShard(ctx context.Context, part store.Part) (row int64, err error) {
	accepted, err := acceptedRows(part)
	if err != nil {
		return 0, err
	}
	err = s.withObjects(ctx, func(files []results.Source) error {
		row, err = results.FirstRow(files[0])
		return err
	}, part.Key)
	return row - int64(accepted.Minimum()), err
}

// acceptedRows are the rows that a part is accepted for, within its shard.
func acceptedRows(part store.Part) (*roaring.Bitmap, error) {
	rows := roaring.New()
	if part.Complete || len(part.Accepted) == 0 {
		rows.AddRange(0, uint64(max(1, part.Rows)))
		return rows, nil
	}
	err := rows.UnmarshalBinary(part.Accepted)
	if err == nil && rows.IsEmpty() {
		err = errors.New("there are none")
	}
	if err != nil {
		return nil, fmt.Errorf("read the rows of part %s: %w", part.Key, err)
	}
	return rows, nil
}

// noteHolder enters a part where it holds a row. at is the place of its shard's
// first row among the holders, which may lie before them.
func noteHolder(holders []string, part store.Part, at int64) error {
	accepted, err := acceptedRows(part)
	if err != nil {
		return err
	}
	for i := range holders {
		if within := int64(i) - at; within >= 0 && accepted.Contains(uint32(within)) {
			holders[i] = part.Key
		}
	}
	return nil
}

// withinParts is how many rows can be shown from maxPreviewParts parts.
func withinParts(holders []string) int {
	seen := map[string]bool{"": true}
	for i, key := range holders {
		if seen[key] = true; len(seen) > maxPreviewParts+1 {
			return i
		}
	}
	return len(holders)
}
