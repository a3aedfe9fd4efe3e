package jobs

import (
	"bytes"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/sdk"
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

const (
	// minEncoded is the least number of cached texts: enough for a few pages that are
	// listed again and again.
	minEncoded = 512
	// maxEncodedBytes limits the size of a cached text. Most texts have 1 KB, so minEncoded
	// of them take about 0.5 MB.
	maxEncodedBytes = 4 << 10
)

// encode returns the result of listed as JSON. It caches ended jobs by record: the store
// returns the same record until it changes (store.Jobs).
func (j *Jobs) encode(who caller.Principal, job *rowmill.Job) ([]byte, error) {
	cached := who.Dialect != sdk.Name && job.Status.Terminal()
	if text, known := j.encoded.Get(job); cached && known {
		return text, nil
	}
	view, err := listed(who, job)
	if err != nil {
		return nil, err
	}
	text, err := exchange.Encode(view)
	text = bytes.TrimSuffix(text, []byte("\n"))
	if err == nil && cached && len(text) <= maxEncodedBytes {
		j.encoded.Put(job, text)
	}
	return text, err
}
