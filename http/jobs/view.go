package jobs

import (
	"bytes"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/sdk"
	"github.com/rowmill/rowmill/internal/memo"
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

// View puts a job's record into the dialect of a key.
func View(who caller.Principal, record *rowmill.Job) jobView {
	job := *record
	if who.Dialect == sdk.Name {
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

// listed is viewFor for a list.
func listed(who caller.Principal, job *rowmill.Job) (any, error) {
	if who.Dialect == sdk.Name {
		return sdk.Listed(View(who, job))
	}
	return View(who, job), nil
}

// appendListed appends what listed is as JSON.
func appendListed(to []byte, who caller.Principal, job *rowmill.Job) ([]byte, error) {
	if who.Dialect != sdk.Name {
		view := View(who, job)
		return view.append(to)
	}
	fields, err := listed(who, job)
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

// append is appendListed.
func (s *spelled) append(to []byte, who caller.Principal, job *rowmill.Job) ([]byte, error) {
	if who.Dialect == sdk.Name || !job.Status.Terminal() {
		return appendListed(to, who, job)
	}
	if text, known := s.Get(job); known {
		return append(to, text...), nil
	}
	begin := len(to)
	to, err := appendListed(to, who, job)
	if text := to[begin:]; err == nil && len(text) <= spelledBytes {
		s.Put(job, bytes.Clone(text))
	}
	return to, err
}
