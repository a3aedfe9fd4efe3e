package s3

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/rowmill/rowmill/blob"
)

// firstBuffer is the first size of a part's buffer, in bytes. The size is doubled when
// the buffer is full.
const firstBuffer = 64 << 10

// nonceField is a metadata field of an object that was uploaded in parts. Its value
// identifies the writer.
const nonceField = "Rowmill-Writer"

// Create opens a new object for writing. When ctx ends, the writer's requests fail.
func (b *Bucket) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	if err := cmp.Or(blob.CheckCall(ctx, key), blob.CheckContentType(contentType)); err != nil {
		return nil, blob.Wrap(err, "create object", key)
	}
	w := &writer{bucket: b, key: key, contentType: contentType, partLength: b.config.PartSize, sources: map[string]string{}}
	w.alive, w.cancel = context.WithCancel(ctx)
	w.uploadGroup, w.ctx = errgroup.WithContext(w.alive)
	w.uploadGroup.SetLimit(b.config.Concurrency)
	w.copyGroup, w.copyCtx = errgroup.WithContext(w.ctx)
	w.copyGroup.SetLimit(copiesAtOnce)
	b.mu.Lock()
	b.writers[w] = struct{}{}
	b.mu.Unlock()
	return w, nil
}

// writer writes one object. It fills a part while it sends the part before. Commit
// sends an object that fits into one part in a single request. Written bytes become
// parts of equal length, except the last part. Appended ranges become parts of equal
// length only if the server requires that, see appendParts.
type writer struct {
	bucket      *Bucket
	key         string
	contentType string
	alive       context.Context // cancelled with the context of Create, or when the writer ends
	cancel      context.CancelFunc
	uploadGroup *errgroup.Group // the parts that are being uploaded
	ctx         context.Context // context of the part uploads; cancelled when one fails
	copyGroup   *errgroup.Group // the parts that the server copies
	copyCtx     context.Context // context of the copies by the server; cancelled when one fails

	mu         sync.Mutex // locked by Write, Commit and Abort, because DeletePrefix calls Abort from another goroutine
	ended      bool
	failed     error  // the first error of Write, so that Commit returns it
	partLength int64  // bytes of each uploaded part except the last; see Expect
	part       []byte // the part that is being filled
	size       int64  // bytes of the object so far
	upload     string // the server's ID of the upload in parts; empty while the object fits into one part
	nonce      string // stored with the object, to find out who completed the upload
	lastPart   int    // number of the last part, uploaded or copied

	sources map[string]string // ETags of the objects that parts are copied from, by key

	sentMu sync.Mutex
	sent   []minio.CompletePart // the parts that the server has; part number n is at index n-1
	free   [][]byte             // buffers of sent parts, to be used for new parts
}

var errEnded = errors.New("the writer was already committed or aborted, or its prefix was deleted")

// Write appends to the object. It waits while Concurrency parts are being sent.
func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return 0, blob.Wrap(errEnded, "write object", w.key)
	}
	written := 0
	if w.failed == nil {
		written, w.failed = w.write(p)
	}
	return written, blob.Wrap(w.failed, "write object", w.key)
}

func (w *writer) write(p []byte) (written int, err error) {
	for written < len(p) {
		if len(w.part) == int(w.partLength) {
			if err := w.flush(); err != nil {
				return written, err
			}
		}
		n := w.gather(p[written:])
		written += n
		w.size += int64(n)
	}
	return written, nil
}

// gather adds as many bytes to the part as fit, grows the part's buffer if necessary,
// and returns the number of bytes.
func (w *writer) gather(p []byte) int {
	limit := int(w.partLength)
	n := min(len(p), limit-len(w.part))
	if need := len(w.part) + n; need > cap(w.part) {
		size := max(cap(w.part), firstBuffer)
		for size < need {
			size *= 2
		}
		w.part = append(make([]byte, 0, min(size, limit)), w.part...)
	}
	w.part = append(w.part, p[:n]...)
	return n
}

// flush starts the upload of the buffered part, if it has bytes.
func (w *writer) flush() error {
	if len(w.part) == 0 {
		return nil
	}
	number, err := w.nextPart()
	if err != nil {
		return err
	}
	part := w.part
	w.uploadGroup.Go(func() error { return w.send(number, part) })
	w.part = w.takeBuffer()
	if w.ctx.Err() != nil {
		return w.uploadGroup.Wait() // Wait returns the error that ended the upload
	}
	return nil
}

// nextPart returns the number of the next part. The first call begins the upload.
func (w *writer) nextPart() (number int, err error) {
	if w.upload == "" {
		if err := w.begin(); err != nil {
			return 0, err
		}
	}
	if w.lastPart == maxParts {
		return 0, fmt.Errorf("the object needs more than %d parts of %d bytes: set a larger PartSize", maxParts, w.partLength)
	}
	w.lastPart++
	return w.lastPart, nil
}

// takeBuffer returns the buffer of a part that was sent, to fill it again, or nil.
func (w *writer) takeBuffer() []byte {
	w.sentMu.Lock()
	defer w.sentMu.Unlock()
	if len(w.free) == 0 {
		return nil
	}
	last := w.free[len(w.free)-1]
	w.free = w.free[:len(w.free)-1]
	return last[:0]
}

// begin starts an upload in parts.
func (w *writer) begin() (err error) {
	w.nonce = rand.Text()
	w.upload, err = w.bucket.beginUpload(w.ctx, w.bucket.name(w.key), minio.PutObjectOptions{
		ContentType: w.contentType, UserMetadata: map[string]string{nonceField: w.nonce},
	})
	return err
}

// beginUpload starts an upload in parts and returns its ID.
func (b *Bucket) beginUpload(ctx context.Context, name string, options minio.PutObjectOptions) (string, error) {
	return retryCallFor(ctx, b, func(ctx context.Context) (string, error) {
		return b.client.NewMultipartUpload(ctx, b.config.Bucket, name, options)
	})
}

// send uploads one part, and then makes its buffer free for another part.
func (w *writer) send(number int, part []byte) error {
	err := w.putPart(w.ctx, number, int64(len(part)), digest(part), func() (io.Reader, func()) {
		body := &body{content: part}
		return body, body.end
	})
	if err == nil {
		w.sentMu.Lock()
		defer w.sentMu.Unlock()
		w.free = append(w.free, part)
	}
	return err
}

// putPart uploads a part. content returns the request body for one try, and a function
// to call after this try.
func (w *writer) putPart(ctx context.Context, number int, size int64, sum string, content func() (io.Reader, func())) error {
	b := w.bucket
	options := minio.PutObjectPartOptions{Sha256Hex: sum, DisableContentSha256: true}
	arrived, err := retryCallFor(ctx, b, func(ctx context.Context) (minio.ObjectPart, error) {
		body, end := content()
		defer end()
		return b.client.PutObjectPart(ctx, b.config.Bucket, b.name(w.key), w.upload, number, body, size, options)
	})
	if err != nil {
		return fmt.Errorf("upload part %d: %w", number, err)
	}
	w.recordPart(number, arrived.ETag)
	return nil
}

// recordPart records a part that the server has.
func (w *writer) recordPart(number int, etag string) {
	w.sentMu.Lock()
	defer w.sentMu.Unlock()
	for len(w.sent) < number {
		w.sent = append(w.sent, minio.CompletePart{})
	}
	w.sent[number-1] = minio.CompletePart{PartNumber: number, ETag: etag}
}

// digest returns the SHA-256 with which the server checks an upload. It is part of the
// request's signature. Without a digest, minio-go sends plain HTTP in signed chunks.
// Some servers handle chunks wrongly: they store the chunks' Content-Encoding with the
// object, or take the end of an empty body for the next request.
func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// putOnce uploads an object that fits into one part, without retries. sum is the
// digest of the content.
func (b *Bucket) putOnce(ctx context.Context, name, contentType string, content io.Reader, size int64, sum string) (minio.UploadInfo, error) {
	options := minio.PutObjectOptions{ContentType: contentType, DisableContentSha256: true} // no signed chunks, see digest
	return b.client.PutObject(ctx, b.config.Bucket, name, content, size, "", sum, options)
}

// Commit makes the object durable and visible.
func (w *writer) Commit() (blob.ObjectInfo, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return blob.ObjectInfo{}, blob.Wrap(errEnded, "commit object", w.key)
	}
	etag, err := "", w.failed
	switch {
	case err != nil:
	case w.upload == "":
		etag, err = w.put()
	default:
		etag, err = w.complete()
	}
	if err != nil {
		w.abort()
		return blob.ObjectInfo{}, blob.Wrap(err, "commit object", w.key)
	}
	w.unregister()
	return blob.ObjectInfo{Key: w.key, Size: w.size, ETag: quoteETag(etag), Modified: time.Now().UTC().Truncate(time.Second)}, nil
}

// put uploads an object that fits into one part.
func (w *writer) put() (etag string, err error) {
	b, sum := w.bucket, digest(w.part)
	put, err := retryCallFor(w.ctx, b, func(ctx context.Context) (minio.UploadInfo, error) {
		body := &body{content: w.part}
		defer body.end()
		return b.putOnce(ctx, b.name(w.key), w.contentType, body, w.size, sum)
	})
	return put.ETag, err
}

// complete sends the last part and joins all parts to one object.
func (w *writer) complete() (etag string, err error) {
	if err := w.flush(); err != nil {
		return "", err
	}
	if err := w.copyGroup.Wait(); err != nil {
		return "", err
	}
	if err := w.uploadGroup.Wait(); err != nil {
		return "", err
	}
	if err := w.checkSources(w.alive); err != nil { // not w.ctx, which Wait has cancelled
		return "", err
	}
	b := w.bucket
	err = b.retryCall(w.alive, func(ctx context.Context) error {
		done, err := b.client.CompleteMultipartUpload(ctx, b.config.Bucket, b.name(w.key), w.upload, w.sent, minio.PutObjectOptions{})
		etag = done.ETag
		if errorCode(err) != codeNoSuchUpload {
			return err
		}
		// An earlier try may have succeeded, but its answer was lost.
		found, statErr := b.client.StatObject(ctx, b.config.Bucket, b.name(w.key), minio.StatObjectOptions{})
		if statErr == nil && found.UserMetadata[nonceField] == w.nonce {
			etag = found.ETag
			return nil
		}
		return err
	})
	return etag, err
}

// Abort drops the written data.
func (w *writer) Abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.abort()
	}
}

// abort cancels the upload. If that fails, DeletePrefix or the bucket's
// lifecycle rule removes the data.
func (w *writer) abort() {
	w.cancel()
	_, _ = w.copyGroup.Wait(), w.uploadGroup.Wait() // the upload is cancelled, so these errors do not matter
	if w.upload != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.alive), w.bucket.config.AbortTimeout)
		defer cancel()
		_ = w.bucket.abortUpload(ctx, w.bucket.name(w.key), w.upload)
	}
	w.unregister()
}

// unregister marks the writer as ended, frees its buffers, and removes it from the bucket's
// open writers.
func (w *writer) unregister() {
	w.ended = true
	w.cancel()
	w.part, w.free = nil, nil
	w.bucket.mu.Lock()
	defer w.bucket.mu.Unlock()
	delete(w.bucket.writers, w)
}

// openWriters returns the open writers whose keys are under a prefix.
func (b *Bucket) openWriters(prefix string) []*writer {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []*writer
	for w := range b.writers {
		if strings.HasPrefix(w.key, prefix) {
			found = append(found, w)
		}
	}
	return found
}

// body is the request body of one try. net/http may still call Read after the try has
// ended. After end, Read returns no data, so that content can be reused.
type body struct {
	mu      sync.Mutex
	content []byte
	at      int
	ended   bool
}

// Read reads the next bytes.
func (r *body) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
		return 0, io.ErrClosedPipe
	case r.at == len(r.content):
		return 0, io.EOF
	}
	n := copy(p, r.content[r.at:])
	r.at += n
	return n, nil
}

func (r *body) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}
