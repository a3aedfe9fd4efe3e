package http

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	nethttp "net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/function"
	"github.com/rowmill/rowmill/store"
)

const (
	headerIdempotency = "Idempotency-Key"
	maxIdempotencyKey = 128 // characters
	// createTimeout bounds the writes that make a submission durable. They go
	// on when the client leaves: its job is then either stored or not, never
	// half.
	createTimeout = 30 * time.Second
)

// submit answers POST /v1/batch-inference. The job is durable before it does.
func (s *Server) submit(c *gin.Context) {
	if s.Service.Draining() && !s.othersOwn(c) {
		s.fail(c, notNow("draining", "this node is about to stop and takes no further jobs; try again, or another node"))
		return
	}
	idem, sum, err := s.idempotency(c)
	if err == nil {
		err = s.checkBodyHeaders(c)
	}
	if err != nil {
		s.fail(c, err)
		return
	}
	record, repeated, err := s.accept(c, idem, sum)
	if err != nil {
		s.fail(c, err)
		return
	}
	message := "The job was created. Ask for its status to follow it."
	if record.Spec.Estimate {
		message = "The estimate was created. Fetch the job once it has succeeded: its cost_estimate is what the full job would cost."
	}
	if repeated {
		message = "This Idempotency-Key created the job earlier; nothing was created now."
	} else {
		s.Service.Submitted(record.Job.ID)
	}
	body := gin.H{
		"metadata": gin.H{"job_id": record.Job.ID, "message": message},
		"results":  record.Job.ID,
	}
	if len(record.Job.Warnings) > 0 {
		body["warnings"] = record.Job.Warnings
	}
	answer(c, nethttp.StatusOK, body)
}

// idempotency reads the header. Both results are nil without it; otherwise
// sum must be fed the body.
func (s *Server) idempotency(c *gin.Context) (*store.Idempotency, hash.Hash, error) {
	values := c.Request.Header.Values(headerIdempotency)
	if len(values) == 0 {
		return nil, nil, nil
	}
	key := values[0]
	if len(values) > 1 || key == "" || len(key) > maxIdempotencyKey || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, nil, rowmill.Invalid(headerIdempotency, "must be one header of 1 to %d printable ASCII characters, such as a UUID", maxIdempotencyKey)
	}
	return &store.Idempotency{Key: key, TTL: s.IdempotencyTTL}, sha256.New(), nil
}

// checkBodyHeaders refuses what can be refused before the body is read.
func (s *Server) checkBodyHeaders(c *gin.Context) error {
	if coding := c.GetHeader("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return errorf(nethttp.StatusUnsupportedMediaType, "unsupported_encoding",
			"a body with Content-Encoding %s is not accepted; send plain JSON", shorten(coding, 64))
	}
	if c.Request.ContentLength > s.MaxBodyBytes {
		return &nethttp.MaxBytesError{Limit: s.MaxBodyBytes}
	}
	return nil
}

// accept decodes, checks and stores a submission.
func (s *Server) accept(c *gin.Context, idem *store.Idempotency, sum hash.Hash) (record store.Record, repeated bool, err error) {
	ctx, account := c.Request.Context(), caller(c).account
	jobID := rowmill.NewJobID()
	sink := &rowSink{ctx: ctx, bucket: s.Bucket, key: inputKey(jobID), maxRow: s.MaxRowBytes, maxInline: s.MaxInlineBytes}
	defer sink.abort()

	patient := &patientReader{
		Reader:  nethttp.MaxBytesReader(c.Writer, c.Request.Body, s.MaxBodyBytes),
		control: nethttp.NewResponseController(c.Writer), patience: s.Patience,
	}
	var body io.Reader = patient
	if sum != nil {
		body = io.TeeReader(body, sum)
	}
	sub, err := decodeSubmission(body, sink)
	if err != nil {
		return record, false, err
	}
	patient.done()
	if idem != nil {
		idem.BodyHash = hex.EncodeToString(sum.Sum(nil))
		record, err = s.Store.Lookup(ctx, account, *idem)
		if !errors.Is(err, rowmill.ErrNotFound) {
			return record, err == nil, idempotencyError(err)
		}
	}
	called, err := s.calledBy(ctx, account, sub)
	if err != nil {
		return record, false, err
	}
	job := sub.validate(s.Catalog, called, jobID)
	if err := sub.problems.err(); err != nil {
		return record, false, err
	}
	if err := s.charge(ctx, account, &job.spec); err != nil {
		return record, false, err
	}
	if sub.inline {
		if err := job.commit(sink, called, sub.rows.objects); err != nil {
			return record, false, err
		}
	}
	return s.create(ctx, s.newRecord(jobID, job), idem)
}

// charge makes the job the account's, with its quotas.
func (s *Server) charge(ctx context.Context, account string, spec *rowmill.Spec) error {
	quotas, err := s.quotas(ctx, account)
	if err != nil {
		return err
	}
	quota := quotas.Quotas[spec.Priority]
	spec.Account, spec.RowQuota, spec.TokenQuota = account, quota.RowQuota, quota.TokenQuota
	spec.CostQuota = (*float64)(quotas.CostQuota)
	return nil
}

// commit makes the rows durable and adds them to the job.
func (r *request) commit(sink *rowSink, f *called, objects int64) (err error) {
	var prompt *function.Prompt
	if f != nil {
		prompt = f.prompt
	}
	r.spec.Inline, r.spec.Spooled, err = sink.commit(prompt)
	if r.spec.Spooled == "" || objects == 0 {
		r.spec.Function = nil // every row is a prompt already
	}
	return err
}

func (s *Server) newRecord(jobID string, r request) store.Record {
	job := rowmill.Job{
		ID: jobID, Status: rowmill.StatusPending, RunType: rowmill.RunFull,
		Model: r.spec.Model.ID, Priority: r.spec.Priority,
		Name: r.name, Description: r.description,
		Schema: r.spec.Schema, Sampling: r.spec.Sampling,
		Created:  s.Now().UTC().Truncate(time.Microsecond),
		Warnings: r.warnings, Message: "waiting for a node to take the job",
	}
	if job.Warnings == nil {
		job.Warnings = []string{}
	}
	if r.spec.Estimate {
		job.RunType = rowmill.RunEstimate
	}
	if r.spec.System != "" {
		job.System = &r.spec.System
	}
	if r.function != nil {
		job.Model, job.Function = r.function.Name, r.function
	}
	return store.Record{SchemaVersion: store.SchemaVersion, Job: job, Spec: r.spec}
}

// create stores the record. Its object of rows is removed where the record
// does not exist afterwards, and only where that is certain.
//
// Where the store has not answered, the record is looked for: if it is there,
// all is well. If it is not, it may still appear.
func (s *Server) create(ctx context.Context, record store.Record, idem *store.Idempotency) (stored store.Record, existed bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTimeout)
	defer cancel()
	stored, existed, err = s.Store.Create(ctx, record, idem)
	unused, unknown := existed, errors.Is(err, store.ErrOutcomeUnknown)
	switch {
	case err == nil:
	case errors.Is(err, rowmill.ErrUnavailable) && !unknown:
		unused = true
	default:
		found, lookErr := s.Store.Get(ctx, record.Job.ID)
		if unknown && lookErr == nil {
			return found, false, nil
		}
		unused = errors.Is(lookErr, rowmill.ErrNotFound) && !unknown
	}
	if unused && record.Spec.Spooled != "" {
		if dropErr := s.Bucket.Delete(ctx, record.Spec.Spooled); dropErr != nil {
			s.Logger.Warn("remove the rows of a submission that was not stored", keyJob, record.Job.ID, keyErr, dropErr)
		}
	}
	if err != nil && idem != nil {
		err = idempotencyError(err)
	}
	if unknown {
		err = unknownSubmission(err, idem)
	}
	if err != nil {
		return stored, false, fmt.Errorf("store a submission: %w", err)
	}
	return stored, existed, nil
}

// unknownSubmission says how to find out, or to make sure.
func unknownSubmission(err error, idem *store.Idempotency) error {
	remedy := "look for it in GET /v1/list-jobs before you send it again; with an " + headerIdempotency + " you could repeat it safely"
	if idem != nil {
		remedy = "send the same request with the same " + headerIdempotency + " again, which creates no second job"
	}
	e := notNow(codeUnknown, "the service's storage did not answer, so the job may have been created or not: %s", remedy)
	return fmt.Errorf("%w: %w", e, err) // the reason is for the log alone
}

func idempotencyError(err error) error {
	if errors.Is(err, rowmill.ErrConflict) {
		return errorf(nethttp.StatusConflict, "idempotency_conflict",
			"this Idempotency-Key was used with another body; use a new key for a new submission")
	}
	return err
}
