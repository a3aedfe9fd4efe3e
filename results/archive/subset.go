package archive

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// Parquet returns a variant of the Parquet file of a job that succeeded. The file is made
// on the first request. Concurrent requests in this process share the work. If several
// processes make the file, the file that is recorded first counts.
func (a *Archive) Parquet(ctx context.Context, record store.Record, v results.Variant) (store.Artifact, error) {
	if record.Spec.Raw != nil {
		return a.requests(ctx, record, v)
	}
	full, err := fullOf(record)
	if err != nil || v == results.Full {
		return full, err
	}
	return a.subset(ctx, record, full, v.Name(), v)
}

// subset returns a file with the columns of variant v, made from the file of. name is the
// name of the new artifact.
func (a *Archive) subset(ctx context.Context, record store.Record, of store.Artifact, name string, v results.Variant) (store.Artifact, error) {
	return a.fileOf(ctx, record, file{name, layout.Subset, layout.Parquet}, func(ctx context.Context, w io.Writer) error {
		source, err := a.bucket.Open(ctx, of.Key)
		if err != nil {
			return Removed(err)
		}
		defer source.Close()
		schema, err := results.ReadSchema(source)
		if err != nil {
			return Removed(err)
		}
		return Removed(results.Subset(ctx, w, source, schema, v))
	})
}

// file describes a file that is made from a job's rows.
type file struct {
	name string // name of the artifact
	key  func(jobID, name string) string
	kind string // media type
}

// fileOf returns a file of an ended job. If the file does not exist, fileOf calls write to
// make the file.
func (a *Archive) fileOf(ctx context.Context, record store.Record, f file, write func(context.Context, io.Writer) error) (store.Artifact, error) {
	id := record.Job.ID
	if made, found := record.Artifacts[f.name]; found {
		return made, nil
	}
	made, err, _ := a.creating.Do(id+"/"+f.name, func() (any, error) {
		// Other requests may wait for the file, so it must not fail because the
		// first request was cancelled.
		return a.create(context.WithoutCancel(ctx), id, f, write)
	})
	if err != nil {
		if now, lookErr := a.store.Get(ctx, id); lookErr == nil && now.DataRemoved != nil {
			return store.Artifact{}, ErrRemoved // the step failed because the data was removed meanwhile
		}
		return store.Artifact{}, fmt.Errorf("make the result file %s: %w", f.name, err)
	}
	return made.(store.Artifact), nil
}

// create writes a file and records it.
func (a *Archive) create(ctx context.Context, jobID string, f file, write func(context.Context, io.Writer) error) (store.Artifact, error) {
	record, err := a.store.Get(ctx, jobID) // another request may have just made it
	if err != nil {
		return store.Artifact{}, err
	}
	if made, found := record.Artifacts[f.name]; found {
		return made, nil
	}
	key := f.key(jobID, f.name)
	info, err := blob.Write(ctx, a.bucket, key, f.kind, func(w io.Writer) error { return write(ctx, w) })
	if err != nil {
		return store.Artifact{}, err
	}
	return a.record(ctx, jobID, f.name, store.Artifact{Key: key, Size: info.Size})
}

// record adds a new file to the job's record and returns the file that counts. If another
// file counts, record deletes the new file. If record cannot find out which file counts,
// the new file stays and is removed with the job's other objects.
func (a *Archive) record(ctx context.Context, jobID, name string, mine store.Artifact) (store.Artifact, error) {
	record, err := a.store.AddArtifact(ctx, jobID, name, mine)
	if err != nil {
		now, lookErr := a.store.Get(ctx, jobID)
		if lookErr != nil {
			return store.Artifact{}, errors.Join(err, lookErr)
		}
		record = now
	}
	winner, recorded := record.Artifacts[name]
	if winner.Key != mine.Key {
		if dropErr := a.bucket.Delete(ctx, mine.Key); dropErr != nil {
			a.logger.Warn("a duplicate result file could not be deleted now; it is deleted with the job's data", "job", jobID, "err", dropErr)
		}
	}
	if !recorded {
		return store.Artifact{}, errors.Join(errors.New("the file was not added to the job's record"), err)
	}
	return winner, nil
}
