package http

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// The artifacts that every succeeded job has.
const (
	artifactFull = "full"              // ID, inputs, output and log probabilities
	artifactRows = results.RowsVariant // tokens, engine, attempts and errors of each row
)

const parquetType = "application/vnd.apache.parquet"

// artifact returns the Parquet file of a variant, and makes it when nobody
// has asked for it before. Concurrent requests of this process share the
// making; of several processes the first record wins.
func (s *Server) artifact(ctx context.Context, record store.Record, v results.Variant) (store.Artifact, error) {
	name := v.Name()
	if v == results.Full {
		name = artifactFull
	}
	if made, found := record.Artifacts[name]; found {
		return made, nil
	}
	full, found := record.Artifacts[artifactFull]
	if !found {
		return store.Artifact{}, fmt.Errorf("job %s succeeded without a result file", record.Job.ID)
	}
	made, err, _ := s.making.Do(record.Job.ID+"/"+name, func() (any, error) {
		// Whoever waits for the file too must not lose it because the first
		// to ask has left.
		return s.make(context.WithoutCancel(ctx), record.Job.ID, full, name, v)
	})
	if err != nil {
		if now, lookErr := s.Store.Get(ctx, record.Job.ID); lookErr == nil && now.DataRemoved != nil {
			return store.Artifact{}, errGone() // whatever has failed, that is why
		}
		return store.Artifact{}, fmt.Errorf("make the result file %s: %w", name, err)
	}
	return made.(store.Artifact), nil
}

// make writes a subset of the full file's columns and records it.
func (s *Server) make(ctx context.Context, jobID string, full store.Artifact, name string, v results.Variant) (store.Artifact, error) {
	record, err := s.Store.Get(ctx, jobID) // another request may have just made it
	if err != nil {
		return store.Artifact{}, err
	}
	if made, found := record.Artifacts[name]; found {
		return made, nil
	}
	source, err := s.Bucket.Open(ctx, full.Key)
	if err != nil {
		return store.Artifact{}, removed(err)
	}
	defer source.Close()
	schema, err := results.ReadSchema(source)
	if err != nil {
		return store.Artifact{}, removed(err)
	}

	key := fmt.Sprintf("jobs/%s/results/%s-%s.parquet", jobID, name, nonce())
	writer, err := s.Bucket.Create(ctx, key, parquetType)
	if err != nil {
		return store.Artifact{}, err
	}
	defer writer.Abort()
	if err := results.Subset(ctx, writer, source, schema, v); err != nil {
		return store.Artifact{}, removed(err)
	}
	info, err := writer.Commit()
	if err != nil {
		return store.Artifact{}, err
	}
	return s.recordArtifact(ctx, jobID, name, store.Artifact{Key: key, Size: info.Size})
}

// recordArtifact records a file that was just made and returns the one that
// counts. A file that certainly does not count is removed; where that is
// uncertain it stays and goes with the job's other objects.
func (s *Server) recordArtifact(ctx context.Context, jobID, name string, mine store.Artifact) (store.Artifact, error) {
	record, err := s.Store.AddArtifact(ctx, jobID, name, mine)
	if err != nil {
		now, lookErr := s.Store.Get(ctx, jobID)
		if lookErr != nil {
			return store.Artifact{}, errors.Join(err, lookErr)
		}
		record = now
	}
	winner, recorded := record.Artifacts[name]
	if winner.Key != mine.Key {
		if dropErr := s.Bucket.Delete(ctx, mine.Key); dropErr != nil {
			s.Logger.Warn("remove a result file that came second", keyJob, jobID, keyErr, dropErr)
		}
	}
	if !recorded {
		return store.Artifact{}, errors.Join(errors.New("the file was not recorded"), err)
	}
	return winner, nil
}

func nonce() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails, as documented since Go 1.24
	return hex.EncodeToString(b[:])
}

// removed turns the absence of a recorded object, or its loss while it is being
// read, into "retention took it": the record read before may be older than that.
func removed(err error) error {
	if errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, blob.ErrLost) {
		return errGone()
	}
	return err
}
