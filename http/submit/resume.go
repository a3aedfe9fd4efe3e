package submit

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/http/submission"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// Values of the field rows: the rows that the new job runs.
const (
	rowsMissing = "missing" // only rows that the old job has not committed
	rowsFailed  = "failed"  // the missing rows, and rows that the old job has committed with an error
	rowsRest    = "rest"    // the failed rows, and rows of the input that the old job's limit left out
)

// resumeHandler creates jobs that continue other jobs.
type resumeHandler struct {
	*Submissions
	archive *archive.Archive
}

// resumeRequest is the body of a request to resume a job.
type resumeRequest struct {
	rows      string // empty if absent
	priority  *rowmill.Priority
	name      *string
	maxTokens int64 // new length limit of answers; 0 if absent
	again     bool  // resume the job even if another job already continues it
}

// resume answers POST /v1/jobs/{job_id}/resume: a new job reuses the committed rows
// of an ended job and runs the other rows.
func (r *resumeHandler) resume(c *gin.Context) (any, error) {
	if err := r.CheckAccepting(c); err != nil {
		return nil, err
	}
	idem, sum, err := r.readIdempotency(c)
	if err != nil {
		return nil, err
	}
	want, err := r.readResumeRequest(c)
	if err != nil {
		return nil, err
	}
	old, err := r.Jobs.FindInPath(c)
	if err != nil {
		return nil, err
	}
	ctx := c.Request.Context()
	if idem != nil {
		fmt.Fprintf(sum, "resume %s %q", old.Job.ID, want)
		idem.BodyHash = hex.EncodeToString(sum.Sum(nil))
		first, err := r.Store.Lookup(ctx, old.Spec.Account, *idem)
		if !errors.Is(err, rowmill.ErrNotFound) {
			return resumeAnswer(first, true), idempotencyError(err)
		}
	}
	if n := old.Job.NumRows; n != nil && old.Job.RowsDone >= *n && old.Job.Status != rowmill.StatusSucceeded {
		if old, err = r.archive.MarkLostParts(ctx, old, nil); err != nil { // all rows were done, so an unreadable part may be why the job failed
			return nil, err
		}
	}
	record, err := newContinuation(old, want, r.Now())
	if err != nil {
		return nil, err
	}
	if err := r.Quotas.ApplyQuotas(ctx, old.Spec.Account, &record.Spec); err != nil {
		return nil, err
	}
	stored, repeated, err := r.storeJobRecord(ctx, caller.PrincipalOf(c), record, idem)
	if err != nil {
		return nil, err
	}
	switch {
	case !repeated:
		r.Service.NotifySubmitted(stored)
	case !isSameContinuation(stored, record):
		return nil, request.Errorf(http.StatusConflict, "already_continued",
			`%s already continues the job, with other rows, priority, name or max_tokens; use that job, or send {"again": true} to continue the job once more`, stored.Job.ID).
			WithField("job_id", stored.Job.ID)
	}
	return resumeAnswer(stored, repeated), nil
}

// isSameContinuation reports whether two jobs that continue the same job were created by
// equal requests.
func isSameContinuation(a, b store.Record) bool {
	return a.Spec.Continue.Failed == b.Spec.Continue.Failed && a.Spec.Continue.Rest == b.Spec.Continue.Rest && a.Spec.Priority == b.Spec.Priority &&
		a.Spec.MaxTokens() == b.Spec.MaxTokens() &&
		exchange.OrZero(a.Job.Name) == exchange.OrZero(b.Job.Name)
}

// String returns a text of the request. Equal requests have equal texts.
func (a resumeRequest) String() string {
	text := a.rows
	if a.priority != nil {
		text += " priority " + strconv.Itoa(int(*a.priority))
	}
	if a.name != nil {
		text += " name " + *a.name
	}
	if a.maxTokens > 0 {
		text += " max_tokens " + strconv.FormatInt(a.maxTokens, 10)
	}
	if a.again {
		text += " again"
	}
	return text
}

// resumeAnswer returns the answer to a request that resumed a job with record. repeated is
// true if an earlier request created the record.
func resumeAnswer(record store.Record, repeated bool) gin.H {
	message := "The job was created. It keeps the finished rows of the job before, and runs the other rows."
	if repeated {
		message = "An earlier request created this job; nothing was created now."
	}
	return gin.H{"metadata": gin.H{"job_id": record.Job.ID, "message": message}, "results": record.Job.ID}
}

// readResumeRequest reads and checks the body of a request to resume a job. The body may be empty.
func (r *resumeHandler) readResumeRequest(c *gin.Context) (want resumeRequest, err error) {
	if c.Request.ContentLength == 0 {
		return want, nil // all fields are optional
	}
	body, err := r.ReadObject(c, exchange.SmallObject)
	if err != nil {
		return want, err
	}
	body.Read("rows", "a string", &want.rows)
	switch want.rows {
	case "", rowsMissing, rowsFailed, rowsRest:
	default:
		body.AddProblem("rows", "must be %q, %q or %q", rowsMissing, rowsFailed, rowsRest)
	}
	var priority rowmill.Priority
	if body.Read("job_priority", "the integer "+rowmill.PriorityValues, &priority) {
		want.priority = &priority
		if err := priority.Validate(); err != nil {
			body.AddProblem("job_priority", "%v", err)
		}
	}
	var name string
	if body.Read("name", "a string", &name) {
		if want.name = &name; len([]rune(name)) > rowmill.MaxNameRunes {
			body.AddProblem("name", "has more than %d characters; shorten it", rowmill.MaxNameRunes)
		}
	}
	if params, given := body.ReadInnerObject("sampling_params"); given {
		if params.Read("max_tokens", "an integer", &want.maxTokens) && want.maxTokens < 1 {
			params.AddProblem("max_tokens", "is %d; it must be at least 1", want.maxTokens)
		}
		params.RejectUnknown("max_tokens; the new job has the other parameters of the old job")
	}
	body.Read("again", "true or false", &want.again)
	body.RejectUnknown("rows, job_priority, name, sampling_params and again")
	return want, body.Err()
}

// newContinuation returns the record of the new job, or an error with the reason why the old
// job cannot be continued.
func newContinuation(old store.Record, want resumeRequest, now time.Time) (store.Record, error) {
	rows, err := chooseRowsToRun(old, want.rows)
	if err != nil {
		return store.Record{}, err
	}
	was, spec := old.Job, old.Spec
	submission.ContinueJob(&spec, rowmill.Continuation{Job: was.ID, Failed: rows != rowsMissing, Rest: rows == rowsRest, AllowDuplicate: want.again})
	if rows == rowsRest {
		spec.RowChoice, spec.Estimate = rowmill.RowChoice{}, false
	}
	if spec.Raw != nil { // the completion window may have passed, and a resumed job needs none
		raw := *spec.Raw
		raw.Deadline = nil
		spec.Raw = &raw
	}
	if want.priority != nil {
		spec.Priority = *want.priority
	}
	if want.maxTokens > 0 {
		if spec.Sampling, err = replaceMaxTokens(&spec, want.maxTokens); err != nil {
			return store.Record{}, err
		}
	}
	record := submission.NewRecord(rowmill.NewJobID(), spec, now)
	made := &record.Job
	made.Model, made.Function, made.Labels = was.Model, was.Function, was.Labels
	made.Name = cmp.Or(want.name, was.Name)
	made.System, made.Prompt, made.Schema, made.Continues, made.Reuse, made.Output = was.System, was.Prompt, was.Schema, &was.ID, spec.Reuse, was.Output
	made.Input, made.InputFile = was.Input, was.InputFile
	if want.maxTokens == 0 {
		made.Sampling = was.Sampling
	}
	return record, nil
}

// replaceMaxTokens returns the sampling parameters of a job with another max_tokens, or an error
// if the job cannot have this value.
func replaceMaxTokens(spec *rowmill.Spec, maxTokens int64) (map[string]any, error) {
	if spec.Model.Kind == rowmill.KindRaw || spec.Model.Kind == rowmill.KindEmbedding {
		return nil, rowmill.Invalid("sampling_params.max_tokens", "cannot be changed for a batch, because its requests have their own parameters, nor for an embedding model; leave it out")
	}
	model := spec.Model
	model.Sampling = spec.Sampling
	limits := map[string]any{"max_tokens": maxTokens, "min_tokens": spec.Sampling["min_tokens"]} // min_tokens as read from the store is no int64
	sampling, _, err := catalog.MergeSampling(model, limits)
	if err != nil {
		return nil, err
	}
	return sampling, nil
}

// chooseRowsToRun returns which rows the new job runs: rowsMissing, rowsFailed or rowsRest. It returns
// an error if the new job would have no rows to run or would fail.
func chooseRowsToRun(old store.Record, rows string) (string, error) {
	job := old.Job
	refuse := func(code, format string, args ...any) (string, error) {
		return "", request.Errorf(http.StatusConflict, code, format, args...).WithField("status", job.Status)
	}
	tooMany := job.FailureReason != nil && job.FailureReason.Code == rowmill.CodeTooManyFailedRows
	unwritten := job.FailureReason != nil && job.FailureReason.Code == rowmill.CodeOutputFailed // the new job writes the results, even if no row runs
	if rows == "" {
		rows = rowsMissing
		if tooMany || job.Status == rowmill.StatusSucceeded {
			rows = rowsFailed
		}
	}
	switch {
	case job.RunType == rowmill.RunEstimate && (rows != rowsRest || job.Status != rowmill.StatusSucceeded):
		return refuse("estimate_job", `an estimate cannot be resumed; once it has succeeded, send {"rows": %q} to run its whole input`, rowsRest)
	case !job.Status.IsTerminal():
		return refuse("job_not_over", "the job is %s and has not ended; cancel it or wait for its end before you resume it", job.Status)
	case old.DataRemoved != nil:
		return "", archive.ErrRemoved
	case rows == rowsRest && old.Spec.Limit == 0 && !old.Spec.Estimate:
		return refuse("nothing_to_run", `the job had no limit, so its input has no other rows; send {"rows": %q} to run the rows that are not done`, rowsMissing)
	case job.NumRows != nil && !unwritten && (job.Status == rowmill.StatusSucceeded || job.RowsDone >= *job.NumRows) &&
		(rows == rowsMissing || job.FailedRows == 0) && (rows != rowsRest || !job.HasOtherRows()) && !old.Spec.Estimate:
		remedy := ""
		switch {
		case job.HasOtherRows():
			remedy = fmt.Sprintf(`; send {"rows": %q} to run the other %d rows of its input`, rowsRest, *job.InputRows-*job.NumRows)
		case job.FailedRows > 0:
			remedy = fmt.Sprintf(`; send {"rows": %q} to run the %d rows again that failed`, rowsFailed, job.FailedRows)
		}
		return refuse("nothing_to_run", "all %d rows of the job are done%s", *job.NumRows, remedy)
	case tooMany && rows == rowsMissing:
		return refuse("nothing_to_run", `too many rows of the job failed, and a job that reuses the failed rows would fail too; send {"rows": %q} to run the failed rows again`, rowsFailed)
	case job.FailureReason != nil && job.FailureReason.Code == rowmill.CodeInvalidInputFile:
		return refuse("nothing_to_run", "the job failed because of its input, and a job that continues it would fail too; correct the input and submit it as a new job")
	case old.SpecDamaged:
		return refuse("input_removed", "the specification of the job was damaged in the record store, so there is nothing to resume; submit it again as a new job")
	case old.InputRemoved != nil:
		return refuse("input_removed", "the input of the job was removed at %s, because jobs.input_retention ended; submit it again as a new job", old.InputRemoved.Format(time.RFC3339))
	case old.Spec.URL != "" && old.DownloadFinished == nil:
		return refuse("input_removed", "the input of the job was never downloaded whole, so there is nothing to resume; submit it again as a new job")
	}
	return rows, nil
}
