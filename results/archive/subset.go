package archive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// Parquet returns the Parquet file of a variant of a job that has succeeded,
// and makes it when nobody has asked for it before. Concurrent requests of
// this process share the making; of several processes the first record wins.
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

// subset returns the file of a variant, which has a name, of another file.
func (a *Archive) subset(ctx context.Context, record store.Record, of store.Artifact, name string, v results.Variant) (store.Artifact, error) {
	return a.made(ctx, record, file{name, layout.Subset, layout.Parquet}, func(ctx context.Context, w io.Writer) error {
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

// A file is what is made of a job's rows.
type file struct {
	name string // of the artifact
	key  func(jobID, name string) string
	kind string // media type
}

// made returns a file of a job that is over, and has it written where there is
// none yet.
func (a *Archive) made(ctx context.Context, record store.Record, f file, write func(context.Context, io.Writer) error) (store.Artifact, error) {
	id := record.Job.ID
	if made, found := record.Artifacts[f.name]; found {
		return made, nil
	}
	made, err, _ := a.making.Do(id+"/"+f.name, func() (any, error) {
		// Whoever waits for the file too must not lose it because the first
		// to ask has left.
		return a.make(context.WithoutCancel(ctx), id, f, write)
	})
	if err != nil {
		if now, lookErr := a.store.Get(ctx, id); lookErr == nil && now.DataRemoved != nil {
			return store.Artifact{}, ErrRemoved // whatever has failed, that is why
		}
		return store.Artifact{}, fmt.Errorf("make the result file %s: %w", f.name, err)
	}
	return made.(store.Artifact), nil
}

// make writes a file and records it.
func (a *Archive) make(ctx context.Context, jobID string, f file, write func(context.Context, io.Writer) error) (store.Artifact, error) {
	record, err := a.store.Get(ctx, jobID) // another request may have just made it
	if err != nil {
		return store.Artifact{}, err
	}
	if made, found := record.Artifacts[f.name]; found {
		return made, nil
	}
	key := f.key(jobID, f.name)
	writer, err := a.bucket.Create(ctx, key, f.kind)
	if err != nil {
		return store.Artifact{}, err
	}
	defer writer.Abort()
	buffered := bufio.NewWriterSize(writer, 256<<10)
	if err := errors.Join(write(ctx, buffered), buffered.Flush()); err != nil {
		return store.Artifact{}, err
	}
	info, err := writer.Commit()
	if err != nil {
		return store.Artifact{}, err
	}
	return a.record(ctx, jobID, f.name, store.Artifact{Key: key, Size: info.Size})
}

// record records a file that was just made and returns the one that counts. A
// file that certainly does not count is removed; where that is uncertain it
// stays and goes with the job's other objects.
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
			a.logger.Warn("removing a result file that came second failed", "job", jobID, "err", dropErr)
		}
	}
	if !recorded {
		return store.Artifact{}, errors.Join(errors.New("the file was not recorded"), err)
	}
	return winner, nil
}
