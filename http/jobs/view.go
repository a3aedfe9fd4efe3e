package jobs

import (
	"bytes"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/sdk"
)

// View is a job as the API shows it. The fields below rowmill.Job replace the job's
// fields with the same JSON names.
type View struct {
	rowmill.Job
	Account      string            `json:"account,omitempty"` // set if the request names an account
	JobCost      *exchange.Decimal `json:"job_cost"`
	CostEstimate *exchange.Decimal `json:"cost_estimate"`
	Estimate     *estimateView     `json:"estimate"`
}

type estimateView struct {
	rowmill.Estimate
	Low  *exchange.Decimal `json:"low"` // null if the model has no price
	High *exchange.Decimal `json:"high"`
}

// NewView returns a job in the form of the caller's dialect.
func NewView(who caller.Principal, record *rowmill.Job) View {
	job := *record
	if who.Dialect == sdk.Name {
		job = sdk.ToSDKJob(job)
	}
	job.Warnings = exchange.OrEmptyList(job.Warnings)
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

// newListItem returns a job in the form that lists have in the caller's dialect. account is the
// account of the job that the answer shows, or empty.
func newListItem(who caller.Principal, job *rowmill.Job, account string) (any, error) {
	view := NewView(who, job)
	view.Account = account
	if who.Dialect == sdk.Name {
		return sdk.ToSDKListItem(view)
	}
	return view, nil
}

const (
	// minEncoded is how many encoded jobs the cache keeps at least: enough for a few pages that
	// clients list again and again.
	minEncoded = 512
	// maxEncodedBytes limits the size of one encoded job in the cache. Most encoded jobs
	// have 1 KB, so minEncoded of them take about 0.5 MB.
	maxEncodedBytes = 4 << 10
)

// encode returns the result of newListItem as JSON. It caches the texts of ended jobs. The
// cache key is the pointer to the job, because the store returns the same pointer until
// the job changes (see store.Jobs).
func (j *Jobs) encode(who caller.Principal, job *rowmill.Job, account string) ([]byte, error) {
	cached := who.Dialect != sdk.Name && account == "" && job.Status.IsTerminal()
	if text, known := j.encoded.Get(job); cached && known {
		return text, nil
	}
	view, err := newListItem(who, job, account)
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
