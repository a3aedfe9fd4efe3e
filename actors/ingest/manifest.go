package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/shard"
)

// writeManifest writes the list of shards. It comes after the last of them, so
// that its existence says that ingest is complete.
func writeManifest(ctx context.Context, bucket blob.Bucket, job string, m shard.Manifest) error {
	doc, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode manifest: %w", err)
	}
	w, err := bucket.Create(ctx, layout.Manifest(job), "application/json")
	if err != nil {
		return fmt.Errorf("create manifest: %w", err)
	}
	defer w.Abort()
	if _, err := w.Write(doc); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	if _, err := w.Commit(); err != nil {
		return fmt.Errorf("commit manifest: %w", err)
	}
	return nil
}

// ReadManifest returns the list of a job's shards; rowmill.ErrNotFound when ingest is not complete.
func ReadManifest(ctx context.Context, bucket blob.Bucket, job string) (shard.Manifest, error) {
	var m shard.Manifest
	o, err := bucket.Open(ctx, layout.Manifest(job))
	if err != nil {
		return m, fmt.Errorf("open manifest: %w", err)
	}
	defer o.Close()
	if err := json.NewDecoder(blob.NewReader(o)).Decode(&m); err != nil {
		return m, fmt.Errorf("read manifest: %w", err)
	}
	return m, nil
}

// OpenShard opens shard n of a job for reading, in which the manifest has these
// rows. A node that was stopped while it cut the input may wake up and write a
// shard of its own in place of the one that counts: with the same first row and
// no fewer rows it holds the same ones, any other is refused.
func OpenShard(ctx context.Context, bucket blob.Bucket, job string, spec *rowmill.Spec, n int, has shard.Info) (*shard.Reader, error) {
	if spec.Inline != nil {
		return shard.FromTexts(spec.Inline), nil
	}
	o, err := bucket.Open(ctx, layout.Shard(job, n))
	if err != nil {
		return nil, fmt.Errorf("open shard %d: %w", n, err)
	}
	r, err := shard.NewReader(o, o.Size(), o)
	if err != nil {
		o.Close()
		return nil, fmt.Errorf("open shard %d: %w", n, err)
	}
	if r.First() != has.First || r.Rows() < has.Rows {
		return nil, errors.Join(fmt.Errorf("open shard %d: %w: it has %d rows from row %d on, the manifest says %d from row %d on: submit the job again",
			n, shard.ErrCorrupt, r.Rows(), r.First(), has.Rows, has.First), r.Close())
	}
	return r, nil
}
