package anthropic

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/http/batch"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/store"
)

const (
	// path is the API path to which each request of a batch belongs.
	path = "/v1/messages"
	// completionWindow is the time after which the unfinished requests of a batch expire,
	// as at Anthropic.
	completionWindow = 24 * time.Hour
)

// The default and the largest number of batches on a page of GET /v1/messages/batches.
const (
	defaultBatches = 20
	maxBatches     = 1000
)

// create answers POST /v1/messages/batches. It writes the requests to the job's input
// object while they arrive. If the body is invalid, it removes the unfinished object.
func (d *Dialect) create(c *gin.Context) (any, error) {
	if c.Request.ContentLength > d.Limits.FileBytes {
		return nil, d.bodyTooLargeError()
	}
	record := d.batches.NewRecord(rowmill.Model{}, rowmill.RawBatch{Path: path}, completionWindow)
	writing, stop := context.WithCancel(c.Request.Context())
	defer stop()
	w, err := d.Bucket.Create(writing, record.Spec.Spooled, layout.NDJSON)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	body, sum := d.Exchange.Body(c, d.Limits.FileBytes), sha256.New()
	name, requests, err := input.ConvertMessages(body, io.MultiWriter(w, sum), path, d.Limits.Input)
	if err != nil {
		return nil, d.bodyError(err)
	}
	body.ClearReadDeadline()
	model, err := d.batches.FindModel(name)
	if err != nil {
		return nil, err
	}
	record.Job.Model, record.Spec.Model, record.Spec.Raw.Requests = model.ID, model, requests
	record, err = d.batches.Submit(c, record, hex.EncodeToString(sum.Sum(nil)), func(context.Context) error {
		_, err := w.Commit()
		return err
	})
	if err != nil {
		return nil, err
	}
	return d.view(record), nil
}

// bodyError turns an error from reading the body into an error for the client.
func (d *Dialect) bodyError(err error) error {
	var overlong *http.MaxBytesError
	switch {
	case errors.Is(err, input.ErrNoObject):
		return request.Errorf(http.StatusBadRequest, "invalid_json", "%s", err)
	case errors.As(err, &overlong):
		return d.bodyTooLargeError()
	case errors.Is(err, io.ErrUnexpectedEOF):
		return request.BodyInterrupted("")
	}
	return err
}

func (d *Dialect) bodyTooLargeError() error {
	return request.Errorf(http.StatusRequestEntityTooLarge, "body_too_large", "the body has more than %d bytes; split the batch", d.Limits.FileBytes).CloseConnection()
}

// findBatch returns the batch whose id is in the path. It returns a 404 if there is no such
// batch, or if its client has deleted it.
func (d *Dialect) findBatch(c *gin.Context) (store.Record, error) {
	record, err := d.batches.Find(c, c.Param("message_batch_id"))
	if err == nil && isDeleted(record) {
		err = batch.NotFoundError("batch", d.batches.BatchID(record.Job.ID))
	}
	return record, err
}

// show answers GET /v1/messages/batches/{message_batch_id} with the state of a batch.
func (d *Dialect) show(c *gin.Context) (any, error) {
	record, err := d.findBatch(c)
	if err == nil {
		record, err = d.batches.Finalize(c.Request.Context(), record)
	}
	if err != nil {
		return nil, err
	}
	return d.view(record), nil
}

// cancel answers POST /v1/messages/batches/{message_batch_id}/cancel. If the batch has
// ended, it changes nothing.
func (d *Dialect) cancel(c *gin.Context) (any, error) {
	record, err := d.findBatch(c)
	if err != nil {
		return nil, err
	}
	ended, err := d.batches.Cancel(c.Request.Context(), record)
	if err != nil && !errors.Is(err, rowmill.ErrTerminal) {
		return nil, err
	}
	return d.view(ended), nil
}

// list answers GET /v1/messages/batches. The page after after_id has older batches, the
// page before before_id newer ones. Each page is sorted newest first.
func (d *Dialect) list(c *gin.Context) (any, error) {
	var p request.Problems
	page, cursor := store.PageRequest{Limit: int(exchange.QueryInt(c, &p, "limit", defaultBatches, 1, maxBatches))}, ""
	for _, way := range []string{"after_id", "before_id"} {
		from, given := c.GetQuery(way)
		if !given {
			continue
		}
		id, ok := d.batches.JobID(from)
		switch {
		case !ok:
			p.Add(way, "is not the id of a batch")
		case page.After != "":
			p.Add(way, "cannot be used together with after_id; send one of the two")
		}
		page.After, page.Ascending, cursor = id, way == "before_id", way
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	records, more, err := d.batches.List(c, page, cursor, isDeleted)
	if err != nil {
		return nil, err
	}
	if page.Ascending {
		slices.Reverse(records)
	}
	views := make([]batchView, len(records))
	for i, record := range records {
		views[i] = d.view(record)
	}
	return newList(views, more, func(v *batchView) *string { return &v.ID }), nil
}

// sendResults answers GET /v1/messages/batches/{message_batch_id}/results with the result
// file of an ended batch.
func (d *Dialect) sendResults(c *gin.Context) error {
	record, err := d.findBatch(c)
	if err == nil {
		record, err = d.batches.Finalize(c.Request.Context(), record)
	}
	if err != nil {
		return err
	}
	made, found := record.Artifacts[outcomeResults]
	switch {
	case record.DataRemoved != nil:
		return request.Errorf(http.StatusNotFound, "results_removed", "the results of the batch are no longer kept")
	case !batch.IsFinalized(record):
		return request.Errorf(http.StatusBadRequest, "batch_not_over", "the batch has no results yet: it is %s; get the batch again until it is %s", d.view(record).Status, statusEnded)
	case !found:
		return fmt.Errorf("the batch of job %s has ended, but its record names no result file", record.Job.ID)
	}
	object, err := d.Bucket.Open(c.Request.Context(), made.Key)
	if errors.Is(err, rowmill.ErrNotFound) {
		return request.Errorf(http.StatusNotFound, "results_removed", "the results of the batch are no longer kept")
	}
	if err != nil {
		return fmt.Errorf("open the results of a batch: %w", err)
	}
	defer object.Close()
	d.Exchange.SendObject(c, object, layout.NDJSON, d.batches.BatchID(record.Job.ID)+"_results.jsonl")
	return nil
}

// deletedName is the name of the artifact that marks a batch as deleted by its client. The
// batch's job stays in the list of jobs.
const deletedName = "deleted"

func isDeleted(record store.Record) bool {
	_, is := record.Artifacts[deletedName]
	return is
}

// remove answers DELETE /v1/messages/batches/{message_batch_id}: it deletes an ended
// batch and its data.
func (d *Dialect) remove(c *gin.Context) (any, error) {
	record, err := d.batches.Find(c, c.Param("message_batch_id"))
	id := d.batches.BatchID(record.Job.ID)
	switch {
	case err != nil:
		return nil, err
	case isDeleted(record) && record.DataRemoved != nil:
		return nil, batch.NotFoundError("batch", id)
	case !record.Job.Status.IsTerminal():
		return nil, request.Errorf(http.StatusBadRequest, "batch_not_over", "the batch is %s; cancel it, or wait for its end, before you delete it", d.view(record).Status)
	}
	ctx := context.WithoutCancel(c.Request.Context()) // the deletion finishes even if the client disconnects
	_, err = d.Store.AddArtifact(ctx, record.Job.ID, deletedName, store.Artifact{Key: record.Spec.Spooled})
	if errors.Is(err, rowmill.ErrExpired) {
		if _, err := d.findBatch(c); err != nil { // another request has deleted the batch meanwhile
			return nil, err
		}
		return nil, request.Errorf(http.StatusBadRequest, "batch_archived", "the results of the batch are no longer kept, and there is nothing left to delete")
	}
	if err == nil {
		_, err = d.Jobs.DropData(ctx, record)
	}
	if err != nil {
		return nil, fmt.Errorf("delete a batch: %w", err)
	}
	return gin.H{"id": id, "type": "message_batch_deleted"}, nil
}
