// Package submit answers the requests that create jobs: submissions, requests to resume a
// job, and batches of the dialects. It applies the account's quotas and stores the record.
// Package submission checks the content of a submission.
package submit

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/jobs"
	"github.com/rowmill/rowmill/http/nodes"
	"github.com/rowmill/rowmill/http/quotas"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/http/submission"
	"github.com/rowmill/rowmill/internal/tracing"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

const (
	headerIdempotency = "Idempotency-Key"
	maxIdempotencyKey = 128 // characters
	// CreateTimeout is the timeout of the writes that store a submission. The writes continue
	// if the client disconnects, so the job is stored completely or not at all.
	CreateTimeout = 30 * time.Second
)

// Service is the part of the pipeline that submissions use.
type Service interface {
	// NotifySubmitted tells the pipeline that a job was just stored. The call is only a hint,
	// and must not block.
	NotifySubmitted(record store.Record)
	// Draining reports whether the node is about to stop. The node then accepts no jobs.
	Draining() bool
	// Nodes returns the live nodes of the cluster, as nodes.Service does.
	Nodes(ctx context.Context) []client.Node
}

// Submissions creates jobs from requests.
type Submissions struct {
	*exchange.Exchange
	Intake  *submission.Parser
	Quotas  *quotas.Quotas
	Jobs    *jobs.Jobs
	Store   store.Jobs
	Service Service
	KeyTTL  time.Duration // how long the service remembers an Idempotency-Key
	JobWait time.Duration // longest wait of a request for the end of a job
	Now     func() time.Time
}

// Route adds the routes that create jobs.
func (s *Submissions) Route(v1 gin.IRoutes, resultArchive *archive.Archive) {
	v1.POST("/batch-inference", s.Handle(s.submit))
	v1.POST("/sets", s.Handle(s.submitSet))
	resumptions := &resumeHandler{s, resultArchive}
	v1.POST("/jobs/:job_id/resume", s.Handle(resumptions.resume))
	v1.PATCH("/jobs/:job_id", s.Handle(resumptions.reschedule))
}

// submit answers POST /v1/batch-inference. The job is durable before the answer.
func (s *Submissions) submit(c *gin.Context) (any, error) {
	idem, sum, err := s.checkRequest(c)
	if err != nil {
		return nil, err
	}
	record, repeated, err := s.acceptSubmission(c, idem, sum)
	if err != nil {
		return nil, err
	}
	message := "The job was created. Ask for its status to follow it."
	if record.Spec.Estimate {
		message = "The estimate was created. Fetch the job once it has succeeded: its cost_estimate is the cost of the full job."
	}
	if repeated {
		message = "This Idempotency-Key created the job earlier; nothing was created now."
	} else {
		s.Service.NotifySubmitted(record)
	}
	body := gin.H{
		"metadata": gin.H{"job_id": record.Job.ID, "message": message},
		"results":  record.Job.ID,
	}
	if record.Job.Deadline != nil {
		body["forecast"] = record.Job.Forecast
	}
	if len(record.Job.Warnings) > 0 {
		body["warnings"] = record.Job.Warnings
	}
	return body, nil
}

// checkRequest checks a submission before its body is read. It returns the Idempotency-Key and the hash
// of the body as readIdempotency does.
func (s *Submissions) checkRequest(c *gin.Context) (*store.Idempotency, hash.Hash, error) {
	if err := s.CheckAccepting(c); err != nil {
		return nil, nil, err
	}
	idem, sum, err := s.readIdempotency(c)
	if err == nil {
		err = s.CheckHeaders(c)
	}
	return idem, sum, err
}

// CheckAccepting returns an error if this node drains and no other node can own a job.
func (s *Submissions) CheckAccepting(c *gin.Context) error {
	if s.Service.Draining() && !nodes.CanOtherNodeOwnJobs(s.Service.Nodes(c.Request.Context())) {
		return request.RetryLater("draining", "this node is about to stop and accepts no more jobs; try again later, or use another node")
	}
	return nil
}

// readIdempotency reads the header Idempotency-Key. Without the header both results are
// nil. With the header, the caller must write the body to the hash.
func (s *Submissions) readIdempotency(c *gin.Context) (*store.Idempotency, hash.Hash, error) {
	values := c.Request.Header.Values(headerIdempotency)
	if len(values) == 0 {
		return nil, nil, nil
	}
	key := values[0]
	if len(values) > 1 || key == "" || len(key) > maxIdempotencyKey || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, nil, rowmill.Invalid(headerIdempotency, "must be one header of 1 to %d printable ASCII characters, such as a UUID", maxIdempotencyKey)
	}
	return &store.Idempotency{Key: key, TTL: s.KeyTTL}, sha256.New(), nil
}

// acceptSubmission decodes, checks and stores a submission. repeated is true if an earlier
// request with the same Idempotency-Key created the job. bodyHash is the hash to which the
// body is written, or nil.
func (s *Submissions) acceptSubmission(c *gin.Context, idem *store.Idempotency, bodyHash hash.Hash) (record store.Record, repeated bool, err error) {
	ctx, who := c.Request.Context(), caller.PrincipalOf(c)
	sub, err := s.readBody(c, idem, bodyHash)
	if err != nil {
		return record, false, err
	}
	defer sub.Close()
	if idem != nil {
		record, err = s.Store.Lookup(ctx, who.Account, *idem)
		if !errors.Is(err, rowmill.ErrNotFound) {
			return record, err == nil, idempotencyError(err)
		}
	}
	job, err := sub.Check(ctx, who.Account)
	if err != nil {
		return record, false, err
	}
	if job.Deadline != nil {
		return s.createWithForecast(ctx, who, job, idem)
	}
	return s.Create(ctx, who, job, idem)
}

// Create applies the account's quotas to a job and stores it. existed is true if an
// earlier request with the same idem created the job.
func (s *Submissions) Create(ctx context.Context, who caller.Principal, job *submission.CheckedJob, idem *store.Idempotency) (stored store.Record, existed bool, err error) {
	if err := s.Quotas.ApplyQuotas(ctx, who.Account, &job.Spec); err != nil {
		return stored, false, err
	}
	if err := job.StoreRows(); err != nil {
		return stored, false, err
	}
	return s.storeJobRecord(ctx, who, job.ToRecord(s.Now()), idem)
}

// CreateBatch applies the account's quotas to a batch, calls spool to write the batch's
// input to the bucket, and stores the record. If an earlier request with the same idem
// has stored a record, CreateBatch returns that record.
func (s *Submissions) CreateBatch(c *gin.Context, record store.Record, spool func(context.Context) error, idem *store.Idempotency) (stored store.Record, err error) {
	ctx, who := c.Request.Context(), caller.PrincipalOf(c)
	if err := s.CheckAccepting(c); err != nil {
		return stored, err
	}
	if err := s.Quotas.ApplyQuotas(ctx, who.Account, &record.Spec); err != nil {
		return stored, err
	}
	if err = submission.MarkSpooling(ctx, s.Intake.Bucket, record.Job.ID); err == nil {
		err = spool(ctx)
	}
	if err != nil {
		return stored, fmt.Errorf("write the input of a batch to the bucket: %w", err)
	}
	stored, existed, err := s.storeJobRecord(ctx, who, record, idem)
	if err == nil && !existed {
		s.Service.NotifySubmitted(stored)
	}
	return stored, err
}

// storeJobRecord stores the record of a new job with the id of the caller's API key. If it is
// certain that the record does not exist afterwards, storeJobRecord removes the object with
// the rows.
//
// If the store does not confirm the write, storeJobRecord reads the record. If the record
// exists, storeJobRecord succeeds. If it does not exist, storeJobRecord keeps the rows,
// because the record may still appear.
func (s *Submissions) storeJobRecord(ctx context.Context, who caller.Principal, record store.Record, idem *store.Idempotency) (stored store.Record, existed bool, err error) {
	record.Job.KeyID, record.Trace = exchange.NilIfZero(who.KeyID), tracing.Traceparent(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CreateTimeout)
	defer cancel()
	stored, existed, err = s.Store.Create(ctx, record, idem)
	stores, unused, unknown := err == nil && !existed, existed, errors.Is(err, store.ErrOutcomeUnknown)
	switch {
	case err == nil:
	case errors.Is(err, rowmill.ErrUnavailable) && !unknown:
		unused = true
	default:
		found, lookErr := s.Store.Get(ctx, record.Job.ID)
		if unknown && lookErr == nil {
			s.removeSpoolMark(ctx, record)
			return found, false, nil
		}
		unused = errors.Is(lookErr, rowmill.ErrNotFound) && !unknown
		stores = lookErr == nil
	}
	if unused && record.Spec.Spooled != "" {
		if dropErr := s.Intake.Bucket.Delete(ctx, record.Spec.Spooled); dropErr != nil {
			s.Logger.Warn("cannot remove the rows of a refused submission; retention removes them later", exchange.KeyJob, record.Job.ID, exchange.KeyErr, dropErr)
		} else {
			s.removeSpoolMark(ctx, record)
		}
	} else if stores {
		s.removeSpoolMark(ctx, record)
	}
	if err != nil && idem != nil {
		err = idempotencyError(err)
	}
	if unknown {
		err = unknownOutcomeError(err, idem)
	}
	if err != nil {
		return stored, false, fmt.Errorf("store a submission: %w", err)
	}
	return stored, existed, nil
}

// markTimeout is the timeout of the removal of a mark, because the answer waits for the
// removal. Retention removes the marks that remain.
const markTimeout = time.Second

// removeSpoolMark removes the mark that submission.MarkSpooling created, after the job was stored or its
// rows were removed.
func (s *Submissions) removeSpoolMark(ctx context.Context, record store.Record) {
	if record.Spec.Spooled == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	if err := s.Intake.Bucket.Delete(ctx, layout.SpoolingKey(record.Job.ID)); err != nil {
		s.Logger.Debug("the object that protects a submission's rows could not be removed; retention removes it later", exchange.KeyJob, record.Job.ID, exchange.KeyErr, err)
	}
}

// unknownOutcomeError returns an error that says how to find out whether the job was
// created.
func unknownOutcomeError(err error, idem *store.Idempotency) error {
	remedy := "look for the job in GET /v1/list-jobs before you repeat the request; with an " + headerIdempotency + " you could repeat it safely"
	if idem != nil {
		remedy = "repeat the request with the same " + headerIdempotency + ", which creates no second job"
	}
	e := request.RetryLater(request.CodeOutcomeUnknown, "the service's storage did not answer, so the job may have been created or not: %s", remedy)
	return fmt.Errorf("%w: %w", e, err) // the cause is only logged
}

// idempotencyError returns an error for the client if err means that the
// Idempotency-Key was used with another body; otherwise it returns err.
func idempotencyError(err error) error {
	if errors.Is(err, rowmill.ErrConflict) {
		return request.Errorf(http.StatusConflict, "idempotency_conflict",
			"this Idempotency-Key was used with another body; use a new key for a new submission")
	}
	return err
}
