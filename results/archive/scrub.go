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

// A Fault is an object that the record of a job names and that cannot be read.
type Fault struct {
	Key string
	Err error
}

// Scrub reads all objects of an ended job that its record needs: the results of a success,
// the parts of another job. It returns how many bytes it has read, and an error if storage
// cannot be used now. It reads nothing of other jobs, because their objects still move.
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
		case ctx.Err() != nil || passes(err):
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
	defer func() { _ = o.Close() }() // it was open only for reading
	return o.Size(), check(ctx, o)
}
