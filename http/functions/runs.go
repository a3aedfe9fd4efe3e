package functions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/http/sdk"
	"github.com/rowmill/rowmill/http/submission"
	"github.com/rowmill/rowmill/http/submit"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// run answers POST /v1/functions/:function/run: it runs one row as a job of priority 0
// and waits for the job's end. The job appears in lists, quotas, usage and cost like any
// other job.
func (f *Functions) run(c *gin.Context) (any, error) {
	if err := f.CheckAccepting(c); err != nil {
		return nil, err
	}
	record, err := f.createRunJob(c)
	if err != nil {
		return nil, err
	}
	f.Service.NotifySubmitted(record)
	ctx := c.Request.Context()
	if record, err = f.awaitRun(ctx, record.Job.ID); err != nil {
		return nil, err
	}
	row, err := f.readResultRow(ctx, record)
	if err != nil {
		return nil, err
	}
	body := gin.H{
		"request_id": exchange.RequestID(c), "job_id": record.Job.ID, "function": record.Job.Function, "output": exchange.ToDecimals(row.Output),
		"usage":    gin.H{"input_tokens": row.InputTokens, "output_tokens": row.OutputTokens},
		"cost_usd": (*exchange.Decimal)(record.Job.JobCost),
	}
	if sdk.UsesDialect(c) {
		answer, reasoning := sdk.ToSDKOutput(record, body["output"])
		body["output"] = answer
		if reasoning != nil {
			body["reasoning_content"] = *reasoning
		}
	}
	if len(record.Job.Warnings) > 0 {
		body["warnings"] = record.Job.Warnings
	}
	return body, nil
}

// createRunJob checks the request and creates a job with one row for it.
func (f *Functions) createRunJob(c *gin.Context) (record store.Record, err error) {
	ctx, who := c.Request.Context(), caller.PrincipalOf(c)
	intake := f.Intake
	// The JSON text of a row may be longer than the decoded row, because of escapes. Twice
	// the row's limit is enough here. The size of the decoded row is checked later.
	body, err := f.ReadObject(c, 2*int64(intake.MaxRow)+submission.MaxDefinition+exchange.SmallObject)
	if err != nil {
		return record, err
	}
	var input json.RawMessage
	body.Read("input", "an object or a string", &input)
	call, err := f.readCall(ctx, who.Account, c.Param("function"), &body)
	if err == nil {
		err = body.Err()
	}
	if err != nil {
		return record, err
	}
	sub, job, err := intake.NewRunJob(ctx, call, input, body.UnreadFields())
	if err != nil {
		return record, err
	}
	defer sub.Close()
	record, _, err = f.Create(ctx, who, job, nil)
	return record, err
}

// readCall returns the Function to run: the revision that the body names, the
// definition in the body, or else the published revision. If it returns nil, the error
// or the problems of body say why.
func (f *Functions) readCall(ctx context.Context, account, name string, body *request.JSONObject) (*submission.FunctionCall, error) {
	intake := f.Intake
	var definition json.RawMessage
	revision := 0
	numbered := body.Read("revision", "a whole number", &revision)
	if numbered && revision < 1 {
		body.AddProblem("revision", "is %d; it must be the number of a revision, from 1", revision)
		return nil, nil //nolint:nilnil // the body's problems say why there is no call
	}
	if body.Read("definition", "an object", &definition) {
		if numbered {
			body.AddProblem("revision", "and definition: send one of the two")
		}
		return intake.NewDraftCall(body.Problems, "definition", name, definition)
	}
	if numbered {
		call, err := intake.NewRevisionCall(ctx, account, name, revision)
		return call, functionError(err, revisionNotFoundError(name, revision))
	}
	call, err := intake.FindCall(ctx, account, name)
	if err == nil && call == nil {
		err = functionNotFoundError(name)
	}
	return call, err
}

// awaitRun waits until a run's job has ended. It cancels the job if the client disconnects or
// JobWait passes.
func (f *Functions) awaitRun(ctx context.Context, jobID string) (store.Record, error) {
	record, ended, err := f.AwaitJobEnd(ctx, jobID)
	if err == nil && !ended {
		return f.cancelAbandonedJob(ctx, jobID)
	}
	return record, err
}

// cancelAbandonedJob cancels a job and returns an error for the client. If the job has ended before
// the cancellation, cancelAbandonedJob returns the job's record instead.
func (f *Functions) cancelAbandonedJob(ctx context.Context, jobID string) (store.Record, error) {
	last, done := context.WithTimeout(context.WithoutCancel(ctx), submit.CreateTimeout)
	defer done()
	record, doing, err := f.Jobs.CancelJob(last, jobID, "cancelled: the client no longer waits for it")
	switch {
	case errors.Is(err, rowmill.ErrTerminal):
		return record, nil
	case err != nil:
		return record, fmt.Errorf("cancel the job of a Function's run that no client waits for: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return record, err
	}
	message := fmt.Sprintf("the Function gave no answer within %v, so its job was cancelled", f.JobWait)
	if doing != "" {
		message += ". Before, the job was " + doing
	}
	return record, request.Errorf(http.StatusGatewayTimeout, "deadline_exceeded", "%s", message).WithField("job_id", jobID)
}

// readResultRow returns the result row of an ended job, or an error that says why the job has
// no result.
func (f *Functions) readResultRow(ctx context.Context, record store.Record) (row results.RowView, err error) {
	if record.Job.Status == rowmill.StatusSucceeded {
		row, err = f.Archive.ReadRow(ctx, record, 0)
	} else {
		err = f.noResultError(ctx, record)
	}
	if errors.Is(err, archive.ErrBusy) {
		err = request.Errorf(http.StatusServiceUnavailable, "busy", "the answer is in a file that is being merged; try again with GET /v1/jobs/{job_id}/rows/0").WithField("job_id", record.Job.ID)
	}
	return row, err
}

// noResultError returns the error for the client of a job that failed or was cancelled.
func (f *Functions) noResultError(ctx context.Context, record store.Record) error {
	id := record.Job.ID
	if record.Job.Status == rowmill.StatusCancelled || record.Job.FailureReason == nil {
		return request.Errorf(http.StatusConflict, "cancelled", "the run's job was cancelled").WithField("job_id", id)
	}
	code, message := record.Job.FailureReason.Code, record.Job.FailureReason.Message
	if code == rowmill.CodeTooManyFailedRows { // the error of the job's only row explains the failure better
		found, _, err := f.Archive.ListFailures(ctx, record, archive.FirstFailurePosition(), 1)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			code, message = found[0].Code, found[0].Message
		}
	}
	status := http.StatusBadGateway
	switch code {
	case rowmill.CodeRowTooLong, rowmill.CodeTokenQuota, rowmill.CodeInvalidInputFile:
		status = http.StatusUnprocessableEntity
	case rowmill.CodeRowQuota, rowmill.CodeCostQuota:
		status = http.StatusForbidden
	case rowmill.CodeModelUnavailable:
		status = http.StatusServiceUnavailable
	}
	return request.Errorf(status, code, "%s", message).WithField("job_id", id)
}
