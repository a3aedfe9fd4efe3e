package anthropic

import (
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/batch"
	"github.com/rowmill/rowmill/store"
)

// Statuses of a batch in Anthropic's API.
const (
	statusInProgress = "in_progress"
	statusCanceling  = "canceling"
	statusEnded      = "ended"
)

// batchView is a batch as Anthropic's API shows it.
type batchView struct {
	ID              string        `json:"id"`
	Type            string        `json:"type"` // "message_batch"
	Status          string        `json:"processing_status"`
	Counts          requestCounts `json:"request_counts"`
	Created         time.Time     `json:"created_at"`
	Expires         *time.Time    `json:"expires_at"`
	Ended           *time.Time    `json:"ended_at"`
	CancelInitiated *time.Time    `json:"cancel_initiated_at"`
	Archived        *time.Time    `json:"archived_at"`
	ResultsURL      *string       `json:"results_url"` // relative, so that it works behind every proxy
}

// requestCounts counts a batch's requests by result. All requests count as processing
// until the batch has ended. The sum of all counts never changes.
type requestCounts struct {
	Processing int64 `json:"processing"`
	Succeeded  int64 `json:"succeeded"`
	Errored    int64 `json:"errored"`
	Canceled   int64 `json:"canceled"`
	Expired    int64 `json:"expired"`
}

// listView is one page of a list as Anthropic's API shows it.
type listView[T any] struct {
	Data    []T     `json:"data"`
	HasMore bool    `json:"has_more"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
}

func newList[T any](data []T, more bool, id func(*T) *string) listView[T] {
	list := listView[T]{Data: data, HasMore: more}
	if n := len(data); n > 0 {
		list.FirstID, list.LastID = id(&data[0]), id(&data[n-1])
	}
	return list
}

// view returns the batch that a job's record describes, as Anthropic's API shows it.
func (d *Dialect) view(record store.Record) batchView {
	job, raw := record.Job, record.Spec.Raw
	v := batchView{
		ID: d.batches.BatchID(job.ID), Type: "message_batch", Status: statusInProgress,
		Counts: requestCounts{Processing: raw.Requests}, Created: job.Created, Expires: raw.Deadline, Archived: record.DataRemoved,
	}
	if job.Status == rowmill.StatusCancelled {
		v.CancelInitiated, v.Status = job.Completed, statusCanceling
	}
	if !batch.IsFinalized(record) {
		return v
	}
	v.Status, v.Ended = statusEnded, job.Completed
	v.Counts = requestCounts{Succeeded: job.RowsDone - job.FailedRows, Errored: job.FailedRows}
	*v.Counts.notRunCount(record.Job) += raw.Requests - job.RowsDone
	if record.DataRemoved == nil {
		url := "/v1/messages/batches/" + v.ID + "/results"
		v.ResultsURL = &url
	}
	return v
}

// notRunCount returns a pointer to the count of the requests that an ended job did not run:
// Canceled, Expired or Errored.
func (r *requestCounts) notRunCount(job rowmill.Job) *int64 {
	switch notRunResultType(job) {
	case resultCanceled:
		return &r.Canceled
	case resultExpired:
		return &r.Expired
	}
	return &r.Errored
}

// Result types of the requests of a batch in Anthropic's API.
const (
	resultSucceeded = "succeeded"
	resultErrored   = "errored"
	resultCanceled  = "canceled"
	resultExpired   = "expired"
)

// notRunResultType returns the result type of requests that an ended job did not run.
func notRunResultType(job rowmill.Job) string {
	switch batch.NotRunCauseOf(job) {
	case batch.Cancelled:
		return resultCanceled
	case batch.Expired:
		return resultExpired
	default:
		return resultErrored
	}
}
