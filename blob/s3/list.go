package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/rowmill/rowmill/blob"
)

// uploadsPage is how many unfinished uploads one request lists: the maximum of S3.
const uploadsPage = 1000

// List returns the objects under a prefix, in key order.
func (b *Bucket) List(ctx context.Context, prefix string) (infos []blob.ObjectInfo, err error) {
	if err = blob.CheckPrefixCall(ctx, prefix); err == nil {
		infos, err = retryCallFor(ctx, b, func(ctx context.Context) ([]blob.ObjectInfo, error) { return b.list(ctx, prefix) })
	}
	return infos, blob.Wrap(err, "list objects under", prefix)
}

// list lists objects without retries. It skips names that are not keys, such as the
// folders that some tools make.
func (b *Bucket) list(ctx context.Context, prefix string) ([]blob.ObjectInfo, error) {
	var infos []blob.ObjectInfo
	options := minio.ListObjectsOptions{Prefix: b.name(prefix), Recursive: true}
	for o := range b.client.ListObjectsIter(ctx, b.config.Bucket, options) {
		if o.Err != nil {
			return nil, o.Err
		}
		if info := b.describe(o); blob.CheckKey(info.Key) == nil {
			infos = append(infos, info)
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err() // when ctx ends, the iterator stops without an error
	}
	slices.SortFunc(infos, func(x, y blob.ObjectInfo) int { return cmp.Compare(x.Key, y.Key) }) // not all servers sort
	return infos, nil
}

// Folders returns the names of folders directly under a prefix.
func (b *Bucket) Folders(ctx context.Context, prefix, after string, limit int) (names []string, err error) {
	if err = blob.CheckPrefixCall(ctx, prefix); err == nil {
		names, err = retryCallFor(ctx, b, func(ctx context.Context) ([]string, error) { return b.folders(ctx, prefix, after, limit) })
	}
	return names, blob.Wrap(err, "list folders under", prefix)
}

// folders lists folders without retries.
func (b *Bucket) folders(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the listing early if limit is reached
	defer cancel()
	options := minio.ListObjectsOptions{Prefix: b.name(prefix)}
	if after != "" {
		options.StartAfter = b.name(prefix) + after + "0" // "0" is the ASCII character after "/", so this skips the folder after
	}
	var names []string
	for o := range b.client.ListObjectsIter(ctx, b.config.Bucket, options) {
		if o.Err != nil {
			return nil, o.Err
		}
		name, isFolder := strings.CutSuffix(strings.TrimPrefix(o.Key, b.name(prefix)), "/")
		if isFolder && (after == "" || name+"/" > after+"/") && blob.CheckPrefix(prefix+name+"/") == nil {
			names = append(names, name)
		}
		if len(names) == limit {
			break
		}
	}
	return names, ctx.Err() // when ctx ends, the iterator stops without an error
}

// DeletePrefix aborts this process's writers under a prefix, cancels all
// unfinished uploads there, and then removes the objects, so that objects of
// uploads that completed meanwhile are removed too.
func (b *Bucket) DeletePrefix(ctx context.Context, prefix string) error {
	err := cmp.Or(ctx.Err(), blob.CheckPrefix(prefix))
	if err == nil {
		for _, w := range b.openWriters(prefix) {
			w.Abort()
		}
		err = b.abortUploads(ctx, b.name(prefix))
	}
	if err == nil {
		err = b.retryCall(ctx, func(ctx context.Context) error { return b.removeObjects(ctx, prefix) })
	}
	return blob.Wrap(err, "delete objects under", prefix)
}

// removeObjects removes the objects under a prefix, a thousand per request if
// the server supports that.
func (b *Bucket) removeObjects(ctx context.Context, prefix string) error {
	infos, err := b.list(ctx, prefix)
	if err != nil || len(infos) == 0 {
		return err
	}
	names := make([]string, len(infos))
	for i, info := range infos {
		names[i] = b.name(info.Key)
	}
	if !b.limits.lacks(deleteMany) {
		err := b.removeTogether(ctx, names)
		if !b.recordIfUnsupported(deleteMany, err) {
			return err
		}
	}
	return b.removeEach(ctx, names)
}

// removeTogether removes objects, a thousand per request. A missing object is
// not an error.
func (b *Bucket) removeTogether(ctx context.Context, names []string) error {
	removed, err := b.client.RemoveObjectsWithIter(ctx, b.config.Bucket, func(yield func(minio.ObjectInfo) bool) {
		for _, name := range names {
			if !yield(minio.ObjectInfo{Key: name}) {
				return
			}
		}
	}, minio.RemoveObjectsOptions{})
	if err != nil {
		return err
	}
	for result := range removed {
		if result.Err != nil && errorCode(result.Err) != codeNoSuchKey {
			err = errors.Join(err, fmt.Errorf("%s: %w", result.ObjectName, checkBody(result.Err)))
		}
	}
	return err
}

// deletesAtOnce is how many objects are deleted at a time, with one request each. The
// requests take time on the server, but no memory here.
const deletesAtOnce = 16

// removeEach removes objects one by one.
func (b *Bucket) removeEach(ctx context.Context, names []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(deletesAtOnce)
	for _, name := range names {
		group.Go(func() error {
			return blob.Wrap(b.retryCall(ctx, func(ctx context.Context) error { return b.removeOnce(ctx, name) }), "delete", name)
		})
	}
	return group.Wait()
}

// removeOnce removes an object without retries. A missing object is not an error;
// some servers answer 404.
func (b *Bucket) removeOnce(ctx context.Context, name string) error {
	err := b.client.RemoveObject(ctx, b.config.Bucket, name, minio.RemoveObjectOptions{})
	if errorCode(err) == codeNoSuchKey {
		return nil
	}
	return err
}

// abortUploads cancels the unfinished uploads of names under a prefix, if the server
// lists them. Otherwise the uploads stay until a rule of the bucket removes them.
func (b *Bucket) abortUploads(ctx context.Context, prefix string) error {
	if b.limits.lacks(listUploads) {
		return nil
	}
	err := b.retryCall(ctx, func(ctx context.Context) error { return b.abortListed(ctx, prefix) })
	if b.recordIfUnsupported(listUploads, err) {
		return nil
	}
	return err
}

// abortListed lists unfinished uploads and cancels them.
func (b *Bucket) abortListed(ctx context.Context, prefix string) error {
	for key, upload := "", ""; ; {
		uploads, err := b.client.ListMultipartUploads(ctx, b.config.Bucket, prefix, key, upload, "", uploadsPage)
		if err != nil {
			return err
		}
		for _, u := range uploads.Uploads {
			if !strings.HasPrefix(u.Key, prefix) {
				continue // the server ignored the prefix in the request
			}
			if err := b.abortUpload(ctx, u.Key, u.UploadID); err != nil {
				return err
			}
		}
		if !uploads.IsTruncated {
			return nil
		}
		key, upload = uploads.NextKeyMarker, uploads.NextUploadIDMarker
	}
}

// abortUpload cancels one upload. A missing upload is not an error.
func (b *Bucket) abortUpload(ctx context.Context, name, upload string) error {
	err := b.retryCall(ctx, func(ctx context.Context) error {
		err := b.client.AbortMultipartUpload(ctx, b.config.Bucket, name, upload)
		if errorCode(err) == codeNoSuchUpload {
			return nil
		}
		return err
	})
	if isNotFound(err) {
		return nil
	}
	return err
}
