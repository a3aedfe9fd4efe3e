package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// A LostPartsError means that the objects of committed parts cannot be read.
type LostPartsError struct {
	Keys      []string // object keys of the parts
	isMissing bool     // true if an object is missing; it may appear later
	first     error    // the error of the first part
}

// Error returns the number of parts, and the key and the error of the first part.
func (e *LostPartsError) Error() string {
	return fmt.Sprintf("%d parts cannot be read, such as %s: %v", len(e.Keys), e.Keys[0], e.first)
}

// IsPermanent reports whether a later read of the parts would also fail.
func (e *LostPartsError) IsPermanent() bool { return !e.isMissing }

// MakeLossPermanent makes a LostPartsError in err permanent, so that the caller does not wait for
// missing objects. It returns err.
func MakeLossPermanent(err error) error {
	if lost, ok := errors.AsType[*LostPartsError](err); ok {
		lost.isMissing = false
	}
	return err
}

// CheckParts reads the objects of parts. It returns a LostPartsError if some of them cannot
// be read, or another error if storage cannot be used now.
func CheckParts(ctx context.Context, bucket blob.Bucket, parts []store.Part) error {
	lost := &LostPartsError{}
	for _, p := range parts {
		_, err := checkObject(ctx, bucket, p.Key, results.CheckPart)
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil || isStorageDown(err):
			return err
		case errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, blob.ErrLost):
			lost.isMissing = true
		}
		lost.Keys = append(lost.Keys, p.Key)
		if lost.first == nil {
			lost.first = err
		}
	}
	switch {
	case len(lost.Keys) == 0:
		return nil
	case lost.isMissing:
		return cmp.Or(checkBucket(ctx, bucket), error(lost))
	}
	return lost
}

// checkBucket returns rowmill.ErrUnavailable if the bucket is not the bucket of this
// deployment. A wrong bucket, or a directory whose volume is not mounted, lacks all
// objects.
func checkBucket(ctx context.Context, bucket blob.Bucket) error {
	_, err := bucket.Stat(ctx, layout.Deployment)
	if errors.Is(err, rowmill.ErrNotFound) {
		err = fmt.Errorf("%w: the bucket has no object %s, so it is not the bucket of this deployment", rowmill.ErrUnavailable, layout.Deployment)
	}
	return err
}

// FindCause finds the cause of err, the error of an operation on parts. It checks the
// parts and returns the error of CheckParts. If the parts are good, it returns err.
func FindCause(ctx context.Context, bucket blob.Bucket, parts []store.Part, err error) error {
	if err == nil || ctx.Err() != nil || isStorageDown(err) {
		return err
	}
	return cmp.Or(CheckParts(ctx, bucket, parts), err)
}

// isStorageDown reports whether an error means that storage cannot be used now.
func isStorageDown(err error) bool {
	return errors.Is(err, rowmill.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || blob.IsTransient(err)
}

// ErrNotStored means that storage acknowledged an object, but the object or some of its
// bytes are missing. An error with ErrNotStored also wraps rowmill.ErrUnavailable. The
// caller must write the object again.
var ErrNotStored = errors.New("storage acknowledged an object that cannot be read")

// visibleWithin is the longest time after which a bucket must show an object that it
// has acknowledged.
const visibleWithin = 30 * time.Second

// MarkLostParts checks the parts of a job that ended without success, after a read of the
// parts failed with err. It marks parts that cannot be read as lost in the store, and
// returns the new record. If all parts can be read, it returns err. If a missing part
// may still appear, it returns ErrBusy.
func (a *Archive) MarkLostParts(ctx context.Context, record store.Record, err error) (store.Record, error) {
	var failure *rowmill.Failure // the failure of another job that copies rows from the job of record
	if status := record.Job.Status; !status.IsTerminal() || status == rowmill.StatusSucceeded ||
		ctx.Err() != nil || isStorageDown(err) || rowmill.ShouldStopJob(err) || errors.As(err, &failure) {
		return record, err
	}
	parts, listErr := a.listParts(ctx, record.Job.ID)
	if listErr != nil {
		return record, listErr
	}
	var lost *LostPartsError
	switch checked := CheckParts(ctx, a.bucket, parts); {
	case checked == nil:
		return record, err
	case !errors.As(checked, &lost):
		return record, checked
	case lost.isMissing && time.Since(record.EndedAt()) < visibleWithin:
		return record, fmt.Errorf("%w: %w", ErrBusy, lost)
	}
	a.logger.Warn("parts of an ended job cannot be read; their rows are lost", "job", record.Job.ID, "parts", len(lost.Keys), "err", lost)
	if _, err := a.store.MarkPartsLost(ctx, store.Fence{JobID: record.Job.ID}, lost.Keys, func(r *store.Record) {
		if !slices.Contains(r.Job.Warnings, lostWarning) {
			r.Job.Warnings = append(slices.Clone(r.Job.Warnings), lostWarning)
		}
	}); err != nil {
		return record, fmt.Errorf("record lost parts: %w", err)
	}
	return a.store.Get(ctx, record.Job.ID)
}

// lostWarning is the warning that an ended job gets if some of its parts are lost.
const lostWarning = "Object storage lost rows after they were done. Resume the job to run them again."

// lostRows is the set of a job's rows that were in lost parts.
type lostRows struct {
	shards []shard.ManifestEntry   // shards of the input
	rows   map[int]*roaring.Bitmap // lost rows by shard number, relative to the first row of the shard
}

// readLostRows returns the rows that were in a job's lost parts. shards lists the shards of
// the job's input.
func (a *Archive) readLostRows(ctx context.Context, record store.Record, shards []shard.ManifestEntry) (l lostRows, err error) {
	if record.Lost.Rows == 0 {
		return l, nil
	}
	parts, err := a.store.LostParts(ctx, record.Job.ID)
	if err != nil {
		return l, fmt.Errorf("list lost parts: %w", err)
	}
	l = lostRows{shards, map[int]*roaring.Bitmap{}}
	for _, p := range parts {
		accepted, err := AcceptedRows(p)
		if err != nil {
			return l, err
		}
		if l.rows[p.Shard] == nil {
			l.rows[p.Shard] = roaring.New()
		}
		l.rows[p.Shard].Or(accepted)
	}
	return l, nil
}

// has reports whether the row with an index is lost.
func (l lostRows) has(row int64) bool {
	if len(l.rows) == 0 {
		return false
	}
	n := sort.Search(len(l.shards), func(i int) bool { return l.shards[i].First > row }) - 1
	if n < 0 || l.rows[n] == nil {
		return false
	}
	return l.rows[n].Contains(uint32(row - l.shards[n].First)) //nolint:gosec // an index within the shard fits
}

// WritePart writes a part to the bucket and returns its size in bytes. The function
// write must add the rows. After WritePart returns, the part is durable and can be
// read.
func WritePart(ctx context.Context, bucket blob.Bucket, key string, schema results.Schema, write func(*results.PartWriter) error) (size int64, err error) {
	info, err := blob.Write(ctx, bucket, key, layout.Parquet, func(w io.Writer) error {
		part, err := results.NewPartWriter(w, schema)
		if err != nil {
			return err
		}
		if err := write(part); err != nil {
			return err
		}
		return part.Close()
	})
	if err != nil {
		return 0, err
	}
	return info.Size, VerifyWritten(ctx, bucket, info)
}

// VerifyWritten checks the size and the footer of a file that was just written. It finds
// files that the bucket acknowledged but did not store, or stored only in part.
func VerifyWritten(ctx context.Context, bucket blob.Bucket, written blob.ObjectInfo) error {
	err := retry.Objects.WithTimeLimit(visibleWithin).Do(ctx, func() error { return checkSizeAndFooter(ctx, bucket, written) },
		func(err error) bool { return errors.Is(err, rowmill.ErrNotFound) }, nil)
	if err == nil || isStorageDown(err) {
		return err
	}
	return fmt.Errorf("%w: %w: object %s: %s", rowmill.ErrUnavailable, ErrNotStored, written.Key, err.Error())
}

// checkSizeAndFooter returns an error if a file has another size than was written, or if its
// footer cannot be read.
func checkSizeAndFooter(ctx context.Context, bucket blob.Bucket, written blob.ObjectInfo) error {
	o, err := bucket.Open(ctx, written.Key)
	if err != nil {
		return err
	}
	defer func() { _ = o.Close() }() // the object was only read, so an error loses no data
	if o.Size() != written.Size {
		return fmt.Errorf("the object has %d bytes, but %d bytes were written", o.Size(), written.Size)
	}
	return results.CheckFooter(o)
}
