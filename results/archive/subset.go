package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// Parquet returns the Parquet file of a variant of a job that has succeeded,
// and makes it when nobody has asked for it before. Concurrent requests of
// this process share the making; of several processes the first record wins.
func (a *Archive) Parquet(ctx context.Context, record store.Record, v results.Variant) (store.Artifact, error) {
	full, err := fullOf(record)
	if err != nil || v == results.Full {
		return full, err
	}
	id, name := record.Job.ID, v.Name()
	if made, found := record.Artifacts[name]; found {
		return made, nil
	}
	made, err, _ := a.making.Do(id+"/"+name, func() (any, error) {
		// Whoever waits for the file too must not lose it because the first
		// to ask has left.
		return a.make(context.WithoutCancel(ctx), id, full, v)
	})
	if err != nil {
		if now, lookErr := a.store.Get(ctx, id); lookErr == nil && now.DataRemoved != nil {
			return store.Artifact{}, ErrRemoved // whatever has failed, that is why
		}
		return store.Artifact{}, fmt.Errorf("make the result file %s: %w", name, err)
	}
	return made.(store.Artifact), nil
}

// make writes a subset of the full file's columns and records it.
func (a *Archive) make(ctx context.Context, jobID string, full store.Artifact, v results.Variant) (store.Artifact, error) {
	record, err := a.store.Get(ctx, jobID) // another request may have just made it
	if err != nil {
		return store.Artifact{}, err
	}
	if made, found := record.Artifacts[v.Name()]; found {
		return made, nil
	}
	source, err := a.bucket.Open(ctx, full.Key)
	if err != nil {
		return store.Artifact{}, Removed(err)
	}
	defer source.Close()
	schema, err := results.ReadSchema(source)
	if err != nil {
		return store.Artifact{}, Removed(err)
	}
	key := layout.Subset(jobID, v.Name())
	writer, err := a.bucket.Create(ctx, key, layout.Parquet)
	if err != nil {
		return store.Artifact{}, err
	}
	defer writer.Abort()
	if err := results.Subset(ctx, writer, source, schema, v); err != nil {
		return store.Artifact{}, Removed(err)
	}
	info, err := writer.Commit()
	if err != nil {
		return store.Artifact{}, err
	}
	return a.record(ctx, jobID, v.Name(), store.Artifact{Key: key, Size: info.Size})
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
