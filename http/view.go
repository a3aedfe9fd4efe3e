package http

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/http/sdk"
	"github.com/rowmill/rowmill/internal/memo"
	"github.com/rowmill/rowmill/internal/spelling"
)

// jobView is a job as the API shows it. The fields below stand in for those of
// the same name in the job.
type jobView struct {
	rowmill.Job
	JobCost      *exchange.Decimal `json:"job_cost"`
	CostEstimate *exchange.Decimal `json:"cost_estimate"`
	Estimate     *estimateView     `json:"estimate"`
}

type estimateView struct {
	rowmill.Estimate
	Low  *exchange.Decimal `json:"low"` // null where the model has no price
	High *exchange.Decimal `json:"high"`
}

// speaksSDK reports whether a request is in the dialect of existing clients.
func speaksSDK(c *gin.Context) bool { return caller(c).dialect == sdk.Name }

// view puts a job's record into the dialect of a key.
func (who principal) view(record *rowmill.Job) jobView {
	job := *record
	if who.dialect == sdk.Name {
		job = sdk.Job(job)
	}
	if job.Warnings == nil {
		job.Warnings = []string{}
	}
	if job.Sampling == nil {
		job.Sampling = map[string]any{}
	}
	view := jobView{Job: job, JobCost: (*exchange.Decimal)(job.JobCost), CostEstimate: (*exchange.Decimal)(job.CostEstimate)}
	if e := job.Estimate; e != nil {
		view.Estimate = &estimateView{Estimate: *e}
		if job.CostEstimate != nil {
			view.Estimate.Low, view.Estimate.High = (*exchange.Decimal)(&e.Low), (*exchange.Decimal)(&e.High)
		}
	}
	return view
}

// listed is view for a list.
func (who principal) listed(job *rowmill.Job) (any, error) {
	if who.dialect == sdk.Name {
		return sdk.Listed(who.view(job))
	}
	return who.view(job), nil
}

// appendListed appends what listed is as JSON.
func (who principal) appendListed(to []byte, job *rowmill.Job) ([]byte, error) {
	if who.dialect != sdk.Name {
		view := who.view(job)
		return view.append(to)
	}
	fields, err := who.listed(job)
	if err != nil {
		return to, err
	}
	return appendAny(to, fields)
}

const (
	// spelledJobs is how many texts of listed jobs are kept at least: some pages of
	// those who look at a list again and again.
	spelledJobs = 512
	// spelledBytes bounds a text that is kept. Most have 1 KB, so that all of them take
	// a MB.
	spelledBytes = 4 << 10
)

// spelled are the texts of jobs that are over and were listed last, by their records:
// those are the same from list to list until they change (store.Jobs).
type spelled struct {
	memo.Recent[*rowmill.Job, []byte]
}

// append is principal.appendListed.
func (s *spelled) append(to []byte, who principal, job *rowmill.Job) ([]byte, error) {
	if who.dialect == sdk.Name || !job.Status.Terminal() {
		return who.appendListed(to, job)
	}
	if text, known := s.Get(job); known {
		return append(to, text...), nil
	}
	begin := len(to)
	to, err := who.appendListed(to, job)
	if text := to[begin:]; err == nil && len(text) <= spelledBytes {
		s.Put(job, bytes.Clone(text))
	}
	return to, err
}

// orNull is a text, or nil where it is empty.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// queryInt reads a parameter between two bounds, both included.
func queryInt(c *gin.Context, p *request.Problems, name string, absent, low, high int64) int64 {
	given, there := c.GetQuery(name)
	if !there {
		return absent
	}
	n, err := strconv.ParseInt(given, 10, 64)
	if err != nil || n < low || n > high {
		p.Add(name, "is %q; it must be an integer from %d to %d", spelling.Shorten(given, 32), low, high)
	}
	return n
}

// queryOneOf reads a parameter that is empty when absent.
func queryOneOf(c *gin.Context, p *request.Problems, name string, values []string) string {
	given, there := c.GetQuery(name)
	if there && !slices.Contains(values, given) {
		p.Add(name, "is %q; it must be one of %s", spelling.Shorten(given, 32), strings.Join(values, ", "))
	}
	return given
}

// queryBool reads a parameter that is false when absent.
func queryBool(c *gin.Context, p *request.Problems, name string) bool {
	given, there := c.GetQuery(name)
	if !there {
		return false
	}
	value, err := strconv.ParseBool(given)
	if err != nil {
		p.Add(name, "is %q; it must be true or false", spelling.Shorten(given, 32))
	}
	return value
}
