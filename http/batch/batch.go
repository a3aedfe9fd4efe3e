// Package batch has the common parts of batches in all dialects. A batch is a job; each
// of its rows is a request body. A batch has an id in the form of its dialect, and
// files that are made when the job has ended. Everything else that differs between
// dialects is in the packages of the dialects.
package batch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/engine/served"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/jobs"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/http/submission"
	"github.com/rowmill/rowmill/http/submit"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// Limits has the size limits of requests, in bytes. No field is 0.
type Limits struct {
	FileBytes   int64 // size of a body, of a file that is sent in one request, and of a part of an upload
	UploadBytes int64 // size of a file that is uploaded in parts
	Input       input.Limits
}

// Config has the dependencies of a dialect that has batches.
type Config struct {
	Exchange    *exchange.Exchange
	Jobs        *jobs.Jobs
	Submissions *submit.Submissions
	Store       store.Store
	Bucket      blob.Bucket
	Archive     *archive.Archive
	Models      *served.Models
	Limits      Limits
	Now         func() time.Time
}

// Batches stores, finds, lists, cancels and finalizes the batches of one dialect.
type Batches struct {
	Config
	Dialect string // name of the dialect, as in rowmill.RawBatch.Dialect
	Prefix  string // beginning of every batch id

	// Outcomes returns descriptions of the files to make when a batch has ended.
	Outcomes func(ctx context.Context, record store.Record) ([]ResultFile, error)
}

// priority is the priority of the job of every batch. Priority 0 is not used, because a
// job of priority 0 may have only a thousand rows.
const priority = rowmill.Production

// idColumn is the name of the column with the request ids in the results.
const idColumn = "custom_id"

// NewRecord returns the record of a new batch. Requests that have not run when window has
// passed expire. The caller must write the requests of the batch to the object whose
// key is Spec.Spooled.
func (b *Batches) NewRecord(model rowmill.Model, raw rowmill.RawBatch, window time.Duration) store.Record {
	id, now := rowmill.NewJobID(), b.Now().UTC().Truncate(time.Microsecond)
	deadline := now.Add(window)
	raw.Dialect, raw.Deadline = b.Dialect, &deadline
	return submission.NewRecord(id, rowmill.Spec{
		Model: model, Spooled: layout.SpooledRowsKey(id), ColumnChoice: rowmill.ColumnChoice{IDColumn: idColumn}, Priority: priority, Sampling: map[string]any{}, Raw: &raw,
	}, now)
}

// FindModel returns the model with the given name or alias, and sets its kind so that
// rows are request bodies that are sent unchanged. The error is written for the client.
func (b *Batches) FindModel(name string) (rowmill.Model, error) {
	model, err := b.Models.Find(name)
	var (
		unknown  *served.UnknownModelError
		unusable *served.UnusableModelError
	)
	refuse := func(format string, args ...any) (rowmill.Model, error) {
		e := request.Errorf(http.StatusBadRequest, "model_not_found", format, args...)
		e.Fields = []rowmill.FieldError{{Field: "model", Message: e.Message}}
		return model, e
	}
	switch {
	case errors.As(err, &unknown):
		return refuse("%q is no model of this service%s", textfmt.Shorten(name, 128), unknown.Hint())
	case errors.As(err, &unusable) && unusable.Soon:
		return model, request.RetryLater("model_not_ready", "model: %s", err)
	case err != nil:
		return refuse("model: %s", err)
	}
	model.Kind = rowmill.KindRaw
	return model, nil
}

const (
	// headerRetry is the header in which clients send the number of a retry; 0 for the
	// first attempt.
	headerRetry = "X-Stainless-Retry-Count"
	// retryTime is how long after a request an equal request can count as its retry.
	retryTime = 10 * time.Minute
)

// Submit stores a batch. Clients retry a request if they receive no answer, and send no
// idempotency key. So Submit compares requestHash, the hash of the request, with the hashes
// of earlier requests. For a retry it returns the batch that the first request stored.
// spool writes the requests of the batch to the bucket.
func (b *Batches) Submit(c *gin.Context, record store.Record, requestHash string, spool func(context.Context) error) (store.Record, error) {
	idem := &store.Idempotency{Key: "batch " + requestHash, BodyHash: requestHash, TTL: retryTime}
	first, err := b.Store.Lookup(c.Request.Context(), caller.PrincipalOf(c).Account, *idem)
	switch retry, atoiErr := strconv.Atoi(c.GetHeader(headerRetry)); {
	case errors.Is(err, rowmill.ErrNotFound):
	case err != nil:
		return first, err
	case atoiErr == nil && retry > 0:
		return first, nil
	default: // an equal request that is not a retry: the client wants another batch
		idem = nil
	}
	stored, err := b.Submissions.CreateBatch(c, record, spool, idem)
	if e := request.FromError(err); err != nil && e.Code == request.CodeOutcomeUnknown {
		e.Header["X-Should-Retry"] = "false" // clients would retry, and create a second batch
		err = e
	}
	return stored, err
}

// Find returns a batch of the caller's account, or a 404. batchID is the batch id as
// clients see it.
func (b *Batches) Find(c *gin.Context, batchID string) (store.Record, error) {
	none := NotFoundError("batch", textfmt.Shorten(batchID, 64))
	id, ok := b.JobID(batchID)
	if !ok {
		return store.Record{}, none
	}
	record, err := b.Jobs.Find(c, id)
	if err != nil && request.FromError(err).Status == http.StatusNotFound || err == nil && !b.isBatchOfDialect(record) {
		return store.Record{}, none
	}
	return record, err
}

// isBatchOfDialect reports whether a job is a batch of this dialect.
func (b *Batches) isBatchOfDialect(record store.Record) bool {
	return record.Spec.Raw != nil && record.Spec.Raw.Dialect == b.Dialect
}

// List returns a page of the account's batches, except those for which hidden returns
// true. more is true if further batches follow. page.After must be a batch of the
// account, hidden or not. cursor is the name of the query parameter that set
// page.After, for errors.
func (b *Batches) List(c *gin.Context, page store.PageRequest, cursor string, hidden func(store.Record) bool) (found []store.Record, more bool, err error) {
	if page.After != "" {
		if _, err := b.Find(c, b.BatchID(page.After)); err != nil {
			return nil, false, AddNotFoundField(err, cursor)
		}
	}
	return ReadVisiblePage(page, hidden, func(r store.Record) string { return r.Job.ID }, func(page store.PageRequest) ([]store.Record, bool, error) {
		return b.Store.ListBatches(c.Request.Context(), caller.PrincipalOf(c).Account, b.Dialect, page)
	})
}

// ReadVisiblePage returns a page of the elements for which hidden returns false. It calls read
// until the page is full or the list ends, because clients take an empty page for the
// end of the list.
func ReadVisiblePage[T any](page store.PageRequest, hidden func(T) bool, id func(T) string, read func(store.PageRequest) ([]T, bool, error)) (found []T, more bool, err error) {
	for want := page.Limit; ; page.Limit = want - len(found) {
		part, more, err := read(page)
		if err != nil {
			return nil, false, fmt.Errorf("read a page of a list: %w", err)
		}
		for _, one := range part {
			if page.After = id(one); !hidden(one) {
				found = append(found, one)
			}
		}
		if len(found) == want || !more {
			return found, more, nil
		}
	}
}

// Cancel cancels a batch. If the batch has ended before, Cancel does not change it, and
// returns it with rowmill.ErrTerminal. If the batch was cancelled before, Cancel returns no
// error.
func (b *Batches) Cancel(ctx context.Context, record store.Record) (store.Record, error) {
	ended, _, err := b.Jobs.CancelJob(ctx, record.Job.ID, "cancelled on request")
	if !errors.Is(err, rowmill.ErrTerminal) {
		return ended, err
	}
	if ended.Job.ID == "" {
		ended = record
	}
	if ended.Job.Status == rowmill.StatusCancelled {
		err = nil
	}
	return ended, err
}

// NotFoundError returns a 404 for an id that does not exist in the account. objectKind is
// the kind of object, such as "batch".
func NotFoundError(objectKind, id string) error {
	return request.Errorf(http.StatusNotFound, "not_found", "no %s was found with the id %s", objectKind, id)
}

// AddNotFoundField adds a field name to a "not found" error.
func AddNotFoundField(err error, field string) error {
	if e := request.FromError(err); e.Status == http.StatusNotFound {
		e.Fields = []rowmill.FieldError{{Field: field, Message: e.Message}}
		return e
	}
	return err
}

// prefixJob is the beginning of every job id.
const prefixJob = "job-"

// uuidDigits is the number of hexadecimal digits of a UUID.
const uuidDigits = 32

// IsUUIDHex reports whether text has the form of a UUID without dashes, in lower case.
func IsUUIDHex(text string) bool {
	return len(text) == uuidDigits && strings.Trim(text, "0123456789abcdef") == ""
}

// JobIDDigits returns the hexadecimal digits of a job's id, without dashes.
func JobIDDigits(jobID string) string {
	return strings.ReplaceAll(strings.TrimPrefix(jobID, prefixJob), "-", "")
}

// BatchID returns the batch id of a job, as clients of the dialect see it.
func (b *Batches) BatchID(jobID string) string { return b.Prefix + JobIDDigits(jobID) }

// JobID returns the job id for a batch id; it is the inverse of BatchID. ok is false if id
// does not have the form of a batch id.
func (b *Batches) JobID(id string) (jobID string, ok bool) {
	hex, found := strings.CutPrefix(id, b.Prefix)
	if !found || !IsUUIDHex(hex) {
		return "", false
	}
	return prefixJob + strings.Join([]string{hex[:8], hex[8:12], hex[12:16], hex[16:20], hex[20:]}, "-"), true
}
