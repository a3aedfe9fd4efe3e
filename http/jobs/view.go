package jobs

import (
	"bytes"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/sdk"
	"github.com/rowmill/rowmill/internal/memo"
)

// View is a job in an answer. Its fields replace fields of the same name in
// rowmill.Job.
type View struct {
	rowmill.Job
	JobCost      *exchange.Decimal `json:"job_cost"`
	CostEstimate *exchange.Decimal `json:"cost_estimate"`
	Estimate     *estimateView     `json:"estimate"`
}

type estimateView struct {
	rowmill.Estimate
	Low  *exchange.Decimal `json:"low"` // null if the model has no price
	High *exchange.Decimal `json:"high"`
}

// ViewOf returns the job as the caller's dialect shows it.
func ViewOf(who caller.Principal, record *rowmill.Job) View {
	job := *record
	if who.Dialect == sdk.Name {
		job = sdk.Job(job)
	}
	job.Warnings = exchange.ListOf(job.Warnings)
	if job.Sampling == nil {
		job.Sampling = map[string]any{}
	}
	view := View{Job: job, JobCost: (*exchange.Decimal)(job.JobCost), CostEstimate: (*exchange.Decimal)(job.CostEstimate)}
	if e := job.Estimate; e != nil {
		view.Estimate = &estimateView{Estimate: *e}
		if job.CostEstimate != nil {
			view.Estimate.Low, view.Estimate.High = (*exchange.Decimal)(&e.Low), (*exchange.Decimal)(&e.High)
		}
	}
	return view
}

// listed returns the job as a list in the caller's dialect shows it.
func listed(who caller.Principal, job *rowmill.Job) (any, error) {
	if who.Dialect == sdk.Name {
		return sdk.Listed(ViewOf(who, job))
	}
	return ViewOf(who, job), nil
}

// appendListed appends the result of listed as JSON.
func appendListed(to []byte, who caller.Principal, job *rowmill.Job) ([]byte, error) {
	if who.Dialect != sdk.Name {
		view := ViewOf(who, job)
		return view.append(to)
	}
	fields, err := listed(who, job)
	if err != nil {
		return to, err
	}
	return appendAny(to, fields)
}

const (
	// minEncoded is the least number of cached texts: enough for a few pages that are
	// listed again and again.
	minEncoded = 512
	// maxEncodedBytes limits the size of a cached text. Most texts have 1 KB, so all take
	// about 1 MB.
	maxEncodedBytes = 4 << 10
)

// encodedJobs caches the JSON of ended jobs for lists, by record. The store returns the
// same record until it changes (store.Jobs).
type encodedJobs struct {
	memo.Recent[*rowmill.Job, []byte]
}

// append appends the same JSON as appendListed.
func (s *encodedJobs) append(to []byte, who caller.Principal, job *rowmill.Job) ([]byte, error) {
	if who.Dialect == sdk.Name || !job.Status.Terminal() {
		return appendListed(to, who, job)
	}
	if text, known := s.Get(job); known {
		return append(to, text...), nil
	}
	begin := len(to)
	to, err := appendListed(to, who, job)
	if text := to[begin:]; err == nil && len(text) <= maxEncodedBytes {
		s.Put(job, bytes.Clone(text))
	}
	return to, err
}
