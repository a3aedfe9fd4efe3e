package s3

import (
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

// firstBuffer is what a part's buffer starts with, in bytes; it doubles.
const firstBuffer = 64 << 10

// nonceField is the metadata of an object that was uploaded in parts: which
// writer made it.
const nonceField = "Rowmill-Writer"

// Create opens a new object for writing. Its requests end with ctx.
func (b *Bucket) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	if err := begin(ctx, key); err != nil {
		return nil, fmt.Errorf("create object: %w", err)
	}
	if err := blob.CheckContentType(contentType); err != nil {
		return nil, fmt.Errorf("create object %s: %w", key, err)
	}
	w := &writer{bucket: b, key: key, contentType: contentType, length: b.config.PartSize, sources: map[string]string{}}
	w.alive, w.cancel = context.WithCancel(ctx)
	w.group, w.ctx = errgroup.WithContext(w.alive)
	w.group.SetLimit(b.config.Concurrency)
	w.copying, w.copyCtx = errgroup.WithContext(w.ctx)
	w.copying.SetLimit(copiesAtOnce)
	b.mu.Lock()
	b.writers[w] = struct{}{}
	b.mu.Unlock()
	return w, nil
}

// A writer gathers a part, and sends it while the next one is gathered. An object
// that never fills a part is a single request of Commit. Written bytes go in parts of
// equal length, but for the last part; so do appended bytes if the server takes no
// other parts, see appendParts.
type writer struct {
	bucket      *Bucket
	key         string
	contentType string
	alive       context.Context // ends with Create's, and with the writer
	cancel      context.CancelFunc
	group       *errgroup.Group // the parts on their way
	ctx         context.Context // of the parts: ends with the first one that fails
	copying     *errgroup.Group // the parts that the server copies
	copyCtx     context.Context // of those

	mu     sync.Mutex // Write, Commit and Abort, against DeletePrefix
	ended  bool
	failed error  // the first error of Write, so that Commit cannot miss it
	length int64  // of a part that is uploaded, but for the last; see Expect
	part   []byte // the part that is being gathered
	size   int64  // of all that was written
	upload string // the server's ID, or nothing while one part suffices
	nonce  string // says that an object is this writer's
	count  int    // parts sent

	sources map[string]string // ETags of the objects that parts are copied of, by key

	sentMu sync.Mutex
	sent   []minio.CompletePart // by number
	free   [][]byte             // buffers of parts that have arrived
}

var errEnded = errors.New("its writer was committed or aborted, or its prefix deleted")

// Write appends to the object. It waits while Concurrency parts are on their
// way.
func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return 0, fmt.Errorf("write object %s: %w", w.key, errEnded)
	}
	written, err := 0, w.failed
	if err == nil {
		written, err = w.write(p)
		w.failed = err
	}
	if err != nil {
		return written, fmt.Errorf("write object %s: %w", w.key, err)
	}
	return written, nil
}

func (w *writer) write(p []byte) (written int, err error) {
	for written < len(p) {
		if len(w.part) == int(w.length) {
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

// gather puts as much into the part as fits, and lets it grow if need be.
func (w *writer) gather(p []byte) int {
	limit := int(w.length)
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

// flush sends the part that was gathered, if there is one.
func (w *writer) flush() error {
	if len(w.part) == 0 {
		return nil
	}
	number, err := w.number()
	if err != nil {
		return err
	}
	part := w.part
	w.group.Go(func() error { return w.send(number, part) })
	w.part = w.buffer()
	if w.ctx.Err() != nil {
		return w.group.Wait() // why it ended
	}
	return nil
}

// number gives the next part its number, and begins the upload with the first.
func (w *writer) number() (int, error) {
	if w.upload == "" {
		if err := w.begin(); err != nil {
			return 0, err
		}
	}
	if w.count == maxParts {
		return 0, fmt.Errorf("it is longer than %d parts of %d bytes: set a larger PartSize", maxParts, w.length)
	}
	w.count++
	return w.count, nil
}

// buffer is an empty one: one that has done its work, or none yet.
func (w *writer) buffer() []byte {
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
func (w *writer) begin() error {
	b := w.bucket
	w.nonce = rand.Text()
	options := minio.PutObjectOptions{ContentType: w.contentType, UserMetadata: map[string]string{nonceField: w.nonce}}
	return b.try(w.ctx, func(ctx context.Context) (err error) {
		w.upload, err = b.client.NewMultipartUpload(ctx, b.config.Bucket, b.name(w.key), options)
		return err
	})
}

// send uploads one part.
func (w *writer) send(number int, part []byte) error {
	b := w.bucket
	options := minio.PutObjectPartOptions{Sha256Hex: digest(part), DisableContentSha256: true}
	var arrived minio.ObjectPart
	err := b.try(w.ctx, func(ctx context.Context) (err error) {
		body := &body{content: part}
		defer body.end()
		arrived, err = b.client.PutObjectPart(ctx, b.config.Bucket, b.name(w.key), w.upload, number, body, int64(len(part)), options)
		return err
	})
	if err != nil {
		return fmt.Errorf("upload part %d: %w", number, err)
	}
	w.arrived(number, arrived.ETag)
	w.sentMu.Lock()
	defer w.sentMu.Unlock()
	w.free = append(w.free, part)
	return nil
}

// arrived notes a part that the server has.
func (w *writer) arrived(number int, etag string) {
	w.sentMu.Lock()
	defer w.sentMu.Unlock()
	for len(w.sent) < number {
		w.sent = append(w.sent, minio.CompletePart{})
	}
	w.sent[number-1] = minio.CompletePart{PartNumber: number, ETag: etag}
}

// digest is what the server checks an upload by: the SHA-256 in the signature.
// minio-go would rather sign plain HTTP in chunks, which some servers answer
// wrongly: they keep the chunks' Content-Encoding with the object, or take the
// end of an empty one for the next request.
func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// putOnce tries once to upload an object of one part, whose digest is sum.
func (b *Bucket) putOnce(ctx context.Context, name, contentType string, content io.Reader, size int64, sum string) (minio.UploadInfo, error) {
	options := minio.PutObjectOptions{ContentType: contentType, DisableContentSha256: true} // not in chunks
	return b.client.PutObject(ctx, b.config.Bucket, name, content, size, "", sum, options)
}

// Commit makes the object durable and visible.
func (w *writer) Commit() (blob.Info, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return blob.Info{}, fmt.Errorf("commit object %s: %w", w.key, errEnded)
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
		return blob.Info{}, fmt.Errorf("commit object %s: %w", w.key, err)
	}
	w.forget()
	return blob.Info{Key: w.key, Size: w.size, ETag: quoted(etag), Modified: time.Now().UTC().Truncate(time.Second)}, nil
}

// put uploads an object of one part.
func (w *writer) put() (etag string, err error) {
	b := w.bucket
	sum := digest(w.part)
	err = b.try(w.ctx, func(ctx context.Context) error {
		body := &body{content: w.part}
		defer body.end()
		put, err := b.putOnce(ctx, b.name(w.key), w.contentType, body, w.size, sum)
		etag = put.ETag
		return err
	})
	return etag, err
}

// complete sends the last part and makes all of them one object.
func (w *writer) complete() (etag string, err error) {
	if err := w.flush(); err != nil {
		return "", err
	}
	if err := w.copying.Wait(); err != nil {
		return "", err
	}
	if err := w.group.Wait(); err != nil {
		return "", err
	}
	if err := w.sameSources(w.alive); err != nil { // w.ctx has ended with Wait
		return "", err
	}
	b := w.bucket
	err = b.try(w.alive, func(ctx context.Context) error {
		done, err := b.client.CompleteMultipartUpload(ctx, b.config.Bucket, b.name(w.key), w.upload, w.sent, minio.PutObjectOptions{})
		etag = done.ETag
		if code(err) != codeNoSuchUpload {
			return err
		}
		// An earlier try may have succeeded though its answer was lost.
		found, statErr := b.client.StatObject(ctx, b.config.Bucket, b.name(w.key), minio.StatObjectOptions{})
		if statErr == nil && found.UserMetadata[nonceField] == w.nonce {
			etag = found.ETag
			return nil
		}
		return err
	})
	return etag, err
}

// Abort drops what was written.
func (w *writer) Abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.abort()
	}
}

// abort takes the upload back. What stays after an error is removed by
// DeletePrefix, or by the bucket's lifecycle rule.
func (w *writer) abort() {
	w.cancel()
	_, _ = w.copying.Wait(), w.group.Wait() // nobody wants to know any more
	if w.upload != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.alive), w.bucket.config.AbortTimeout)
		defer cancel()
		_ = w.bucket.abortUpload(ctx, w.bucket.name(w.key), w.upload)
	}
	w.forget()
}

// forget ends the writer.
func (w *writer) forget() {
	w.ended = true
	w.cancel()
	w.part, w.free = nil, nil
	w.bucket.mu.Lock()
	defer w.bucket.mu.Unlock()
	delete(w.bucket.writers, w)
}

// unfinished are the open writers of keys under a prefix.
func (b *Bucket) unfinished(prefix string) []*writer {
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

// A body is the body of one try. net/http may still read it when the try has
// ended: from end on it gives nothing, so that content can be used again.
type body struct {
	mu      sync.Mutex
	content []byte
	at      int
	ended   bool
}

// Read reads on.
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
