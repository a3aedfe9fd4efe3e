package http

import (
	"bufio"
	"errors"
	"fmt"
	nethttp "net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// listPage is how many jobs of an unpaginated list are in memory at once.
const listPage = 200

// findJob returns the job that the path names, or a 404 where it does not
// exist or belongs to another account.
func (s *Server) findJob(c *gin.Context) (store.Record, error) {
	return s.jobOfAccount(c, c.Param("job_id"))
}

// jobOfAccount is findJob for an id that stands elsewhere.
func (s *Server) jobOfAccount(c *gin.Context, id string) (store.Record, error) {
	if !knownJobID(id) {
		return store.Record{}, noJob(id)
	}
	record, err := s.Store.Get(c.Request.Context(), id)
	if errors.Is(err, rowmill.ErrNotFound) || err == nil && record.Spec.Account != caller(c).account {
		return store.Record{}, noJob(id)
	}
	if err != nil {
		return store.Record{}, fmt.Errorf("read a job: %w", err)
	}
	return record, nil
}

// knownJobID reports whether id has the shape of a job's.
func knownJobID(id string) bool {
	rest, found := strings.CutPrefix(id, "job-")
	if !found || len(rest) != 36 {
		return false
	}
	for i := range len(rest) {
		switch b := rest[i]; {
		case b == '-', '0' <= b && b <= '9', 'a' <= b && b <= 'f':
		default:
			return false
		}
	}
	return true
}

func noJob(id string) *apiError {
	return errorf(nethttp.StatusNotFound, "job_not_found", "no job was found with the ID %s", shorten(id, 64))
}

func (s *Server) getJob(c *gin.Context) {
	record, err := s.findJob(c)
	if err != nil {
		s.fail(c, err)
		return
	}
	answer(c, nethttp.StatusOK, gin.H{"job": caller(c).view(record.Job)})
}

func (s *Server) jobStatus(c *gin.Context) {
	if caller(c).dialect == DialectSDK {
		s.sdkJobStatus(c)
		return
	}
	record, err := s.findJob(c)
	if err != nil {
		if e := describe(err); e.status == nethttp.StatusNotFound {
			err = e.with("job_status", rowmill.StatusUnknown).with("metadata", gin.H{})
		}
		s.fail(c, err)
		return
	}
	metadata := gin.H{}
	if reason := record.Job.FailureReason; record.Job.Status == rowmill.StatusFailed && reason != nil {
		metadata["failure_reason"] = reason.Message
		if reason.AdditionalContext != "" {
			metadata["additional_context"] = reason.AdditionalContext
		}
	}
	answer(c, nethttp.StatusOK, gin.H{
		"message": statusMessage(record.Job), "job_status": record.Job.Status, "metadata": metadata,
	})
}

// statusMessage says where a job stands, for a person.
func statusMessage(job rowmill.Job) string {
	if job.Message != "" && !job.Status.Terminal() {
		return job.Message
	}
	switch job.Status {
	case rowmill.StatusPending:
		return "Job is pending"
	case rowmill.StatusSubmitted:
		return "Job has been submitted"
	case rowmill.StatusStarting:
		return "Job is starting"
	case rowmill.StatusRunning:
		return "Job is running"
	case rowmill.StatusSucceeded:
		return "Job completed successfully"
	case rowmill.StatusCancelled:
		return "Job was cancelled"
	case rowmill.StatusFailed:
		if job.FailureReason != nil {
			return "Job failed: " + job.FailureReason.Message
		}
		return "Job failed"
	}
	return "Status is unknown"
}

// cancelJob cancels a job. That is durable before the answer; the pipeline
// stops the work afterwards.
func (s *Server) cancelJob(c *gin.Context) {
	record, err := s.findJob(c)
	if err == nil {
		record, err = s.Store.Cancel(c.Request.Context(), record.Job.ID, s.Now().UTC(), func(r *store.Record) {
			r.Job.Message = "cancelled on request"
			r.Job.JobCost = r.Spec.Model.Cost(&r.Job)
		})
	}
	switch {
	case err == nil:
		s.Service.Cancelled(record.Job.ID)
		answer(c, nethttp.StatusOK, gin.H{"cancelled": true, "message": "The job was cancelled. Rows that are being run may take a moment to stop."})
	case errors.Is(err, rowmill.ErrTerminal):
		answer(c, nethttp.StatusOK, gin.H{"cancelled": false, "message": "The job cannot be cancelled: " + whyOver(record.Job.Status)})
	default:
		if e := describe(err); e.status == nethttp.StatusNotFound {
			err = e.with("cancelled", false)
		}
		s.fail(c, err)
	}
}

func whyOver(status rowmill.Status) string {
	switch status {
	case rowmill.StatusSucceeded:
		return "it already completed."
	case rowmill.StatusCancelled:
		return "it was cancelled before."
	}
	return "it already failed."
}

// listJobs answers a page of jobs with limit, all of them without.
func (s *Server) listJobs(c *gin.Context) {
	account := caller(c).account
	text, paginated := c.GetQuery("limit")
	if !paginated {
		s.streamJobs(c, account)
		return
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > 100 {
		s.fail(c, rowmill.Invalid("limit", "is %q; it must be an integer from 1 to 100", shorten(text, 32)))
		return
	}
	jobs, next, err := s.Store.List(c.Request.Context(), account, limit, c.Query("cursor"))
	if err != nil {
		s.fail(c, fmt.Errorf("list jobs: %w", err))
		return
	}
	views := make([]jobView, len(jobs))
	for i, job := range jobs {
		views[i] = caller(c).view(job)
	}
	body := gin.H{"jobs": views, "next_cursor": nil}
	if next != "" {
		body["next_cursor"] = next
	}
	answer(c, nethttp.StatusOK, body)
}

// streamJobs writes all jobs of an account, a page in memory at a time.
func (s *Server) streamJobs(c *gin.Context, account string) {
	s.stream(c, jsonType, "", func(w *bufio.Writer) error {
		_, _ = w.WriteString(`{"message":"All jobs of the account, newest first.","jobs":[`)
		cursor, separator := "", ""
		for {
			jobs, next, err := s.Store.List(c.Request.Context(), account, listPage, cursor)
			if err != nil {
				return fmt.Errorf("list jobs: %w", err)
			}
			for _, job := range jobs {
				text, err := encode(caller(c).view(job))
				if err != nil {
					return fmt.Errorf("encode job %s: %w", job.ID, err)
				}
				_, _ = w.WriteString(separator)
				if _, err := w.Write(text); err != nil {
					return err
				}
				separator = ","
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		_, err := w.WriteString("]}\n")
		return err
	})
}
