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

// A watchedBucket is a bucket that reports to status whether each call has succeeded.
type watchedBucket struct {
	blob.Bucket
	status *storageStatus
	atOnce bool // calls fail at once during an outage, instead of trying the bucket
}

// checkOutage returns an error during an outage, if atOnce is set. It returns none for
// reads if the bucket is only full.
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

// callAndRecord calls do, reports the result to the status, and returns the result.
func callAndRecord[T any](b *watchedBucket, kind string, do func() (T, error)) (result T, err error) {
	if err := b.checkOutage(kind); err != nil {
		return result, err
	}
	result, err = do()
	return result, b.status.recordResult(err, kind)
}

// run is callAndRecord for a function without a result.
func (b *watchedBucket) run(kind string, do func() error) error {
	_, err := callAndRecord(b, kind, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (b *watchedBucket) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	if err := b.checkOutage(writes); err != nil {
		return nil, err
	}
	w, err := b.Bucket.Create(ctx, key, contentType)
	if err != nil {
		return nil, b.status.recordResult(err, writes)
	}
	watched := watchedWriter{w, b.status}
	if a, ok := w.(blob.Appender); ok {
		return &watchedAppender{watched, a}, nil
	}
	return &watched, nil
}

func (b *watchedBucket) Open(ctx context.Context, key string) (blob.Object, error) {
	o, err := callAndRecord(b, reads, func() (blob.Object, error) { return b.Bucket.Open(ctx, key) })
	if err != nil {
		return nil, err
	}
	return &watchedObject{o, b.status}, nil
}

func (b *watchedBucket) Stat(ctx context.Context, key string) (blob.ObjectInfo, error) {
	return callAndRecord(b, reads, func() (blob.ObjectInfo, error) { return b.Bucket.Stat(ctx, key) })
}

func (b *watchedBucket) List(ctx context.Context, prefix string) ([]blob.ObjectInfo, error) {
	return callAndRecord(b, reads, func() ([]blob.ObjectInfo, error) { return b.Bucket.List(ctx, prefix) })
}

func (b *watchedBucket) Copy(ctx context.Context, from, to string) error {
	return b.run(writes, func() error { return b.Bucket.Copy(ctx, from, to) })
}

// Delete counts as a read, because it needs no room in the bucket.
func (b *watchedBucket) Delete(ctx context.Context, key string) error {
	return b.run(reads, func() error { return b.Bucket.Delete(ctx, key) })
}

// DeletePrefix counts as a read, because it needs no room in the bucket.
func (b *watchedBucket) DeletePrefix(ctx context.Context, prefix string) error {
	return b.run(reads, func() error { return b.Bucket.DeletePrefix(ctx, prefix) })
}

// probe tests the bucket with a read, and also with a write if writes have failed. The
// status gets the results.
func (b *watchedBucket) probe(ctx context.Context, node string) {
	key := layout.ProbeKey(node)
	if _, err := b.Stat(ctx, key); err != nil && IsTransient(err) || !b.status.needsWriteProbe() {
		return
	}
	_, err := blob.Write(ctx, b, key, layout.Bytes, func(w io.Writer) error {
		_, err := w.Write(make([]byte, probeSize))
		return err
	})
	if err == nil {
		_ = b.Delete(ctx, key) // if the object stays, the next probe overwrites it
	}
}

// probeSize is the size in bytes of the object with which probe tests whether there is room:
// less than most parts, but more than the small files that fit on an almost full disk.
const probeSize = 256 << 10

// A watchedWriter is a writer of an object that reports to status whether each call has
// succeeded.
type watchedWriter struct {
	blob.Writer
	status *storageStatus
}

func (w *watchedWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		err = w.status.recordResult(err, writes)
	}
	return n, err
}

func (w *watchedWriter) Commit() (blob.ObjectInfo, error) {
	info, err := w.Writer.Commit()
	return info, w.status.recordResult(err, writes)
}

// A watchedAppender is a watchedWriter that can also append ranges of other objects.
type watchedAppender struct {
	watchedWriter
	to blob.Appender
}

func (w *watchedAppender) Expect(size int64) { w.to.Expect(size) }

func (w *watchedAppender) Append(o blob.Object, offset, size int64) error {
	return w.status.recordResult(w.to.Append(o, offset, size), writes)
}

// A watchedObject is an object that reports to status whether each read has succeeded.
type watchedObject struct {
	blob.Object
	status *storageStatus
}

func (o *watchedObject) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.Object.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		err = o.status.recordResult(err, reads)
	}
	return n, err
}

// WithRetries returns a context for work that cannot start again: each call of the bucket
// with this context is repeated until it succeeds. The caller must call done after the
// work.
func (w *Monitor) WithRetries(ctx context.Context) (retryingCtx context.Context, done func()) {
	waiter := new(int)
	return retry.WithUnlimited(ctx, func(err error) {
		if err == nil {
			w.objects.removeWaiter(waiter)
		} else {
			w.objects.addWaiter(waiter, err)
			w.config.Met(ctx, err)
		}
	}), func() { w.objects.removeWaiter(waiter) }
}
