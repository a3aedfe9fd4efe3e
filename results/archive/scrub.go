package archive

import (
	"context"
	"errors"
	"slices"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// A Fault is an object that cannot be read although the record of a job names it.
type Fault struct {
	Key string
	Err error
}

// Scrub reads the objects that the record of an ended job needs: the result files if the
// job succeeded, else the parts. It returns the objects that cannot be read, how many bytes
// it has read, and an error if storage cannot be used now. It reads nothing of a job that
// has not ended, because the objects of such a job are still replaced.
func Scrub(ctx context.Context, s Store, bucket blob.Bucket, rec store.Record) (faults []Fault, read int64, err error) {
	if !rec.Job.Status.Terminal() || rec.DataRemoved != nil {
		return nil, 0, nil
	}
	var keys []string
	check := results.CheckPart
	if rec.Job.Status == rowmill.StatusSucceeded {
		check = results.CheckResult
		for name, a := range rec.Artifacts {
			if name == layout.Full || name == layout.Rows {
				keys = append(keys, a.Key)
			}
		}
		slices.Sort(keys)
	} else {
		parts, err := s.ListParts(ctx, rec.Job.ID)
		if err != nil {
			return nil, 0, err
		}
		for _, p := range parts {
			keys = append(keys, p.Key)
		}
	}
	for _, key := range keys {
		size, err := checkObject(ctx, bucket, key, check)
		switch read += size; {
		case err == nil:
		case ctx.Err() != nil || isStorageDown(err):
			return faults, read, err
		default:
			faults = append(faults, Fault{key, err})
		}
	}
	if len(faults) == 0 {
		return nil, read, nil
	}
	now, err := s.Get(ctx, rec.Job.ID)
	if err == nil && now.Version == rec.Version {
		return faults, read, nil
	}
	if errors.Is(err, rowmill.ErrNotFound) {
		err = nil
	}
	return nil, read, err // the objects may have been removed since the record was read
}

func checkObject(ctx context.Context, bucket blob.Bucket, key string, check func(context.Context, results.Source) error) (size int64, err error) {
	o, err := bucket.Open(ctx, key)
	if err != nil {
		return 0, err
	}
	defer func() { _ = o.Close() }() // only read, so an error loses nothing
	return o.Size(), check(ctx, o)
}
