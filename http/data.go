package http

import (
	"context"
	"errors"
	"fmt"
	nethttp "net/http"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// deleteData answers DELETE /v1/jobs/{job_id}/data: input, parts and results of
// a job that is over go now instead of at the end of its retention.
func (s *Server) deleteData(c *gin.Context) {
	record, err := s.findJob(c)
	if err == nil {
		// A client that leaves must not leave half of the data behind.
		record, err = s.removeData(context.WithoutCancel(c.Request.Context()), record)
	}
	if err != nil {
		s.fail(c, err)
		return
	}
	s.Logger.Info("data removed on request", keyRequest, requestID(c), keyJob, record.Job.ID)
	answer(c, nethttp.StatusOK, gin.H{"job_id": record.Job.ID, "data_removed": record.DataRemoved})
}

// removeData marks the job first, so that no reader starts on what is about to
// go. The job stays in the hands of retention, which looks again for what a
// worker may still have written.
func (s *Server) removeData(ctx context.Context, record store.Record) (store.Record, error) {
	id := record.Job.ID
	removed, err := s.Store.RemoveData(ctx, id, s.Now())
	if errors.Is(err, rowmill.ErrConflict) {
		return removed, errorf(nethttp.StatusConflict, "job_not_over",
			"the job is %s; cancel it or wait for its end before its data is deleted", record.Job.Status).with("status", record.Job.Status)
	}
	if err != nil {
		return removed, fmt.Errorf("remove the data of a job: %w", err)
	}
	if err := errors.Join(s.Bucket.DeletePrefix(ctx, "jobs/"+id+"/"), s.Store.DropParts(ctx, id)); err != nil {
		return removed, fmt.Errorf("delete the objects of a job: %w", err)
	}
	return removed, nil
}
