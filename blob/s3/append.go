package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/minio/minio-go/v7"

	"github.com/rowmill/rowmill/blob"
)

var _ blob.Appender = (*writer)(nil)

// appendedPart is how much the server copies in one request at most, bytes.
const appendedPart = 256 << 20

// copiesAtOnce is how many copies of one writer are asked for at a time: they take
// the server's time, and no memory here.
const copiesAtOnce = 16

// mostCopied bounds the parts of an object that are copied, so that enough of the
// numbers are left for those that are uploaded, which are larger.
const mostCopied = maxParts / 2

// Whether the server copies parts.
const (
	copiesUnknown = iota
	copiesParts
	copiesNone
)

// AppendsFrom is the least size of a part, where the server copies parts.
func (b *Bucket) AppendsFrom() int64 {
	if b.copies.Load() == copiesNone {
		return 0
	}
	return minPartSize
}

// Append has the server copy what is long enough to be a part by itself. Where
// less waits to be sent than a part may have, it is filled up from the object
// first.
func (w *writer) Append(o blob.Object, offset, size int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.failed
	switch {
	case w.ended:
		err = errEnded
	case err == nil:
		err = w.append(o, offset, size)
		w.failed = err
	}
	if err != nil {
		return fmt.Errorf("append %s to object %s: %w", o.Info().Key, w.key, err)
	}
	return nil
}

func (w *writer) append(o blob.Object, offset, size int64) error {
	fill := int64(0)
	if waits := int64(len(w.part)); waits > 0 {
		fill = max(0, minPartSize-waits)
	}
	if size-fill < minPartSize || w.count >= mostCopied || w.bucket.copies.Load() == copiesNone {
		return w.read(o, offset, size)
	}
	if err := w.read(o, offset, fill); err != nil {
		return err
	}
	if len(w.part) > 0 {
		if err := w.flush(); err != nil {
			return err
		}
	} else if w.upload == "" {
		if err := w.begin(); err != nil {
			return err
		}
	}
	offset, size = offset+fill, size-fill
	pieces := (size + appendedPart - 1) / appendedPart
	for ; pieces > 0; pieces-- {
		n := size / pieces
		if err := w.copyPart(o, offset, n); err != nil {
			return err
		}
		offset, size = offset+n, size-n
	}
	return nil
}

// read appends what it reads.
func (w *writer) read(o blob.Object, offset, size int64) error {
	buffer := make([]byte, min(size, blockSize))
	for size > 0 {
		p := buffer[:min(size, int64(len(buffer)))]
		if n, err := o.ReadAt(p, offset); n < len(p) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if _, err := w.write(p); err != nil {
			return err
		}
		offset, size = offset+int64(len(p)), size-int64(len(p))
	}
	return nil
}

// copyPart makes a part of so many bytes of an object. The first of all shows
// whether the server can.
func (w *writer) copyPart(o blob.Object, offset, size int64) error {
	b := w.bucket
	number := w.count + 1
	if b.copies.Load() == copiesUnknown {
		err := w.copyTo(number, o, offset, size)
		if noSuchCall(err) {
			b.config.Logger.Info("the server copies no parts of objects: results pass through this node", "endpoint", b.config.Endpoint)
			b.copies.Store(copiesNone)
			return w.read(o, offset, size)
		}
		if err != nil {
			return err
		}
		b.copies.Store(copiesParts)
		w.count, w.size = number, w.size+size
		return nil
	}
	w.count, w.size = number, w.size+size
	w.copying.Go(func() error { return w.copyTo(number, o, offset, size) })
	if w.copyCtx.Err() != nil {
		return w.copying.Wait() // why it ended
	}
	return nil
}

func (w *writer) copyTo(number int, o blob.Object, offset, size int64) error {
	b, from := w.bucket, o.Info()
	same := map[string]string{"x-amz-copy-source-if-match": from.ETag}
	var copied minio.CompletePart
	err := b.try(w.copyCtx, func(ctx context.Context) (err error) {
		copied, err = b.client.CopyObjectPart(ctx, b.config.Bucket, b.name(from.Key), b.config.Bucket, b.name(w.key), w.upload, number, offset, size, same)
		return err
	})
	if err != nil {
		return fmt.Errorf("copy part %d: %w", number, err)
	}
	w.arrived(number, copied.ETag)
	return nil
}

// noSuchCall reports whether the server does not know what it was asked for.
func noSuchCall(err error) bool {
	var answer minio.ErrorResponse
	return errors.As(err, &answer) && (answer.StatusCode == http.StatusNotImplemented || answer.StatusCode == http.StatusMethodNotAllowed)
}
