package s3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/rowmill/rowmill/blob"
)

var _ blob.Appender = (*writer)(nil)

// appendedPart is how much the server copies in one request, bytes; of a range of more than
// 640 GiB it is more, so that the numbers of parts last.
const appendedPart = 256 << 20

// copiesAtOnce is how many copies of one writer are asked for at a time: they take
// the server's time, and no memory here.
const copiesAtOnce = 16

// mostCopied bounds the parts of an object that are copied, so that enough of the
// numbers are left for those that are uploaded, which are larger.
const mostCopied = maxParts / 2

// How many parts of equal length an object is planned to have.
const (
	plannedParts = 1000              // of shorter parts the requests take longer than the bytes that they save
	mostPlanned  = maxParts * 9 / 10 // the object may be longer than was expected
)

// AppendsFrom is the least size of a part, where the server copies parts.
func (b *Bucket) AppendsFrom() int64 {
	if b.limits.lacks(copyParts) {
		return 0
	}
	return minPartSize
}

// Expect chooses how long the parts are if all must have equal length. The server
// copies only whole parts: the shorter the parts are, the fewer appended bytes pass
// through this process. A very large object needs longer parts than Config.PartSize.
func (w *writer) Expect(size int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.size > 0 || w.bucket.mixing.Load() == mixingTaken {
		return
	}
	length := w.bucket.config.PartSize
	if w.bucket.limits.lacks(mixParts) && !w.bucket.limits.lacks(copyParts) {
		length = max(minPartSize, min(length, size/plannedParts))
	}
	w.length = min(maxPartSize, max(length, size/mostPlanned+1))
}

// Append has the server copy each range that is long enough to be a part.
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
	if offset < 0 || size < 0 || offset+size > o.Size() {
		return fmt.Errorf("the bytes from %d to %d are asked for of %d: %w", offset, offset+size, o.Size(), io.ErrUnexpectedEOF)
	}
	if size < minPartSize || o.Size() == minPartSize || w.bucket.limits.lacks(copyParts) {
		return w.read(o, offset, size)
	}
	mixes, err := w.bucket.mixes(w.ctx, o.Info())
	switch {
	case err != nil:
		return err
	case w.bucket.limits.lacks(copyParts): // as has just been found out
		return w.read(o, offset, size)
	case mixes:
		return w.appendPieces(o, offset, size)
	}
	return w.appendParts(o, offset, size)
}

// appendPieces appends in parts of any length. Where less waits to be sent than a part
// may have, it is filled up from the object first.
func (w *writer) appendPieces(o blob.Object, offset, size int64) error {
	fill := int64(0)
	if waits := int64(len(w.part)); waits > 0 {
		fill = max(0, minPartSize-waits)
	}
	if size-fill < minPartSize || w.count >= mostCopied {
		return w.read(o, offset, size)
	}
	if err := w.read(o, offset, fill); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	offset, size = offset+fill, size-fill
	most := max(appendedPart, 2*size/mostCopied)
	for pieces := (size + most - 1) / most; pieces > 0; pieces-- {
		n := size / pieces
		if err := w.copyPart(o.Info(), offset, n); err != nil {
			return err
		}
		offset, size = offset+n, size-n
	}
	return nil
}

// appendParts appends in parts of equal length. The bytes before the first part fill up
// the part that is being gathered, and the bytes behind the last part begin another.
func (w *writer) appendParts(o blob.Object, offset, size int64) error {
	fill := (w.length - int64(len(w.part))) % w.length
	if size-fill < w.length {
		return w.read(o, offset, size)
	}
	if err := w.read(o, offset, fill); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	offset, size = offset+fill, size-fill
	for ; size >= w.length; size -= w.length {
		if err := w.copyPart(o.Info(), offset, w.length); err != nil {
			return err
		}
		offset += w.length
	}
	return w.read(o, offset, size)
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

// copyPart makes a part of so many bytes of an object.
func (w *writer) copyPart(from blob.Info, offset, size int64) error {
	number, err := w.number()
	if err != nil {
		return err
	}
	w.size += size
	w.sources[from.Key] = from.ETag
	w.copying.Go(func() error {
		err := w.copyTo(number, from, offset, size)
		if w.bucket.refused(copyParts, err) {
			err = w.carry(number, from, offset, size)
		}
		return err
	})
	if w.copyCtx.Err() != nil {
		return w.copying.Wait() // why it ended
	}
	return nil
}

// sameSources checks, where the server copies whatever version there is, that it has copied
// the versions that were opened: they are still there.
func (w *writer) sameSources(ctx context.Context) error {
	if !w.bucket.limits.lacks(copyVersions) {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(copiesAtOnce)
	for key, etag := range w.sources {
		group.Go(func() error {
			found, err := w.bucket.stat(ctx, key)
			if err == nil && quoted(found.ETag) != etag {
				err = blob.ErrLost
			}
			if err != nil {
				return fmt.Errorf("check that %s did not change while it was copied: %w", key, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (w *writer) copyTo(number int, from blob.Info, offset, size int64) error {
	b := w.bucket
	var copied minio.CompletePart
	err := b.try(w.copyCtx, func(ctx context.Context) (err error) {
		copied, err = b.copyPartOnce(ctx, b.name(from.Key), from.ETag, b.name(w.key), w.upload, number, offset, size)
		return err
	})
	if err != nil {
		return fmt.Errorf("copy part %d: %w", number, err)
	}
	w.arrived(number, copied.ETag)
	return nil
}

// carry uploads a part that the server did not copy. It reads the part twice rather than
// hold it: once for the digest.
func (w *writer) carry(number int, from blob.Info, offset, size int64) error {
	b := w.bucket
	o, err := b.Open(w.copyCtx, from.Key) // the caller may have closed its own
	if err != nil {
		return err
	}
	defer func() { _ = o.Close() }() // it was only read
	if o.Info().ETag != from.ETag {
		return blob.ErrLost
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(o, offset, size)); err != nil {
		return err
	}
	options := minio.PutObjectPartOptions{Sha256Hex: hex.EncodeToString(sum.Sum(nil)), DisableContentSha256: true}
	var arrived minio.ObjectPart
	err = b.try(w.copyCtx, func(ctx context.Context) (err error) {
		arrived, err = b.client.PutObjectPart(ctx, b.config.Bucket, b.name(w.key), w.upload, number, io.NewSectionReader(o, offset, size), size, options)
		return err
	})
	if err != nil {
		return fmt.Errorf("upload part %d: %w", number, err)
	}
	w.arrived(number, arrived.ETag)
	return nil
}
