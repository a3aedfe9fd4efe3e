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

// A watchedBucket is a bucket that tells its place whether each call succeeded.
type watchedBucket struct {
	blob.Bucket
	place  *place
	atOnce bool // during an outage calls fail at once
}

// may returns the reason why a call would fail, if calls fail at once. A full bucket can
// be read.
func (b *watchedBucket) may(kind string) error {
	if !b.atOnce {
		return nil
	}
	outage, away := b.place.outage()
	if !away || outage.Full && kind == reads {
		return nil
	}
	return fmt.Errorf("object storage could not be used for %v: %w", outage.Lasts, outage.Err)
}

// call makes a call and reports its result.
func call[T any](b *watchedBucket, kind string, do func() (T, error)) (result T, err error) {
	if err := b.may(kind); err != nil {
		return result, err
	}
	result, err = do()
	return result, b.place.met(err, kind)
}

// run is call without a result.
func (b *watchedBucket) run(kind string, do func() error) error {
	_, err := call(b, kind, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (b *watchedBucket) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	if err := b.may(writes); err != nil {
		return nil, err
	}
	w, err := b.Bucket.Create(ctx, key, contentType)
	if err != nil {
		return nil, b.place.met(err, writes)
	}
	watched := watchedWriter{w, b.place}
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
	return &watchedObject{o, b.place}, nil
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

// try checks the bucket with a read, and with a write if writes have failed.
func (b *watchedBucket) try(ctx context.Context, node string) {
	key := layout.Probe(node)
	if _, err := b.Stat(ctx, key); err != nil && Passing(err) || !b.place.writes() {
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
	place *place
}

func (w *watchedWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		err = w.place.met(err, writes)
	}
	return n, err
}

func (w *watchedWriter) Commit() (blob.Info, error) {
	info, err := w.Writer.Commit()
	return info, w.place.met(err, writes)
}

type watchedAppender struct {
	watchedWriter
	to blob.Appender
}

func (w *watchedAppender) Expect(size int64) { w.to.Expect(size) }

func (w *watchedAppender) Append(o blob.Object, offset, size int64) error {
	return w.place.met(w.to.Append(o, offset, size), writes)
}

type watchedObject struct {
	blob.Object
	place *place
}

func (o *watchedObject) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.Object.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		err = o.place.met(err, reads)
	}
	return n, err
}

// Patient returns a context under which a single call of the bucket is repeated until it
// succeeds, for work that cannot start again. The caller must call done.
func (w *Watch) Patient(ctx context.Context) (patient context.Context, done func()) {
	waiter := new(int)
	return retry.Unlimited(ctx, func(err error) {
		if err == nil {
			w.objects.returns(waiter)
		} else {
			w.objects.waits(waiter, err)
			w.config.Met(ctx, err)
		}
	}), func() { w.objects.returns(waiter) }
}
