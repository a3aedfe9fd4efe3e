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

// copyPartSize is how many bytes the server copies in one request. In a range of more
// than 640 GiB, a request copies more bytes, so that there are enough part numbers.
const copyPartSize = 256 << 20

// copiesAtOnce is how many parts the server copies for a writer at a time. Copies take
// time on the server, but no memory here.
const copiesAtOnce = 16

// maxCopiedParts limits server-side copies: a writer that has this many parts uploads
// all further bytes. Copied parts can be short; uploaded parts have the full length, so
// the remaining part numbers suffice for more bytes.
const maxCopiedParts = maxParts / 2

// These limits plan the number of parts of an object whose parts must have
// equal lengths.
const (
	plannedParts    = 1000              // planned number of parts; more and shorter parts would save bytes, but the extra requests take longer
	maxPlannedParts = maxParts * 9 / 10 // the other 10 % of the part numbers are for an object that is longer than expected
)

// MinStorageCopySize returns the smallest size of a part, or 0 if the server cannot copy
// parts.
func (b *Bucket) MinStorageCopySize() int64 {
	if b.limits.lacks(copyParts) {
		return 0
	}
	return minPartSize
}

// Expect chooses the length of parts if all parts must have the same length.
// The server copies only whole parts: with shorter parts, fewer bytes of
// appended ranges pass through this process. A very large object needs longer
// parts than Config.PartSize.
func (w *writer) Expect(size int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.size > 0 || w.bucket.mixed.Load() == mixedAccepted {
		return
	}
	length := w.bucket.config.PartSize
	if w.bucket.limits.lacks(mixedParts) && !w.bucket.limits.lacks(copyParts) {
		length = max(minPartSize, min(length, size/plannedParts))
	}
	w.partLength = min(maxPartSize, max(length, size/maxPlannedParts+1))
}

// Append lets the server copy each range that is long enough to be a part.
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
	return blob.Wrap(err, "append "+o.Info().Key+" to object", w.key)
}

func (w *writer) append(o blob.Object, offset, size int64) error {
	if offset < 0 || size < 0 || offset+size > o.Size() {
		return fmt.Errorf("bytes %d to %d of an object of %d bytes: %w", offset, offset+size, o.Size(), io.ErrUnexpectedEOF)
	}
	if size < minPartSize || o.Size() == minPartSize || w.bucket.limits.lacks(copyParts) {
		return w.appendByReading(o, offset, size)
	}
	mixed, err := w.bucket.acceptsMixed(w.ctx, o.Info())
	switch {
	case err != nil:
		return err
	case w.bucket.limits.lacks(copyParts): // acceptsMixed has just found that the server cannot copy ranges
		return w.appendByReading(o, offset, size)
	case mixed:
		return w.appendPieces(o, offset, size)
	}
	return w.appendParts(o, offset, size)
}

// appendPieces appends a range in parts of any length. If some bytes are buffered,
// but fewer than a part needs, it first fills the buffer from the object.
func (w *writer) appendPieces(o blob.Object, offset, size int64) error {
	fill := int64(0)
	if waits := int64(len(w.part)); waits > 0 {
		fill = max(0, minPartSize-waits)
	}
	if size-fill < minPartSize || w.lastPart >= maxCopiedParts {
		return w.appendByReading(o, offset, size)
	}
	if err := w.appendByReading(o, offset, fill); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	offset, size = offset+fill, size-fill
	most := max(copyPartSize, 2*size/maxCopiedParts)
	for pieces := (size + most - 1) / most; pieces > 0; pieces-- {
		n := size / pieces
		if err := w.copyPart(o.Info(), offset, n); err != nil {
			return err
		}
		offset, size = offset+n, size-n
	}
	return nil
}

// appendParts appends a range in parts of equal length. The first bytes of the range
// fill the buffered part, and the last bytes begin another part.
func (w *writer) appendParts(o blob.Object, offset, size int64) error {
	fill := (w.partLength - int64(len(w.part))) % w.partLength
	if size-fill < w.partLength {
		return w.appendByReading(o, offset, size)
	}
	if err := w.appendByReading(o, offset, fill); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	offset, size = offset+fill, size-fill
	for ; size >= w.partLength; size -= w.partLength {
		if err := w.copyPart(o.Info(), offset, w.partLength); err != nil {
			return err
		}
		offset += w.partLength
	}
	return w.appendByReading(o, offset, size)
}

// appendByReading reads a range of an object into this process and appends it to the writer.
func (w *writer) appendByReading(o blob.Object, offset, size int64) error {
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

// copyPart makes the server copy a range of an object as a part.
func (w *writer) copyPart(from blob.ObjectInfo, offset, size int64) error {
	number, err := w.nextPart()
	if err != nil {
		return err
	}
	w.size += size
	w.sources[from.Key] = from.ETag
	w.copyGroup.Go(func() error {
		err := w.copyTo(number, from, offset, size)
		if w.bucket.recordIfUnsupported(copyParts, err) {
			err = w.uploadRange(number, from, offset, size)
		}
		return err
	})
	if w.copyCtx.Err() != nil {
		return w.copyGroup.Wait() // Wait returns the error that ended the copies
	}
	return nil
}

// checkSources checks that the source objects of Append still have the versions that
// were opened: then the server has copied these versions. It does this only for servers
// that cannot copy a given version of an object.
func (w *writer) checkSources(ctx context.Context) error {
	if !w.bucket.limits.lacks(copyVersions) {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(copiesAtOnce)
	for key, etag := range w.sources {
		group.Go(func() error {
			found, err := w.bucket.stat(ctx, key)
			if err == nil && quoteETag(found.ETag) != etag {
				err = blob.ErrLost
			}
			return blob.Wrap(err, "check that the object did not change while it was copied:", key)
		})
	}
	return group.Wait()
}

func (w *writer) copyTo(number int, from blob.ObjectInfo, offset, size int64) error {
	b := w.bucket
	copied, err := retryCallFor(w.copyCtx, b, func(ctx context.Context) (minio.CompletePart, error) {
		return b.copyPartOnce(ctx, b.name(from.Key), from.ETag, b.name(w.key), w.upload, number, offset, size)
	})
	if err != nil {
		return fmt.Errorf("copy part %d: %w", number, err)
	}
	w.recordPart(number, copied.ETag)
	return nil
}

// uploadRange uploads a part that the server did not copy. It reads the range twice,
// the first time for the digest. So it need not hold the part in memory.
func (w *writer) uploadRange(number int, from blob.ObjectInfo, offset, size int64) error {
	o, err := w.bucket.Open(w.copyCtx, from.Key) // the caller of Append may have closed the object
	if err != nil {
		return err
	}
	defer func() { _ = o.Close() }() // the object was only read, so a failed Close loses no data
	if o.Info().ETag != from.ETag {
		return blob.ErrLost
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(o, offset, size)); err != nil {
		return err
	}
	return w.putPart(w.copyCtx, number, size, hex.EncodeToString(sum.Sum(nil)), func() (io.Reader, func()) {
		return io.NewSectionReader(o, offset, size), func() {}
	})
}
