package storage

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/retry"
)

// A watchedBucket is a bucket that notes in status whether each call succeeded.
type watchedBucket struct {
	blob.Bucket
	status *status
	atOnce bool // calls fail at once during an outage
}

// checkOutage returns an error during an outage, if calls fail at once. But a full bucket
// can be read.
func (b *watchedBucket) checkOutage(kind string) error {
	if !b.atOnce {
		return nil
	}
	outage, away := b.status.outage()
	if !away || outage.Full && kind == reads {
		return nil
	}
	return fmt.Errorf("object storage could not be used for %v: %w", outage.Lasts, outage.Err)
}

// call makes a call and notes the result.
func call[T any](b *watchedBucket, kind string, do func() (T, error)) (result T, err error) {
	if err := b.checkOutage(kind); err != nil {
		return result, err
	}
	result, err = do()
	return result, b.status.note(err, kind)
}

// run is call without a result.
func (b *watchedBucket) run(kind string, do func() error) error {
	_, err := call(b, kind, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (b *watchedBucket) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	if err := b.checkOutage(writes); err != nil {
		return nil, err
	}
	w, err := b.Bucket.Create(ctx, key, contentType)
	if err != nil {
		return nil, b.status.note(err, writes)
	}
	watched := watchedWriter{w, b.status}
	if a, ok := w.(blob.Appender); ok {
		return &watchedAppender{watched, a}, nil
	}
	return &watched, nil
}

func (b *watchedBucket) Open(ctx context.Context, key string) (blob.Object, error) {
	o, err := call(b, reads, func() (blob.Object, error) { return b.Bucket.Open(ctx, key) })
	if err != nil {
		return nil, err
	}
	return &watchedObject{o, b.status}, nil
}

func (b *watchedBucket) Stat(ctx context.Context, key string) (blob.Info, error) {
	return call(b, reads, func() (blob.Info, error) { return b.Bucket.Stat(ctx, key) })
}

func (b *watchedBucket) List(ctx context.Context, prefix string) ([]blob.Info, error) {
	return call(b, reads, func() ([]blob.Info, error) { return b.Bucket.List(ctx, prefix) })
}

func (b *watchedBucket) Copy(ctx context.Context, from, to string) error {
	return b.run(writes, func() error { return b.Bucket.Copy(ctx, from, to) })
}

// Delete and DeletePrefix count as reads, because they need no room.
func (b *watchedBucket) Delete(ctx context.Context, key string) error {
	return b.run(reads, func() error { return b.Bucket.Delete(ctx, key) })
}

func (b *watchedBucket) DeletePrefix(ctx context.Context, prefix string) error {
	return b.run(reads, func() error { return b.Bucket.DeletePrefix(ctx, prefix) })
}

// probe checks the bucket with a read, and with a write if writes have failed.
func (b *watchedBucket) probe(ctx context.Context, node string) {
	key := layout.Probe(node)
	if _, err := b.Stat(ctx, key); err != nil && IsTransient(err) || !b.status.mustWrite() {
		return
	}
	_, err := blob.Write(ctx, b, key, layout.Bytes, func(w io.Writer) error {
		_, err := w.Write(make([]byte, probeSize))
		return err
	})
	if err == nil {
		_ = b.Delete(ctx, key) // a probe that stays is overwritten by the next one
	}
}

// probeSize is the size in bytes of the object that tests whether there is room again:
// less than any later part, and more than small files that fit on an almost full disk.
const probeSize = 256 << 10

type watchedWriter struct {
	blob.Writer
	status *status
}

func (w *watchedWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		err = w.status.note(err, writes)
	}
	return n, err
}

func (w *watchedWriter) Commit() (blob.Info, error) {
	info, err := w.Writer.Commit()
	return info, w.status.note(err, writes)
}

type watchedAppender struct {
	watchedWriter
	to blob.Appender
}

func (w *watchedAppender) Expect(size int64) { w.to.Expect(size) }

func (w *watchedAppender) Append(o blob.Object, offset, size int64) error {
	return w.status.note(w.to.Append(o, offset, size), writes)
}

type watchedObject struct {
	blob.Object
	status *status
}

func (o *watchedObject) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.Object.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		err = o.status.note(err, reads)
	}
	return n, err
}

// Patient returns a context for work that cannot start again: each call of the bucket with
// this context is repeated until it succeeds. The caller must call done.
func (w *Watch) Patient(ctx context.Context) (patient context.Context, done func()) {
	waiter := new(int)
	return retry.Unlimited(ctx, func(err error) {
		if err == nil {
			w.objects.removeWaiter(waiter)
		} else {
			w.objects.addWaiter(waiter, err)
			w.config.Met(ctx, err)
		}
	}), func() { w.objects.removeWaiter(waiter) }
}
