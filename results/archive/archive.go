// Package archive reads the results of jobs where they are kept: it finds a
// job's rows, failures and files by its record, in the result files of one
// that has succeeded and in the parts of any other, and its input as long as that
// is kept.
//
// It owns which object counts: of several parts with a row the first in the
// order of commit, of several files of a variant the first that was recorded.
// It also makes the files that nobody has asked for before, by package
// results. It refuses to know who may read, and how anything is shown.
package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sync/singleflight"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// What may stand in the way of an answer.
var (
	// ErrRemoved says that retention, or the account, has removed the data.
	ErrRemoved = errors.New("the results of the job were removed")
	// ErrNoRow says that the job has no row of that number.
	ErrNoRow = errors.New("the job has no such row")
	// ErrNotDone says that a row has no outcome yet.
	ErrNotDone = errors.New("the row is not done")
	// ErrBusy says that parts are being merged faster than they can be read.
	ErrBusy = errors.New("the rows are being moved")

	// errMoved says that an object was gone that a record just named.
	errMoved = errors.New("an object was replaced while it was being read")
)

// rereads is how often a job is looked at again because its parts were
// merged, or the job finished, while they were being read.
const rereads = 5

// Store is what an archive needs of a store.
type Store interface {
	Get(ctx context.Context, jobID string) (store.Record, error)
	ListParts(ctx context.Context, jobID string) ([]store.Part, error)
	AddArtifact(ctx context.Context, jobID, name string, a store.Artifact) (store.Record, error)
}

// Archive reads results out of a bucket. Its methods may be called at the same
// time.
type Archive struct {
	store  Store
	bucket blob.Bucket
	logger *slog.Logger
	making singleflight.Group // files being made, by job and variant
}

// New returns an archive of what the store and the bucket hold.
func New(s Store, b blob.Bucket, logger *slog.Logger) *Archive {
	return &Archive{store: s, bucket: b, logger: logger}
}

// Full opens the file of a job that has succeeded from which every other can
// be made; the caller closes it.
func (a *Archive) Full(ctx context.Context, record store.Record) (blob.Object, results.Schema, error) {
	full, err := fullOf(record)
	if err != nil {
		return nil, results.Schema{}, err
	}
	source, err := a.bucket.Open(ctx, full.Key)
	if err != nil {
		return nil, results.Schema{}, Removed(fmt.Errorf("open the result file: %w", err))
	}
	schema, err := results.ReadSchema(source)
	if err != nil {
		source.Close()
		return nil, schema, Removed(err)
	}
	return source, schema, nil
}

func fullOf(record store.Record) (store.Artifact, error) {
	full, found := record.Artifacts[layout.Full]
	if !found {
		return full, fmt.Errorf("job %s succeeded without a result file", record.Job.ID)
	}
	return full, nil
}

// Removed turns the absence of a recorded object, or its loss while it is being
// read, into ErrRemoved: the record read before may be older than the removal.
func Removed(err error) error {
	if errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, blob.ErrLost) {
		return fmt.Errorf("%w: %w", ErrRemoved, err)
	}
	return err
}

// reading runs read on a job's record, and on a newer one where what it reads
// moved away.
func (a *Archive) reading(ctx context.Context, record store.Record, read func(store.Record) error) error {
	for range rereads {
		if record.DataRemoved != nil {
			return ErrRemoved
		}
		err := read(record)
		if !errors.Is(err, errMoved) {
			return err
		}
		if record, err = a.store.Get(ctx, record.Job.ID); err != nil {
			return fmt.Errorf("read a job: %w", err)
		}
	}
	return ErrBusy
}

// withObjects opens objects, hands them to read and closes them. An object
// that is missing, or is deleted meanwhile, is errMoved.
func (a *Archive) withObjects(ctx context.Context, read func([]results.Source) error, keys ...string) error {
	files := make([]results.Source, 0, len(keys))
	for _, key := range keys {
		object, err := a.bucket.Open(ctx, key)
		if errors.Is(err, rowmill.ErrNotFound) {
			return errMoved
		}
		if err != nil {
			return fmt.Errorf("open %s: %w", key, err)
		}
		defer object.Close()
		files = append(files, object)
	}
	err := read(files)
	if errors.Is(err, blob.ErrLost) {
		return errMoved
	}
	return err
}
