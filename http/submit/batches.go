package submit

import (
	"context"
	"fmt"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/jobs"
	"github.com/rowmill/rowmill/store"
)

// Batches creates the jobs of the dialects; it implements batch.Jobs.
type Batches struct {
	*jobs.Jobs
	Submissions *Submissions
}

// Account returns the caller's account.
func (b *Batches) Account(c *gin.Context) string { return caller.Of(c).Account }

// Repeated returns the record that the same request stored earlier.
func (b *Batches) Repeated(c *gin.Context, idem store.Idempotency) (store.Record, error) {
	return b.Submissions.Store.Lookup(c.Request.Context(), caller.Of(c).Account, idem)
}

// Create sets the job's account and quotas, stores the input, and stores the record.
func (b *Batches) Create(c *gin.Context, record store.Record, spool func(context.Context) error, idem *store.Idempotency) (stored store.Record, existed bool, err error) {
	s, ctx := b.Submissions, c.Request.Context()
	if err := s.TakesJobs(c); err != nil {
		return stored, false, err
	}
	if err := s.Quotas.Charge(ctx, caller.Of(c).Account, &record.Spec); err != nil {
		return stored, false, err
	}
	if err := b.spool(ctx, record, spool); err != nil {
		return stored, false, err
	}
	stored, existed, err = s.put(ctx, caller.Of(c), record, idem)
	if err == nil && !existed {
		s.Service.Submitted(stored)
	}
	return stored, existed, err
}

// spool stores the input of a job. Because the job has no record yet, it creates a mark
// first.
func (b *Batches) spool(ctx context.Context, record store.Record, spool func(context.Context) error) error {
	mark, err := b.Bucket.Create(ctx, layout.Spooling(record.Job.ID), layout.Bytes)
	if err == nil {
		_, err = mark.Commit()
	}
	if err == nil {
		err = spool(ctx)
	}
	if err != nil {
		return fmt.Errorf("spool the input of a batch: %w", err)
	}
	return nil
}

// Cancel ends a job.
func (b *Batches) Cancel(ctx context.Context, id string) (store.Record, error) {
	record, _, err := b.End(ctx, id, "cancelled on request")
	return record, err
}

// RemoveData removes the input and the results of an ended job.
func (b *Batches) RemoveData(ctx context.Context, record store.Record) error {
	_, err := b.DropData(ctx, record)
	return err
}
