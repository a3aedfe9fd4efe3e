package http

import (
	"context"
	"fmt"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/store"
)

// batches are jobs of the dialects that send requests as they are: what
// batch.Jobs asks for.
type batches struct {
	*jobs
	submissions *submissions
}

// Account is whose request it is.
func (b *batches) Account(c *gin.Context) string { return caller(c).account }

// Repeated returns what the same request has stored before.
func (b *batches) Repeated(c *gin.Context, idem store.Idempotency) (store.Record, error) {
	return b.submissions.store.Lookup(c.Request.Context(), caller(c).account, idem)
}

// Create charges the account with a job, has its input put in its place, and stores
// it.
func (b *batches) Create(c *gin.Context, record store.Record, spool func(context.Context) error, idem *store.Idempotency) (stored store.Record, existed bool, err error) {
	s, ctx := b.submissions, c.Request.Context()
	if err := s.takesJobs(c); err != nil {
		return stored, false, err
	}
	if err := s.quotas.charge(ctx, caller(c).account, &record.Spec); err != nil {
		return stored, false, err
	}
	if err := b.spool(ctx, record, spool); err != nil {
		return stored, false, err
	}
	stored, existed, err = s.put(ctx, caller(c), record, idem)
	if err == nil && !existed {
		s.service.Submitted(stored)
	}
	return stored, existed, err
}

// spool puts the input of a job in its place that has no record yet, with a mark
// that says so.
func (b *batches) spool(ctx context.Context, record store.Record, spool func(context.Context) error) error {
	mark, err := b.bucket.Create(ctx, layout.Spooling(record.Job.ID), layout.Bytes)
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
func (b *batches) Cancel(ctx context.Context, id string) (store.Record, error) {
	record, _, err := b.end(ctx, id, "cancelled on request")
	return record, err
}

// RemoveData removes what a job that is over has read and made.
func (b *batches) RemoveData(ctx context.Context, record store.Record) error {
	_, err := b.removeData(ctx, record)
	return err
}
