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
	Low  *exchange.Decimal `json:"low"` // null where the model has no price
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

// listed is ViewOf for a list.
func listed(who caller.Principal, job *rowmill.Job) (any, error) {
	if who.Dialect == sdk.Name {
		return sdk.Listed(ViewOf(who, job))
	}
	return ViewOf(who, job), nil
}

// appendListed appends listed as JSON.
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
	// spelledJobs is how many texts of listed jobs are kept at least: a few pages that
	// are listed again and again.
	spelledJobs = 512
	// spelledBytes bounds a kept text. Most have 1 KB, so all take about 1 MB.
	spelledBytes = 4 << 10
)

// spelled keeps the JSON of listed jobs that are over, by record. The store returns the
// same record until it changes (store.Jobs).
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
