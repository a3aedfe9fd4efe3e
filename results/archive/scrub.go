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

// An UnreadableObject is an object that the record of a job names but that cannot be read.
type UnreadableObject struct {
	Key string
	Err error
}

// Scrub reads the objects that the record of an ended job names: the result files if
// the job succeeded, otherwise the parts. It returns the objects that cannot be read
// and the number of bytes read. The error means that storage cannot be used now. For a
// job that has not ended, Scrub reads nothing, because such a job may still replace its
// objects.
func Scrub(ctx context.Context, s Store, bucket blob.Bucket, rec store.Record) (faults []UnreadableObject, bytesRead int64, err error) {
	if !rec.Job.Status.IsTerminal() || rec.DataRemoved != nil {
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
		switch bytesRead += size; {
		case err == nil:
		case ctx.Err() != nil || isStorageDown(err):
			return faults, bytesRead, err
		default:
			faults = append(faults, UnreadableObject{key, err})
		}
	}
	if len(faults) == 0 {
		return nil, bytesRead, nil
	}
	now, err := s.Get(ctx, rec.Job.ID)
	if err == nil && now.Version == rec.Version {
		return faults, bytesRead, nil
	}
	if errors.Is(err, rowmill.ErrNotFound) {
		err = nil
	}
	return nil, bytesRead, err // the record has changed since it was read, so the objects may have been removed
}

// checkObject opens an object, calls check, and returns the object's size in bytes.
func checkObject(ctx context.Context, bucket blob.Bucket, key string, check func(context.Context, results.Source) error) (size int64, err error) {
	o, err := bucket.Open(ctx, key)
	if err != nil {
		return 0, err
	}
	defer func() { _ = o.Close() }() // the object was only read, so an error loses no data
	return o.Size(), check(ctx, o)
}
