package s3

import (
	"context"
	"errors"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
)

// maxCopySize is the size in bytes of the largest object that S3 copies in one request.
const maxCopySize = 5 << 30

// Copy lets the server copy an object.
func (b *Bucket) Copy(ctx context.Context, from, to string) error {
	err := errors.Join(ctx.Err(), blob.CheckKey(from), blob.CheckKey(to))
	if err == nil {
		err = b.copy(ctx, from, to)
	}
	if isNotFound(err) {
		err = rowmill.ErrNotFound
	}
	return blob.Wrap(err, "copy object", from)
}

func (b *Bucket) copy(ctx context.Context, from, to string) error {
	found, err := b.stat(ctx, from)
	if err != nil {
		return err
	}
	if found.Size <= maxCopySize && !b.limits.lacks(copyObjects) {
		err := b.retryCall(ctx, func(ctx context.Context) error { return b.copyOnce(ctx, b.name(from), b.name(to)) })
		if !b.recordIfUnsupported(copyObjects, err) {
			return err
		}
	}
	return b.compose(ctx, from, to, found.ContentType)
}

// compose copies an object by writing a new one. The server copies the ranges of bytes
// if it can.
func (b *Bucket) compose(ctx context.Context, from, to, contentType string) error {
	source, err := b.Open(ctx, from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // the object was only read, so a failed Close loses no data
	created, err := b.Create(ctx, to, contentType)
	if err != nil {
		return err
	}
	defer created.Abort()
	w := created.(*writer)
	w.Expect(source.Size())
	if err := w.Append(source, 0, source.Size()); err != nil {
		return err
	}
	_, err = w.Commit()
	return err
}
