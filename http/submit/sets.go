package submit

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/http/submission"
	"github.com/rowmill/rowmill/store"
)

// submitSet answers POST /v1/sets: it creates two to four jobs on one input. All jobs are durable
// before the answer.
func (s *Submissions) submitSet(c *gin.Context) (any, error) {
	idem, sum, err := s.checkRequest(c)
	if err != nil {
		return nil, err
	}
	sub, err := s.readBody(c, idem, sum)
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	ctx, who := c.Request.Context(), caller.PrincipalOf(c)
	if idem != nil {
		first, err := s.Store.Lookup(ctx, who.Account, *idem)
		if err != nil && !errors.Is(err, rowmill.ErrNotFound) {
			return nil, idempotencyError(err)
		}
		if err == nil && s.hasAllJobs(ctx, first.Job.Set) {
			return setAnswer(first.Job.Set, nil, true), nil
		}
	}
	jobs, err := sub.CheckSet(ctx, who.Account)
	if err != nil {
		return nil, err
	}
	return s.createSet(ctx, who, jobs, idem)
}

// readBody decodes the body of a submission. With an Idempotency-Key it adds the hash of the body to
// idem. The caller must close the submission.
func (s *Submissions) readBody(c *gin.Context, idem *store.Idempotency, sum hash.Hash) (*submission.Submission, error) {
	sent := s.Body(c, s.MaxBody)
	var body io.Reader = sent
	if idem != nil {
		body = io.TeeReader(body, sum)
	}
	sub, err := s.Intake.Read(c.Request.Context(), body)
	if err != nil {
		return nil, err
	}
	sent.ClearReadDeadline()
	if idem != nil {
		idem.BodyHash = hex.EncodeToString(sum.Sum(nil))
	}
	return sub, nil
}

// hasAllJobs reports whether the records of all these jobs exist.
func (s *Submissions) hasAllJobs(ctx context.Context, ids []string) bool {
	for _, id := range ids {
		if _, err := s.Store.Get(ctx, id); err != nil {
			return false
		}
	}
	return len(ids) > 0
}

// createSet stores the jobs of a set, the first job first. If an earlier request with the same idem
// stored the first job but not all others, createSet stores the missing jobs under the ids in the
// record of the first.
func (s *Submissions) createSet(ctx context.Context, who caller.Principal, jobs []*submission.CheckedJob, idem *store.Idempotency) (any, error) {
	var ids, warnings []string
	repeated := true
	for i, job := range jobs {
		if i > 0 {
			job.Join(ids, i)
		}
		stored, existed, err := s.Create(ctx, who, job, memberIdempotency(idem, i))
		if err != nil {
			return nil, setError(err, ids[:i])
		}
		if i == 0 {
			ids = stored.Job.Set
		}
		if !existed {
			repeated = false
			s.Service.NotifySubmitted(stored)
		}
		for _, warning := range stored.Job.Warnings {
			warnings = append(warnings, fmt.Sprintf("variants[%d]: %s", i, warning))
		}
	}
	return setAnswer(ids, warnings, repeated), nil
}

// memberIdempotency returns the key of job i of a request: that of the request for the first job.
func memberIdempotency(idem *store.Idempotency, i int) *store.Idempotency {
	if idem == nil || i == 0 {
		return idem
	}
	own := *idem
	own.Key = fmt.Sprintf("%s\n%d", idem.Key, i) // no client can send a line end
	return &own
}

// setError adds to an error which jobs of the set exist.
func setError(err error, created []string) error {
	if len(created) == 0 {
		return err
	}
	e := *request.FromError(err)
	e.Message += fmt.Sprintf("; the jobs %s of the set were created: send the request again with the same Idempotency-Key to create the others, or cancel these jobs", strings.Join(created, ", "))
	return e.WithField("job_ids", created)
}

// setAnswer returns the answer to a request that created the jobs of a set. repeated is true if an
// earlier request created them.
func setAnswer(ids, warnings []string, repeated bool) gin.H {
	message := "The jobs were created. GET /v1/jobs/compare compares them."
	if repeated {
		message = "This Idempotency-Key created the jobs earlier; nothing was created now."
	}
	body := gin.H{"metadata": gin.H{"job_ids": ids, "message": message}, "results": ids}
	if len(warnings) > 0 {
		body["warnings"] = warnings
	}
	return body
}
