// Package archive reads the results of jobs from the bucket. It takes a job's record
// and finds the job's rows, failures and files: for a job that succeeded in the result
// files, and for any other job in the parts. It also reads a job's input until the
// input is removed.
//
// The package decides which object counts. If several parts have a row, the part that
// was committed first counts. If there are several files of a variant, the file that
// was recorded first counts. The package makes files on the first request, with package
// results. It does not know who may read or how data are shown.
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

// Reasons why a read has no result.
var (
	// ErrRemoved means that retention or the account removed the data.
	ErrRemoved = errors.New("the results of the job were removed")
	// ErrNoRow means that the job has no row with the requested index.
	ErrNoRow = errors.New("the job has no such row")
	// ErrNotDone means that a row has no outcome yet.
	ErrNotDone = errors.New("the row has no outcome yet")
	// ErrBusy means that parts are merged faster than they can be read, or that a
	// missing part may still appear. The caller can try again later.
	ErrBusy = errors.New("the rows are being moved to another object")

	// errMoved means that an object was deleted after the record that names it was
	// read.
	errMoved = errors.New("an object was replaced while it was being read")
)

// maxRereads is the largest number of attempts to read from a job's objects. A read is
// repeated if the job's parts are merged or the job finishes during the read.
const maxRereads = 5

// Store has the store methods that an Archive needs.
type Store interface {
	Get(ctx context.Context, jobID string) (store.Record, error)
	ListParts(ctx context.Context, jobID string) ([]store.Part, error)
	LostParts(ctx context.Context, jobID string) ([]store.Part, error)
	MarkPartsLost(ctx context.Context, f store.Fence, keys []string, change func(*store.Record)) (store.RowTotals, error)
	AddArtifact(ctx context.Context, jobID, name string, a store.Artifact) (store.Record, error)
}

// Archive reads results from a bucket. Its methods are safe for concurrent use.
type Archive struct {
	Version string // of this program, for the metadata of files with results.FileVariant.Meta

	store    Store
	bucket   blob.Bucket
	logger   *slog.Logger
	creating singleflight.Group // files that are being made, by job ID and artifact name
}

// New returns an Archive of the jobs in a store and a bucket.
func New(s Store, b blob.Bucket, logger *slog.Logger) *Archive {
	return &Archive{store: s, bucket: b, logger: logger}
}

// OpenFull opens the full file of a job that succeeded, and reads its schema. Every other
// file can be made from the full file. The caller closes it.
func (a *Archive) OpenFull(ctx context.Context, record store.Record) (blob.Object, results.Schema, error) {
	full, err := fullArtifact(record)
	if err != nil {
		return nil, results.Schema{}, err
	}
	source, err := a.bucket.Open(ctx, full.Key)
	if err != nil {
		return nil, results.Schema{}, MissingAsRemoved(fmt.Errorf("open the result file: %w", err))
	}
	schema, err := results.ReadSchema(source)
	if err != nil {
		source.Close()
		return nil, schema, MissingAsRemoved(err)
	}
	return source, schema, nil
}

// fullArtifact returns the full file in the record of a job that succeeded.
func fullArtifact(record store.Record) (store.Artifact, error) {
	full, found := record.Artifacts[layout.Full]
	if !found {
		return full, fmt.Errorf("job %s succeeded without a result file", record.Job.ID)
	}
	return full, nil
}

// MissingAsRemoved converts the error for an object that is missing or was deleted during the
// read into ErrRemoved, because the job's data may have been removed after the record
// was read. It returns other errors unchanged.
func MissingAsRemoved(err error) error {
	if errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, blob.ErrLost) {
		return fmt.Errorf("%w: %w", ErrRemoved, err)
	}
	return err
}

// retryIfMoved returns what read returns for a job's record. If objects were replaced during the
// read, or if MarkLostParts marks parts as lost, it calls read again with a newer record.
func retryIfMoved[T any](ctx context.Context, a *Archive, record store.Record, read func(store.Record) (T, error)) (result T, err error) {
	for range maxRereads {
		if record.DataRemoved != nil {
			return result, ErrRemoved
		}
		if result, err = read(record); err == nil || isFinalAnswer(err) {
			return result, err
		}
		if record, err = a.MarkLostParts(ctx, record, err); err == nil {
			continue
		}
		if !errors.Is(err, errMoved) {
			return result, err
		}
		if record, err = a.store.Get(ctx, record.Job.ID); err != nil {
			return result, fmt.Errorf("read a job: %w", err)
		}
	}
	return result, ErrBusy
}

// isFinalAnswer reports whether an error is a final answer to the caller. Then another read
// does not help.
func isFinalAnswer(err error) bool {
	return errors.Is(err, ErrNoRow) || errors.Is(err, ErrNotDone) || errors.Is(err, ErrRemoved)
}

// withObjects opens the objects with the given keys, passes them to read in the same
// order, and closes them. If an object is missing or is deleted during the read, the
// error is errMoved.
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
