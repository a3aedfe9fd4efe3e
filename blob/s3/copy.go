package s3

import (
	"context"
	"errors"
	"fmt"

	"github.com/minio/minio-go/v7"

	"github.com/rowmill/rowmill"
)

// mostAtOnce is how large an object may be that S3 copies in one request; parts of
// copiedPart make up larger ones.
const (
	mostAtOnce = 5 << 30
	copiedPart = 1 << 30
)

// Copy has the server copy an object.
func (b *Bucket) Copy(ctx context.Context, from, to string) error {
	err := errors.Join(begin(ctx, from), begin(ctx, to))
	if err == nil {
		err = b.copy(ctx, from, to)
	}
	if isNotFound(err) {
		err = rowmill.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("copy object %s: %w", from, err)
	}
	return nil
}

func (b *Bucket) copy(ctx context.Context, from, to string) error {
	found, err := b.stat(ctx, from)
	if err != nil {
		return err
	}
	if found.Size <= mostAtOnce {
		return b.try(ctx, func(ctx context.Context) error {
			_, err := b.client.CopyObject(ctx, b.config.Bucket, b.name(from), b.config.Bucket, b.name(to), nil, minio.CopySrcOptions{}, minio.PutObjectOptions{})
			return err
		})
	}
	var upload string
	if err := b.try(ctx, func(ctx context.Context) (err error) {
		upload, err = b.client.NewMultipartUpload(ctx, b.config.Bucket, b.name(to), minio.PutObjectOptions{ContentType: found.ContentType})
		return err
	}); err != nil {
		return err
	}
	var parts []minio.CompletePart
	for at := int64(0); at < found.Size; at += copiedPart {
		var part minio.CompletePart
		if err := b.try(ctx, func(ctx context.Context) (err error) {
			part, err = b.client.CopyObjectPart(ctx, b.config.Bucket, b.name(from), b.config.Bucket, b.name(to), upload, len(parts)+1, at, min(copiedPart, found.Size-at), nil)
			return err
		}); err != nil {
			return errors.Join(err, b.abortUpload(context.WithoutCancel(ctx), b.name(to), upload))
		}
		parts = append(parts, part)
	}
	return b.try(ctx, func(ctx context.Context) error {
		_, err := b.client.CompleteMultipartUpload(ctx, b.config.Bucket, b.name(to), upload, parts, minio.PutObjectOptions{})
		return err
	})
}
