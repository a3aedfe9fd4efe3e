package commit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/retry"
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

// Lasting reports whether it is of no use to read the parts again.
func (e *LostError) Lasting() bool { return !e.missing }

// NoWait makes a LostError lasting.
func NoWait(err error) error {
	var lost *LostError
	if errors.As(err, &lost) {
		lost.missing = false
	}
	return err
}

// CheckParts reads parts and returns a LostError if some cannot be read, or another error if
// storage cannot be used now.
func CheckParts(ctx context.Context, bucket blob.Bucket, parts []store.Part) error {
	lost := &LostError{}
	for _, p := range parts {
		err := readPart(ctx, bucket, p)
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil || passes(err):
			return err
		case errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, blob.ErrLost):
			lost.missing = true
		}
		lost.Keys = append(lost.Keys, p.Key)
		if lost.first == nil {
			lost.first = err
		}
	}
	if len(lost.Keys) == 0 {
		return nil
	}
	return lost
}

// Explain returns the LostError of parts if they may have caused an error, else the error.
func Explain(ctx context.Context, bucket blob.Bucket, parts []store.Part, err error) error {
	if err == nil || ctx.Err() != nil || passes(err) {
		return err
	}
	return cmp.Or(CheckParts(ctx, bucket, parts), err)
}

// passes reports whether an error says that storage cannot be used now.
func passes(err error) bool {
	return errors.Is(err, rowmill.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || blob.IsTransient(err)
}

func readPart(ctx context.Context, bucket blob.Bucket, p store.Part) error {
	o, err := bucket.Open(ctx, p.Key)
	if err != nil {
		return err
	}
	defer func() { _ = o.Close() }() // it was open only for reading
	return results.CheckPart(ctx, o)
}

// visible is how long a bucket may take to show an object that it has acknowledged.
const visible = 30 * time.Second

// ReadBack checks the size and the footer of a file that was just written. A bucket may
// acknowledge a file that it does not store, or stores in part.
func ReadBack(ctx context.Context, bucket blob.Bucket, written blob.Info) error {
	err := retry.Objects.Within(visible).Do(ctx, func() error { return readFooter(ctx, bucket, written) },
		func(err error) bool { return errors.Is(err, rowmill.ErrNotFound) }, nil)
	if err == nil || passes(err) {
		return err
	}
	// Not wrapped: that the object is missing is no answer yet.
	return fmt.Errorf("storage acknowledged object %s, but it cannot be read: %s", written.Key, err.Error())
}

func readFooter(ctx context.Context, bucket blob.Bucket, written blob.Info) error {
	o, err := bucket.Open(ctx, written.Key)
	if err != nil {
		return err
	}
	defer func() { _ = o.Close() }() // it was open only for reading
	if o.Size() != written.Size {
		return fmt.Errorf("it has %d bytes, %d were written", o.Size(), written.Size)
	}
	return results.CheckFooter(o)
}
