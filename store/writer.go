package store

import (
	"context"
	"fmt"
	"sync/atomic"
)

// A Writer is one of those who write the record of a job, and minds whether the
// store still has what it acknowledged to it. For each writer the record holds
// how many writes it has from it: a version that only counts cannot say whose
// writes a store has lost, once others have written since.
//
// A write whose context has a writer (see As) is refused with ErrForgotten where
// the record holds fewer than were acknowledged to that writer, and acknowledges
// as many as it holds then. A nil Writer minds nothing. Writers are safe for
// concurrent use.
type Writer struct {
	name  string
	acked atomic.Int64
}

// NewWriter returns a writer of one job. No two processes may use a name, which
// has no blanks.
func NewWriter(name string) *Writer { return &Writer{name: name} }

type writerKey struct{}

// As returns a context whose writes are those of w.
func As(ctx context.Context, w *Writer) context.Context {
	return context.WithValue(ctx, writerKey{}, w)
}

// WriterOf returns whose the writes of a context are, nil where nobody minds.
func WriterOf(ctx context.Context) *Writer {
	w, _ := ctx.Value(writerKey{}).(*Writer)
	return w
}

// Name is the writer's name, empty for nil.
func (w *Writer) Name() string {
	if w == nil {
		return ""
	}
	return w.name
}

// Acked is how many writes were acknowledged.
func (w *Writer) Acked() int64 {
	if w == nil {
		return 0
	}
	return w.acked.Load()
}

// Ack notes that the record holds n writes of the writer's.
func (w *Writer) Ack(n int64) {
	for w != nil {
		if old := w.acked.Load(); old >= n || w.acked.CompareAndSwap(old, n) {
			return
		}
	}
}

// Reset sets how many were acknowledged: what was forgotten is mended, or given up.
func (w *Writer) Reset(n int64) { w.acked.Store(n) }

// Check returns ErrForgotten where a record that holds n writes of the writer's
// lacks one that was acknowledged.
func (w *Writer) Check(jobID string, n int64) error {
	if acked := w.Acked(); n < acked {
		return fmt.Errorf("of %d writes to job %s there are %d: %w", acked, jobID, n, ErrForgotten)
	}
	return nil
}
