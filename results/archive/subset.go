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

// MakeParquet returns the Parquet file of a job that succeeded, in one variant. The first
// request makes the file, and concurrent requests in this process share the work. If
// several processes make the file, the file that is recorded first counts.
func (a *Archive) MakeParquet(ctx context.Context, record store.Record, v results.FileVariant) (store.Artifact, error) {
	if record.Spec.Raw != nil {
		return a.makeRequestsFile(ctx, record, v)
	}
	full, err := fullArtifact(record)
	if err == nil && v.IsWide() {
		full, err = a.makeWide(ctx, record, full, record.Artifacts[layout.Rows], layout.Wide)
	}
	if err != nil || v == results.Full || v == results.Wide {
		return full, err
	}
	return a.makeSubset(ctx, record, full, v.Name(), v)
}

// makeSubset returns a file with the columns of variant v. On the first request it makes
// the file from the file base. name is the name of the new artifact.
func (a *Archive) makeSubset(ctx context.Context, record store.Record, base store.Artifact, name string, v results.FileVariant) (store.Artifact, error) {
	return a.getOrMakeFile(ctx, record, artifactSpec{name, layout.NewSubsetKey, layout.Parquet}, func(ctx context.Context, w io.Writer) error {
		source, err := a.bucket.Open(ctx, base.Key)
		if err != nil {
			return MissingAsRemoved(err)
		}
		defer source.Close()
		schema, err := results.ReadSchema(source)
		if err != nil {
			return MissingAsRemoved(err)
		}
		return MissingAsRemoved(results.WriteSubset(ctx, w, source, schema, v))
	})
}

// artifactSpec describes a file that the archive makes from a job's rows.
type artifactSpec struct {
	name string                          // name of the artifact
	key  func(jobID, name string) string // returns the object key
	kind string                          // media type
}

// getOrMakeFile returns a file of an ended job. If the job has no such file yet, getOrMakeFile makes
// the file with the function write.
func (a *Archive) getOrMakeFile(ctx context.Context, record store.Record, f artifactSpec, write func(context.Context, io.Writer) error) (store.Artifact, error) {
	id := record.Job.ID
	if made, found := record.Artifacts[f.name]; found {
		return made, nil
	}
	made, err, _ := a.creating.Do(id+"/"+f.name, func() (any, error) {
		// Other requests may wait for the file. So it must be made even if the first
		// request is canceled.
		return a.createFile(context.WithoutCancel(ctx), id, f, write)
	})
	if err != nil {
		if now, lookErr := a.store.Get(ctx, id); lookErr == nil && now.DataRemoved != nil {
			return store.Artifact{}, ErrRemoved // the data was removed meanwhile, so the file could not be made
		}
		return store.Artifact{}, fmt.Errorf("make the result file %s: %w", f.name, err)
	}
	return made.(store.Artifact), nil
}

// createFile makes a file, writes it to the bucket, and adds it to the job's record. If the
// record already has the file, createFile returns that file.
func (a *Archive) createFile(ctx context.Context, jobID string, f artifactSpec, write func(context.Context, io.Writer) error) (store.Artifact, error) {
	record, err := a.store.Get(ctx, jobID) // another request may have just made the file
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
	return a.addToRecord(ctx, jobID, f.name, store.Artifact{Key: key, Size: info.Size})
}

// addToRecord adds a new file to the job's record and returns the file that counts. If
// another file counts, addToRecord deletes the new file. If addToRecord cannot find out
// which file counts, the new file stays in the bucket until the job's data is deleted.
func (a *Archive) addToRecord(ctx context.Context, jobID, name string, mine store.Artifact) (store.Artifact, error) {
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
