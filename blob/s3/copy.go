package s3

import (
	"context"
	"errors"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
)

// maxCopySize is the largest object that S3 copies in one request.
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
		err := b.try(ctx, func(ctx context.Context) error { return b.copyOnce(ctx, b.name(from), b.name(to)) })
		if !b.refused(copyObjects, err) {
			return err
		}
	}
	return b.compose(ctx, from, to, found.ContentType)
}

// compose writes a copy as a new object. The server copies the ranges if it
// can.
func (b *Bucket) compose(ctx context.Context, from, to, contentType string) error {
	source, err := b.Open(ctx, from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // only read, so an error loses nothing
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
