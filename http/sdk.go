package http

import (
	"context"
	"fmt"
	nethttp "net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// This file is the dialect "sdk" of a key: the form in which existing clients
// of this API family read where a job stands.

// codeCancelled is the code of a failure_reason that stands in for none.
const codeCancelled = "cancelled"

// sdkStatus is a status as the dialect has it. What comes before running is
// STARTING, since clients that wait for a job to start know no other.
func sdkStatus(status rowmill.Status) string {
	switch status {
	case rowmill.StatusPending, rowmill.StatusSubmitted:
		status = rowmill.StatusStarting
	}
	return strings.ToUpper(string(status))
}

// view puts a job's record into the dialect of a key.
func (who principal) view(job rowmill.Job) jobView {
	view := viewJob(job)
	if who.dialect != DialectSDK {
		return view
	}
	view.Status = rowmill.Status(sdkStatus(job.Status))
	if job.Status == rowmill.StatusCancelled && job.FailureReason == nil {
		view.FailureReason = rowmill.Failf(codeCancelled, "The job was cancelled on request.")
	}
	return view
}

// sdkJobStatus answers GET /v1/job-status/{job_id} in the dialect. A client
// that waits for a job to start takes no notice of SUCCEEDED, so that every
// job is RUNNING once before; the record remembers it, whichever node is asked.
func (s *Server) sdkJobStatus(c *gin.Context) {
	record, err := s.findJob(c)
	status := sdkStatus(record.Job.Status)
	if err == nil {
		status, err = s.sdkStatusOf(c.Request.Context(), record)
	}
	if err != nil {
		if e := describe(err); e.status == nethttp.StatusNotFound {
			err = e.with("job_status", gin.H{shorten(c.Param("job_id"), 64): sdkStatus(rowmill.StatusUnknown)}).with("metadata", gin.H{})
		}
		s.fail(c, err)
		return
	}
	answer(c, nethttp.StatusOK, gin.H{"job_status": gin.H{record.Job.ID: status}})
}

func (s *Server) sdkStatusOf(ctx context.Context, record store.Record) (string, error) {
	status := record.Job.Status
	if record.ShownRunning || status != rowmill.StatusRunning && status != rowmill.StatusSucceeded {
		return sdkStatus(status), nil
	}
	if err := s.Store.ShowRunning(ctx, record.Job.ID); err != nil {
		return "", fmt.Errorf("note that a job was shown running: %w", err)
	}
	return sdkStatus(rowmill.StatusRunning), nil
}
