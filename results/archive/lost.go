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

// A LostError says that the objects of recorded parts cannot be read.
type LostError struct {
	Keys    []string // of the parts
	missing bool     // an object is missing, and may appear later
	first   error
}

// Error names the first part and its error.
func (e *LostError) Error() string {
	return fmt.Sprintf("%d parts cannot be read, such as %s: %v", len(e.Keys), e.Keys[0], e.first)
}

// IsPermanent reports whether a later read of the parts cannot succeed either.
func (e *LostError) IsPermanent() bool { return !e.missing }

// NoWait makes the LostError in err lasting: the caller does not wait for missing
// objects. Other errors stay unchanged.
func NoWait(err error) error {
	var lost *LostError
	if errors.As(err, &lost) {
		lost.missing = false
	}
	return err
}

// CheckParts reads parts and returns a LostError if some of them cannot be read, or another
// error if storage cannot be used now.
func CheckParts(ctx context.Context, bucket blob.Bucket, parts []store.Part) error {
	lost := &LostError{}
	for _, p := range parts {
		_, err := checkObject(ctx, bucket, p.Key, results.CheckPart)
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil || isStorageDown(err):
			return err
		case errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, blob.ErrLost):
			lost.missing = true
		}
		lost.Keys = append(lost.Keys, p.Key)
		if lost.first == nil {
			lost.first = err
		}
	}
	switch {
	case len(lost.Keys) == 0:
		return nil
	case lost.missing:
		return cmp.Or(checkBucket(ctx, bucket), error(lost))
	}
	return lost
}

// checkBucket returns rowmill.ErrUnavailable if the bucket does not belong to a deployment:
// a directory whose volume is not mounted, or a wrong bucket, lacks all objects.
func checkBucket(ctx context.Context, bucket blob.Bucket) error {
	_, err := bucket.Stat(ctx, layout.Deployment)
	if errors.Is(err, rowmill.ErrNotFound) {
		err = fmt.Errorf("%w: the bucket has no object %s, so it is not the bucket of this deployment", rowmill.ErrUnavailable, layout.Deployment)
	}
	return err
}

// Explain checks parts after an operation on them failed with err. It returns the error of
// CheckParts if there is one, because that may be the cause, and err otherwise.
func Explain(ctx context.Context, bucket blob.Bucket, parts []store.Part, err error) error {
	if err == nil || ctx.Err() != nil || isStorageDown(err) {
		return err
	}
	return cmp.Or(CheckParts(ctx, bucket, parts), err)
}

// isStorageDown reports whether an error says that storage cannot be used now.
func isStorageDown(err error) bool {
	return errors.Is(err, rowmill.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || blob.IsTransient(err)
}

// ErrNotStored means that storage acknowledged an object, but lacks the object or some of
// its bytes. An error with ErrNotStored also wraps rowmill.ErrUnavailable. The caller must
// write the object again.
var ErrNotStored = errors.New("storage acknowledged an object that cannot be read")

// visibleWithin is how long a bucket may take to show an object that it has acknowledged.
const visibleWithin = 30 * time.Second

// FindLost checks the parts of a job that ended without success, after a read of them failed
// with err. It records the parts that cannot be read as lost and returns the new record. If
// all parts can be read, it returns err. If a missing part may still appear, it returns
// ErrBusy.
func (a *Archive) FindLost(ctx context.Context, record store.Record, err error) (store.Record, error) {
	var failure *rowmill.Failure // of the job that reads the rows of record's job to take them over
	if status := record.Job.Status; !status.Terminal() || status == rowmill.StatusSucceeded ||
		ctx.Err() != nil || isStorageDown(err) || rowmill.MustStop(err) || errors.As(err, &failure) {
		return record, err
	}
	parts, listErr := a.parts(ctx, record.Job.ID)
	if listErr != nil {
		return record, listErr
	}
	var lost *LostError
	switch checked := CheckParts(ctx, a.bucket, parts); {
	case checked == nil:
		return record, err
	case !errors.As(checked, &lost):
		return record, checked
	case lost.missing && time.Since(record.EndedAt()) < visibleWithin:
		return record, fmt.Errorf("%w: %w", ErrBusy, lost)
	}
	a.logger.Warn("parts of an ended job cannot be read; their rows are lost", "job", record.Job.ID, "parts", len(lost.Keys), "err", lost)
	if _, err := a.store.LoseParts(ctx, store.Fence{JobID: record.Job.ID}, lost.Keys, func(r *store.Record) {
		if !slices.Contains(r.Job.Warnings, lostWarning) {
			r.Job.Warnings = append(slices.Clone(r.Job.Warnings), lostWarning)
		}
	}); err != nil {
		return record, fmt.Errorf("record lost parts: %w", err)
	}
	return a.store.Get(ctx, record.Job.ID)
}

// lostWarning is the warning in an ended job if some of its parts are lost.
const lostWarning = "Object storage lost rows after they were done. Resume the job to run them again."

// lostRows are the rows of lost parts.
type lostRows struct {
	shards []shard.Info
	rows   map[int]*roaring.Bitmap // by shard
}

// lostRows returns the rows of a job's lost parts. shards lists the shards of the job's
// input.
func (a *Archive) lostRows(ctx context.Context, record store.Record, shards []shard.Info) (l lostRows, err error) {
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

// has reports whether a row is lost.
func (l lostRows) has(row int64) bool {
	if len(l.rows) == 0 {
		return false
	}
	n := sort.Search(len(l.shards), func(i int) bool { return l.shards[i].First > row }) - 1
	if n < 0 || l.rows[n] == nil {
		return false
	}
	return l.rows[n].Contains(uint32(row - l.shards[n].First)) //nolint:gosec // an index within the shard
}

// WritePart writes a part with the rows that write adds to it, and returns its size in
// bytes. The part is then durable and can be read.
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
	return info.Size, ReadBack(ctx, bucket, info)
}

// ReadBack checks the size and the footer of a file that was just written. A bucket may
// acknowledge a file without storing it, or with only a part of the file stored.
func ReadBack(ctx context.Context, bucket blob.Bucket, written blob.Info) error {
	err := retry.Objects.Within(visibleWithin).Do(ctx, func() error { return readFooter(ctx, bucket, written) },
		func(err error) bool { return errors.Is(err, rowmill.ErrNotFound) }, nil)
	if err == nil || isStorageDown(err) {
		return err
	}
	return fmt.Errorf("%w: %w: object %s: %s", rowmill.ErrUnavailable, ErrNotStored, written.Key, err.Error())
}

func readFooter(ctx context.Context, bucket blob.Bucket, written blob.Info) error {
	o, err := bucket.Open(ctx, written.Key)
	if err != nil {
		return err
	}
	defer func() { _ = o.Close() }() // only read, so an error loses nothing
	if o.Size() != written.Size {
		return fmt.Errorf("it has %d bytes, %d were written", o.Size(), written.Size)
	}
	return results.CheckFooter(o)
}
