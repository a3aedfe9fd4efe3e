package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
)

// errWrongAnswer means that an answer does not fit its request.
var errWrongAnswer = errors.New("the server's answer does not fit the request")

func isNotFound(err error) bool { return errors.Is(err, rowmill.ErrNotFound) }

// object is an open object. It reads ranges of the version that was opened.
type object struct {
	bucket   *Bucket
	key      string
	size     int64
	etag     string // without quotes
	modified time.Time

	ctx    context.Context
	cancel context.CancelFunc
	fills  sync.WaitGroup // running requests that fill blocks
}

// Open opens an object for reading with one request, which also returns the first
// block. When ctx ends, later requests for the object fail.
func (b *Bucket) Open(ctx context.Context, key string) (blob.Object, error) {
	if err := blob.CheckCall(ctx, key); err != nil {
		return nil, blob.Wrap(err, "open object", key)
	}
	o := &object{bucket: b, key: key}
	o.ctx, o.cancel = context.WithCancel(ctx)
	var first []byte
	err := b.retryCall(ctx, func(ctx context.Context) error {
		o.etag = "" // the request does not name a version: any complete version is accepted
		answer, err := o.getRange(ctx, 0, blockSize-1)
		if errorCode(err) == codeInvalidRange { // the object is empty
			found, err := b.client.StatObject(ctx, b.config.Bucket, b.name(key), minio.StatObjectOptions{})
			o.etag, o.modified = found.ETag, found.LastModified
			if err == nil && found.Size > 0 {
				err = errWrongAnswer // the object was replaced just now
			}
			return err
		}
		if err != nil {
			return err
		}
		defer func() { _ = answer.body.Close() }() // the body was read to its end, or is not needed
		o.size, o.etag, o.modified = answer.size, answer.etag, answer.modified
		first = make([]byte, min(blockSize, o.size))
		_, err = io.ReadFull(answer.body, first)
		return err
	})
	if err != nil {
		o.cancel()
		return nil, blob.Wrap(err, "open object", key)
	}
	b.blocks.addObject(o, first)
	return o, nil
}

// rangeAnswer is the beginning of the answer to a range request.
type rangeAnswer struct {
	body     io.ReadCloser
	size     int64 // bytes of the whole object, not of the range
	etag     string
	modified time.Time
}

// getRange requests the bytes from first to last of the version that was opened.
// last may be beyond the object's end.
func (o *object) getRange(ctx context.Context, first, last int64) (rangeAnswer, error) {
	b := o.bucket
	var options minio.GetObjectOptions
	options.Set("Range", fmt.Sprintf("bytes=%d-%d", first, last))
	if o.etag != "" {
		options.Set("If-Match", quoteETag(o.etag))
	}
	body, info, header, err := b.client.GetObject(ctx, b.config.Bucket, b.name(o.key), options)
	if err != nil {
		return rangeAnswer{}, err
	}
	a := rangeAnswer{body: body, etag: info.ETag, modified: info.LastModified}
	if err := a.check(header, first, last, o.etag); err != nil {
		_ = body.Close()
		return rangeAnswer{}, err
	}
	return a, nil
}

// check checks that the answer a fits its range request, and stores the object's size
// in a.
func (a *rangeAnswer) check(header http.Header, first, last int64, etag string) error {
	contentRange := header.Get("Content-Range")
	if contentRange == "" {
		if header.Get("Content-Length") == "0" && first == 0 {
			return nil // some servers answer like this for an empty object
		}
		return errRangeIgnored
	}
	var from, to int64
	if _, err := fmt.Sscanf(contentRange, "bytes %d-%d/%d", &from, &to, &a.size); err != nil {
		return fmt.Errorf("%w: Content-Range %q", errWrongAnswer, contentRange)
	}
	if etag != "" && a.etag != etag {
		return blob.ErrLost
	}
	if from != first || to != min(last, a.size-1) {
		return fmt.Errorf("%w: Content-Range %q for the bytes %d to %d", errWrongAnswer, contentRange, first, last)
	}
	return nil
}

// Size returns the object's length in bytes.
func (o *object) Size() int64 { return o.size }

// Info describes the version that was opened.
func (o *object) Info() blob.ObjectInfo {
	return o.bucket.describe(minio.ObjectInfo{Key: o.bucket.name(o.key), Size: o.size, ETag: o.etag, LastModified: o.modified})
}

// ReadAt reads from cached blocks. It first requests the blocks that are not cached.
func (o *object) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read object %s: offset %d is negative", o.key, off)
	}
	if off >= o.size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), o.size-off)]
	n := 0
	for n < len(want) {
		at := off + int64(n)
		block, err := o.bucket.blocks.get(o, at/blockSize, (off+int64(len(want))-1)/blockSize-at/blockSize)
		if err != nil {
			return n, blob.Wrap(err, "read object", o.key)
		}
		n += copy(want[n:], block[at%blockSize:])
	}
	if len(want) < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// fill reads consecutive blocks and finishes each as soon as it is complete.
// After an error it continues with the next missing block.
func (o *object) fill(run []*block) error {
	b := o.bucket
	err := b.retryCall(o.ctx, func(ctx context.Context) error {
		last := min((run[len(run)-1].n+1)*blockSize, o.size) - 1
		answer, err := o.getRange(ctx, run[0].n*blockSize, last)
		if err != nil {
			return err
		}
		defer func() { _ = answer.body.Close() }() // the body was read to its end, or is not needed
		for len(run) > 0 {
			content := make([]byte, min(blockSize, o.size-run[0].n*blockSize))
			if _, err := io.ReadFull(answer.body, content); err != nil {
				return fmt.Errorf("the answer was cut off: %w", err)
			}
			run[0].finish(content, nil)
			run = run[1:]
		}
		return nil
	})
	if isNotFound(err) {
		return blob.ErrLost
	}
	return err
}

// Close cancels the object's running requests and frees its blocks.
func (o *object) Close() error {
	if !o.bucket.blocks.removeObject(o) {
		return blob.Wrap(os.ErrClosed, "close object", o.key)
	}
	o.cancel()
	o.fills.Wait()
	return nil
}
