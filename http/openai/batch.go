package openai

import (
	"context"
	"encoding/json"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/batch"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/store"
)

// Statuses of a batch in OpenAI's API.
const (
	statusValidating = "validating"
	statusInProgress = "in_progress"
	statusFinalizing = "finalizing"
	statusCompleted  = "completed"
	statusFailed     = "failed"
	statusExpired    = "expired"
	statusCancelling = "cancelling"
	statusCancelled  = "cancelled"
)

// batchView is a batch as OpenAI's API shows it. In OpenAI's OpenAPI document only the
// metadata may be null, so other members without a value are left out.
type batchView struct {
	ID               string            `json:"id"`
	Object           string            `json:"object"`
	Endpoint         string            `json:"endpoint"`
	Model            string            `json:"model"`
	Errors           *errorList        `json:"errors,omitempty"`
	InputFileID      string            `json:"input_file_id"`
	CompletionWindow string            `json:"completion_window"`
	Status           string            `json:"status"`
	OutputFileID     string            `json:"output_file_id,omitempty"`
	ErrorFileID      string            `json:"error_file_id,omitempty"`
	CreatedAt        int64             `json:"created_at"`
	InProgressAt     *int64            `json:"in_progress_at,omitempty"`
	ExpiresAt        *int64            `json:"expires_at,omitempty"`
	FinalizingAt     *int64            `json:"finalizing_at,omitempty"`
	CompletedAt      *int64            `json:"completed_at,omitempty"`
	FailedAt         *int64            `json:"failed_at,omitempty"`
	ExpiredAt        *int64            `json:"expired_at,omitempty"`
	CancellingAt     *int64            `json:"cancelling_at,omitempty"`
	CancelledAt      *int64            `json:"cancelled_at,omitempty"`
	RequestCounts    requestCounts     `json:"request_counts"` // never left out: clients read its members
	Usage            tokenUsage        `json:"usage"`
	Metadata         map[string]string `json:"metadata"`
}

// requestCounts counts a batch's requests by result. When the batch has ended, every
// request without an answer counts as failed, even if it did not run. So Completed and
// Failed then add up to Total.
type requestCounts struct {
	Total     int64 `json:"total"`
	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"`
}

type tokenUsage struct {
	InputTokens   int64              `json:"input_tokens"`
	InputDetails  inputTokenDetails  `json:"input_tokens_details"`
	OutputTokens  int64              `json:"output_tokens"`
	OutputDetails outputTokenDetails `json:"output_tokens_details"`
	TotalTokens   int64              `json:"total_tokens"`
}

type inputTokenDetails struct {
	Cached int64 `json:"cached_tokens"`
}

type outputTokenDetails struct {
	Reasoning int64 `json:"reasoning_tokens"`
}

// errorList is a list of errors in the form of OpenAI's API.
type errorList struct {
	Object string       `json:"object"`
	Data   []batchError `json:"data"`
}

type batchError struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
	Line    *int64  `json:"line"` // number of the line in the input file, from 1
}

// finalizeAndView returns a batch as OpenAI's API shows it. If the batch has ended and its files
// can be made now, finalizeAndView makes the files first.
func (d *Dialect) finalizeAndView(ctx context.Context, record store.Record) (batchView, error) {
	record, err := d.batches.Finalize(ctx, record)
	if err != nil {
		return batchView{}, err
	}
	return d.viewOf(record), nil
}

// viewOf returns a batch as OpenAI's API shows it. It makes no files.
func (d *Dialect) viewOf(record store.Record) batchView {
	job, raw := record.Job, record.Spec.Raw
	v := batchView{
		ID: d.batches.BatchID(job.ID), Object: "batch", Endpoint: raw.Path, Model: job.Model, InputFileID: raw.InputFile,
		CompletionWindow: raw.Window, Status: batchStatusOf(record), CreatedAt: job.Created.Unix(), InProgressAt: unixTime(job.Started),
		ExpiresAt: unixTime(raw.Deadline), Metadata: raw.Metadata,
		Usage: tokenUsage{InputTokens: exchange.OrZero(job.InputTokens), OutputTokens: exchange.OrZero(job.OutputTokens)},
	}
	v.Usage.TotalTokens = v.Usage.InputTokens + v.Usage.OutputTokens
	v.RequestCounts = countsOf(job, v.Status)
	v.setEndTimes(job.Completed)
	if batch.IsFinalized(record) {
		files := filesOfBatch(record)
		if files.output {
			v.OutputFileID = resultFileID(job.ID, outcomeOutput)
		}
		if files.errors {
			v.ErrorFileID = resultFileID(job.ID, outcomeErrors)
		}
	}
	if v.Status == statusFailed {
		v.Errors = &errorList{Object: "list", Data: errorsOf(job.FailureReason)}
	}
	return v
}

// countsOf returns the request counts of a batch. status is the batch's status in
// OpenAI's API.
func countsOf(job rowmill.Job, status string) requestCounts {
	counts := requestCounts{Total: exchange.OrZero(job.NumRows), Completed: job.RowsDone - job.FailedRows, Failed: job.FailedRows}
	switch status {
	case statusCompleted, statusFailed, statusExpired, statusCancelled:
		counts.Failed = counts.Total - counts.Completed
	}
	return counts
}

// setEndTimes sets the times in the view that depend on the end of the job: ended, or
// nil.
func (v *batchView) setEndTimes(ended *time.Time) {
	at := unixTime(ended)
	switch v.Status {
	case statusFinalizing:
		v.FinalizingAt = at
	case statusCompleted:
		v.FinalizingAt, v.CompletedAt = at, at
	case statusFailed:
		v.FailedAt = at
	case statusExpired:
		v.FinalizingAt, v.ExpiredAt = at, at
	case statusCancelling:
		v.CancellingAt = at
	case statusCancelled:
		v.CancellingAt, v.CancelledAt = at, at
	}
}

// batchStatusOf returns the status of a batch in OpenAI's API.
func batchStatusOf(record store.Record) string {
	finalized := batch.IsFinalized(record)
	switch job := record.Job; job.Status {
	case rowmill.StatusSucceeded:
		if finalized {
			return statusCompleted
		}
		return statusFinalizing
	case rowmill.StatusCancelled:
		if finalized {
			return statusCancelled
		}
		return statusCancelling
	case rowmill.StatusFailed:
		switch {
		case batch.NotRunCauseOf(job) != batch.Expired:
			return statusFailed
		case finalized:
			return statusExpired
		}
		return statusFinalizing
	case rowmill.StatusRunning:
		return statusInProgress
	default:
		return statusValidating // also while the job waits for a server, because in_progress_at is the time of the first request
	}
}

// errorsOf returns the errors of a failed batch: one error per invalid line of its
// input, or one error for the whole batch.
func errorsOf(reason *rowmill.Failure) []batchError {
	if reason == nil {
		return []batchError{}
	}
	if reason.Code == rowmill.CodeInvalidInputFile {
		var lines []batchError
		if err := json.Unmarshal([]byte(reason.AdditionalContext), &lines); err == nil && len(lines) > 0 {
			return lines
		}
	}
	return []batchError{{Code: reason.Code, Message: reason.Message}}
}
