package store

import (
	"context"
	"fmt"
	"sync/atomic"
)

// A WriteCounter identifies one writer of a job's record, and detects whether the store has lost
// writes that it had acknowledged to this writer. The record counts the writes of each
// writer. A single version number would not be enough: if other writers have written
// since, it does not show which writer's writes were lost.
//
// A write with a writer in its context (see WithWriteCounter) fails with ErrLostWrites if the record
// has fewer writes of this writer than were acknowledged. If the write succeeds, the
// WriteCounter notes the new number as acknowledged. A nil WriteCounter checks nothing. Writers are
// safe for concurrent use.
type WriteCounter struct {
	name  string
	acked atomic.Int64
}

// NewWriteCounter returns a writer for a single job. The name must be unique among processes and
// hold no blanks.
func NewWriteCounter(name string) *WriteCounter { return &WriteCounter{name: name} }

type writerKey struct{}

// WithWriteCounter returns a context whose writes belong to w.
func WithWriteCounter(ctx context.Context, w *WriteCounter) context.Context {
	return context.WithValue(ctx, writerKey{}, w)
}

// WriteCounterOf returns the writer of a context, nil when it has none.
func WriteCounterOf(ctx context.Context) *WriteCounter {
	w, _ := ctx.Value(writerKey{}).(*WriteCounter)
	return w
}

// Name returns the writer's name, empty for nil.
func (w *WriteCounter) Name() string {
	if w == nil {
		return ""
	}
	return w.name
}

// AckedWrites returns the number of acknowledged writes.
func (w *WriteCounter) AckedWrites() int64 {
	if w == nil {
		return 0
	}
	return w.acked.Load()
}

// Ack records that the job's record holds n writes of w.
func (w *WriteCounter) Ack(n int64) {
	for w != nil {
		if old := w.acked.Load(); old >= n || w.acked.CompareAndSwap(old, n) {
			return
		}
	}
}

// ResetAcked sets the number of acknowledged writes to n. Call ResetAcked when the lost writes have
// been repeated, or when no node will repeat them.
func (w *WriteCounter) ResetAcked(n int64) { w.acked.Store(n) }

// CheckLostWrites returns ErrLostWrites when n, the number of w's writes in the record, is below
// the number of acknowledged writes.
func (w *WriteCounter) CheckLostWrites(jobID string, n int64) error {
	if acked := w.AckedWrites(); n < acked {
		return fmt.Errorf("the store acknowledged %d writes to job %s, but has only %d of them: %w", acked, jobID, n, ErrLostWrites)
	}
	return nil
}
