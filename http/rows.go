package http

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	nethttp "net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

const (
	// maxErrorsPage bounds a page of failed rows: each may carry 64 KiB of
	// what the engine returned.
	maxErrorsPage = 100
	// rereads is how often a job is looked at again because its parts were
	// merged, or the job finished, while they were being read.
	rereads = 5
)

// getRow shows one row of a job that is done, from the result files of a
// succeeded job, otherwise from its parts.
func (s *Server) getRow(c *gin.Context) {
	n, err := strconv.ParseInt(c.Param("row"), 10, 64)
	if err != nil || n < 0 {
		s.fail(c, rowmill.Invalid("row", "is %q; it must be the number of a row, from 0", shorten(c.Param("row"), 32)))
		return
	}
	var view results.RowView
	err = s.readRows(c, func(record store.Record) (err error) {
		view, err = s.row(c.Request.Context(), record, n)
		return err
	})
	if err != nil {
		s.fail(c, err)
		return
	}
	showVector(&view)
	answer(c, nethttp.StatusOK, view)
}

// showVector makes the numbers of an embedding decimals.
func showVector(view *results.RowView) {
	vector, isVector := view.Output.([]float32)
	if !isVector {
		return
	}
	numbers := make([]decimal32, len(vector))
	for i, f := range vector {
		numbers[i] = decimal32(f)
	}
	view.Output = numbers
}

// errMoved says that an object was gone that a record just named.
var errMoved = errors.New("an object was replaced while it was being read")

// readRows runs read on the job, again where what it reads moved away.
func (s *Server) readRows(c *gin.Context, read func(store.Record) error) error {
	for range rereads {
		record, err := s.findJob(c)
		if err != nil {
			return err
		}
		if record.DataRemoved != nil {
			return errGone()
		}
		if err = read(record); !errors.Is(err, errMoved) {
			return err
		}
	}
	return errorf(nethttp.StatusServiceUnavailable, "busy", "the job's rows are being merged; try again")
}

func (s *Server) row(ctx context.Context, record store.Record, n int64) (view results.RowView, err error) {
	missing := errorf(nethttp.StatusNotFound, "row_not_found", "the job has no row %d", n)
	if total := record.Job.NumRows; total != nil {
		if n >= *total {
			missing.message += fmt.Sprintf("; its rows are numbered 0 to %d", *total-1)
			return view, missing
		}
	}
	if record.Job.Status == rowmill.StatusSucceeded {
		err = s.withObjects(ctx, func(files []results.Source) error {
			view, err = results.ReadRow(files[0], files[1], n)
			return err
		}, record.Artifacts[artifactFull].Key, record.Artifacts[artifactRows].Key)
		if errors.Is(err, rowmill.ErrNotFound) {
			err = missing
		}
		return view, err
	}
	parts, err := s.Store.ListParts(ctx, record.Job.ID)
	if err != nil {
		return view, fmt.Errorf("list parts: %w", err)
	}
	// Of several parts with the row the first in the order of commit counts.
	for _, part := range parts {
		err := s.withObjects(ctx, func(files []results.Source) error {
			view, err = results.FindRow(files[0], n)
			return err
		}, part.Key)
		if !errors.Is(err, rowmill.ErrNotFound) {
			return view, err
		}
	}
	return view, errorf(nethttp.StatusConflict, "row_not_done",
		"row %d is not done; the job is %s", n, record.Job.Status).with("status", record.Job.Status)
}

// withObjects opens objects, hands them to read and closes them. An object
// that is missing, or is deleted meanwhile, is errMoved.
func (s *Server) withObjects(ctx context.Context, read func([]results.Source) error, keys ...string) error {
	files := make([]results.Source, 0, len(keys))
	for _, key := range keys {
		object, err := s.Bucket.Open(ctx, key)
		if errors.Is(err, rowmill.ErrNotFound) {
			return errMoved
		}
		if err != nil {
			return fmt.Errorf("open %s: %w", key, err)
		}
		defer object.Close()
		files = append(files, object)
	}
	err := read(files)
	if errors.Is(err, blob.ErrLost) {
		return errMoved
	}
	return err
}

// listErrors pages through the rows that failed.
func (s *Server) listErrors(c *gin.Context) {
	var p problems
	limit := maxErrorsPage
	if text, given := c.GetQuery("limit"); given {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxErrorsPage {
			p.add("limit", "is %q; it must be an integer from 1 to %d", shorten(text, 32), maxErrorsPage)
		}
		limit = n
	}
	shard, after, ok := parseErrorsCursor(c.Query("cursor"))
	if !ok {
		p.add("cursor", "is not a cursor of this list; send the next_cursor of the page before, unchanged")
	}
	if err := p.err(); err != nil {
		s.fail(c, err)
		return
	}
	var page failurePage
	err := s.readRows(c, func(record store.Record) (err error) {
		page = failurePage{limit: limit, shard: shard, after: after}
		if record.Job.Status == rowmill.StatusSucceeded {
			return s.failuresOfResults(c.Request.Context(), record, &page)
		}
		return s.failuresOfParts(c.Request.Context(), record.Job.ID, &page)
	})
	if err != nil {
		s.fail(c, err)
		return
	}
	answer(c, nethttp.StatusOK, page.body())
}

// A failurePage gathers a page and the one row that shows there is another.
type failurePage struct {
	limit int
	shard int   // parts of earlier shards hold nothing of the page
	after int64 // the last row of the page before, or -1
	found []results.Failure
}

func (p *failurePage) full() bool { return len(p.found) > p.limit }

// take adds failures and keeps the first of all.
func (p *failurePage) take(failures []results.Failure) {
	p.found = append(p.found, failures...)
	slices.SortFunc(p.found, func(a, b results.Failure) int { return cmp.Compare(a.Row, b.Row) })
	p.found = slices.CompactFunc(p.found, func(a, b results.Failure) bool { return a.Row == b.Row })
	p.found = p.found[:min(len(p.found), p.limit+1)]
}

func (p *failurePage) body() gin.H {
	body := gin.H{"errors": p.found, "next_cursor": nil}
	if p.full() {
		body["errors"] = p.found[:p.limit]
		body["next_cursor"] = fmt.Sprintf("%d.%d", p.shard, p.found[p.limit-1].Row)
	}
	if len(p.found) == 0 {
		body["errors"] = []results.Failure{}
	}
	return body
}

func parseErrorsCursor(cursor string) (shard int, after int64, ok bool) {
	if cursor == "" {
		return 0, -1, true
	}
	first, second, _ := strings.Cut(cursor, ".")
	shard, err := strconv.Atoi(first)
	if err != nil || shard < 0 {
		return 0, 0, false
	}
	after, err = strconv.ParseInt(second, 10, 64)
	return shard, after, err == nil && after >= 0
}

func (s *Server) failuresOfResults(ctx context.Context, record store.Record, page *failurePage) error {
	return s.withObjects(ctx, func(files []results.Source) error {
		failures, _, err := results.Failures(ctx, files[0], page.after, page.limit+1)
		page.take(failures)
		return err
	}, record.Artifacts[artifactRows].Key)
}

// failuresOfParts reads shard by shard: shards are in the order of the rows.
func (s *Server) failuresOfParts(ctx context.Context, jobID string, page *failurePage) error {
	parts, err := s.Store.ListParts(ctx, jobID)
	if err != nil {
		return fmt.Errorf("list parts: %w", err)
	}
	for from := 0; from < len(parts) && !page.full(); {
		to := from
		for to < len(parts) && parts[to].Shard == parts[from].Shard {
			to++
		}
		if parts[from].Shard >= page.shard {
			page.shard = parts[from].Shard
			if err := s.failuresOfShard(ctx, parts[from:to], page); err != nil {
				return err
			}
		}
		from = to
	}
	return nil
}

// failuresOfShard leaves out failures that do not count because an earlier
// part holds the row.
func (s *Server) failuresOfShard(ctx context.Context, parts []store.Part, page *failurePage) error {
	for i, part := range parts {
		if part.Totals.Failed == 0 {
			continue
		}
		if err := s.failuresOfPart(ctx, part, parts[:i], page); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) failuresOfPart(ctx context.Context, part store.Part, earlier []store.Part, page *failurePage) error {
	for after := page.after; ; {
		var failures []results.Failure
		next := int64(-1)
		err := s.withObjects(ctx, func(files []results.Source) (err error) {
			failures, next, err = results.Failures(ctx, files[0], after, page.limit+1)
			return err
		}, part.Key)
		if err != nil {
			return err
		}
		for _, failure := range failures {
			counts, err := s.firstToHold(ctx, earlier, failure.Row)
			if err != nil {
				return err
			}
			if counts {
				page.take([]results.Failure{failure})
			}
		}
		if after = next; after < 0 || page.full() && page.found[page.limit].Row <= after {
			return nil
		}
	}
}

// firstToHold reports that none of the parts holds the row.
func (s *Server) firstToHold(ctx context.Context, parts []store.Part, row int64) (bool, error) {
	for _, part := range parts {
		err := s.withObjects(ctx, func(files []results.Source) error {
			_, err := results.FindRow(files[0], row)
			return err
		}, part.Key)
		if !errors.Is(err, rowmill.ErrNotFound) {
			return false, err
		}
	}
	return true, nil
}
