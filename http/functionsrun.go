package http

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	nethttp "net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/function"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

const (
	// firstLook and lastLook are the shortest and the longest time between two
	// looks at a job that is waited for; each is half as long again as the one
	// before. A simulated row is done within the first few.
	firstLook = 10 * time.Millisecond
	lastLook  = 250 * time.Millisecond
)

// runFunction answers POST /v1/functions/:function/run: one row as a job of
// priority 0, which it waits for. The job is like any other: it stands in
// lists, quotas, usage and cost.
func (s *Server) runFunction(c *gin.Context) {
	if s.Service.Draining() && !s.othersOwn(c) {
		s.fail(c, notNow("draining", "this node is about to stop and takes no further jobs; try again, or another node"))
		return
	}
	record, err := s.startRun(c)
	if err != nil {
		s.fail(c, err)
		return
	}
	s.Service.Submitted(record.Job.ID)
	record, err = s.await(c.Request.Context(), record.Job.ID)
	var row results.RowView
	if err == nil {
		row, err = s.outcome(c.Request.Context(), record)
	}
	if err != nil {
		s.fail(c, err)
		return
	}
	showVector(&row)
	answer(c, nethttp.StatusOK, gin.H{
		"request_id": requestID(c), "job_id": record.Job.ID, "function": record.Job.Function, "output": row.Output,
		"usage": gin.H{"input_tokens": row.InputTokens, "output_tokens": row.OutputTokens},
	})
}

// startRun checks the request and stores its job.
func (s *Server) startRun(c *gin.Context) (record store.Record, err error) {
	ctx, who, name := c.Request.Context(), caller(c), c.Param("function")
	f, err := s.call(ctx, who.account, name)
	if err == nil && f == nil {
		err = noFunction(name)
	}
	if err != nil {
		return record, err
	}
	var problems problems
	// Twice the limit of a row leaves room for escapes; what it makes is bounded
	// exactly.
	body, err := s.readObjectUpTo(c, &problems, 2*int64(s.MaxRowBytes)+maxObjectBytes)
	if err != nil {
		return record, err
	}
	var in json.RawMessage
	body.read("input", "an object or a string", &in)
	body.end("input")
	if err := problems.err(); err != nil {
		return record, err
	}
	jobID := rowmill.NewJobID()
	sink := &rowSink{ctx: ctx, bucket: s.Bucket, key: inputKey(jobID), maxRow: s.MaxRowBytes, maxInline: s.MaxInlineBytes}
	defer sink.abort()
	if err := addInput(sink, f.prompt, in); err != nil {
		return record, err
	}
	model, _ := json.Marshal(f.Name) // a string always encodes
	sub := &submission{fields: map[string]json.RawMessage{fieldModel: model}, inline: true}
	job := sub.validate(s.Catalog, f, jobID)
	if err := sub.problems.err(); err != nil {
		return record, err
	}
	job.spec.TruncateRows = false // whoever waits for one answer is told that the input is too long
	if err := s.charge(ctx, who.account, &job.spec); err != nil {
		return record, err
	}
	objects := int64(0)
	if in[0] == '{' {
		objects = 1
	}
	if err := job.commit(sink, f, objects); err != nil {
		return record, err
	}
	record, _, err = s.create(ctx, s.newRecord(jobID, job), nil)
	return record, err
}

// addInput checks the input of a run and puts it into the sink. An input that
// breaks its rules is a 422.
func addInput(sink *rowSink, prompt *function.Prompt, in json.RawMessage) error {
	var wrong problems
	switch {
	case len(in) == 0:
		wrong.add("input", "is missing; send an object with the Function's inputs, or a prompt as a string")
	case in[0] == '"':
		if text := function.Text(in); len(text) > sink.maxRow {
			wrong.add("input", "has %d bytes, more than %d; shorten it", len(text), sink.maxRow)
		}
	case in[0] == '{':
		row, err := function.ParseRow(in)
		if err != nil {
			return fmt.Errorf("decode a checked object: %w", err)
		}
		values, missing := prompt.Values(row)
		for _, name := range missing {
			wrong.add("input."+name, "is missing, and the Function requires it")
		}
		if size := prompt.Size(values); size > int64(sink.maxRow) {
			wrong.add("input", "makes a prompt of %d bytes, more than %d; shorten its values", size, sink.maxRow)
		}
	default:
		wrong.add("input", "must be an object with the Function's inputs, or a prompt as a string")
	}
	if len(wrong.fields) > 0 {
		e := errorf(nethttp.StatusUnprocessableEntity, "invalid_input", "%s", wrong.err().Error())
		e.fields = wrong.fields
		return e
	}
	var line bytes.Buffer
	if err := json.Compact(&line, in); err != nil {
		return fmt.Errorf("compact a checked value: %w", err)
	}
	return sink.addLine(line.Bytes())
}

// await waits until a job is over, and cancels it where nobody waits any more
// or the time is up.
func (s *Server) await(ctx context.Context, jobID string) (store.Record, error) {
	waiting, cancel := context.WithTimeout(ctx, s.FunctionDeadline)
	defer cancel()
	look := time.NewTimer(firstLook)
	defer look.Stop()
	for every := firstLook; ; every = min(every*3/2, lastLook) {
		record, err := s.Store.Get(waiting, jobID)
		if err == nil && record.Job.Status.Terminal() {
			return record, nil
		}
		if err != nil && waiting.Err() == nil && !errors.Is(err, rowmill.ErrUnavailable) { // what is away may come back
			return record, fmt.Errorf("read a job: %w", err)
		}
		look.Reset(every)
		select {
		case <-waiting.Done():
			return s.giveUp(ctx, jobID)
		case <-look.C:
		}
	}
}

// giveUp cancels a job, unless it has ended after all.
func (s *Server) giveUp(ctx context.Context, jobID string) (store.Record, error) {
	last, done := context.WithTimeout(context.WithoutCancel(ctx), createTimeout)
	defer done()
	doing := ""
	record, err := s.Store.Cancel(last, jobID, s.Now().UTC(), func(r *store.Record) {
		doing = r.Job.Message
		r.Job.Message = "cancelled: nobody waits for it any more"
		r.Job.JobCost = r.Spec.Model.Cost(&r.Job)
	})
	switch {
	case errors.Is(err, rowmill.ErrTerminal):
		return record, nil
	case err != nil:
		return record, fmt.Errorf("cancel a run that took too long: %w", err)
	}
	s.Service.Cancelled(jobID)
	if err := ctx.Err(); err != nil {
		return record, err
	}
	message := fmt.Sprintf("the Function gave no answer within %v, and its job was cancelled", s.FunctionDeadline)
	if doing != "" {
		message += "; the job was " + doing
	}
	return record, errorf(nethttp.StatusGatewayTimeout, "deadline_exceeded", "%s", message).with("job_id", jobID)
}

// outcome is the row of a job that is over, or an error that says why there is
// none.
func (s *Server) outcome(ctx context.Context, record store.Record) (row results.RowView, err error) {
	for range rereads {
		if record.Job.Status == rowmill.StatusSucceeded {
			row, err = s.row(ctx, record, 0)
		} else {
			err = s.whyNone(ctx, record)
		}
		if !errors.Is(err, errMoved) {
			return row, err
		}
		if record, err = s.Store.Get(ctx, record.Job.ID); err != nil {
			return row, fmt.Errorf("read a job: %w", err)
		}
	}
	return row, errorf(nethttp.StatusServiceUnavailable, "busy", "the answer is being moved; fetch it as row 0 of the job").with("job_id", record.Job.ID)
}

// whyNone explains a job that failed or was cancelled.
func (s *Server) whyNone(ctx context.Context, record store.Record) error {
	id := record.Job.ID
	if record.Job.Status == rowmill.StatusCancelled || record.Job.FailureReason == nil {
		return errorf(nethttp.StatusConflict, "cancelled", "the run's job was cancelled").with("job_id", id)
	}
	code, message := record.Job.FailureReason.Code, record.Job.FailureReason.Message
	if code == rowmill.CodeTooManyFailedRows { // its only row failed, which says more
		page := failurePage{limit: 1, after: -1}
		if err := s.failuresOfParts(ctx, id, &page); err != nil {
			return err
		}
		if len(page.found) > 0 {
			code, message = page.found[0].Code, page.found[0].Message
		}
	}
	status := nethttp.StatusBadGateway
	switch code {
	case rowmill.CodeRowTooLong, rowmill.CodeTokenQuota, rowmill.CodeInvalidInputFile:
		status = nethttp.StatusUnprocessableEntity
	case rowmill.CodeRowQuota, rowmill.CodeCostQuota:
		status = nethttp.StatusForbidden
	case rowmill.CodeModelUnavailable:
		status = nethttp.StatusServiceUnavailable
	}
	return errorf(status, code, "%s", message).with("job_id", id)
}
