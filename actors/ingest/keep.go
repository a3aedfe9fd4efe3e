package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

// KeepInputForResume prepares the input of a finished job for another job that continues it. It
// writes rows in the record as a shard, and removes the objects from which shards were
// cut. It may be repeated.
func KeepInputForResume(ctx context.Context, bucket blob.Bucket, rec *store.Record) error {
	id := rec.Job.ID
	if texts := rec.Spec.Inline; texts != nil {
		info, err := writeInline(ctx, bucket, id, texts)
		if err != nil {
			return err
		}
		return writeManifest(ctx, bucket, id, shard.Manifest{Rows: int64(info.Rows), Shards: []shard.ManifestEntry{info}})
	}
	if _, err := bucket.Stat(ctx, layout.ManifestKey(id)); errors.Is(err, rowmill.ErrNotFound) {
		return nil // the next job cuts the original input
	} else if err != nil {
		return fmt.Errorf("check whether the manifest exists: %w", err)
	}
	return errors.Join(bucket.Delete(ctx, layout.RawInputKey(id)), bucket.Delete(ctx, layout.SpooledRowsKey(id)))
}

// writeInline writes rows that are in a record as shard 0, the only shard of a job.
func writeInline(ctx context.Context, bucket blob.Bucket, job string, texts []string) (info shard.ManifestEntry, err error) {
	_, err = blob.Write(ctx, bucket, layout.ShardKey(job, 0), layout.Bytes, func(w io.Writer) error {
		out := shard.NewWriter(w, 0, false)
		for _, text := range texts {
			if err := out.Add(text, rowmill.ID{}); err != nil {
				return err
			}
		}
		info = shard.ManifestEntry{Rows: out.Rows(), Bytes: out.Size()}
		return out.Close()
	})
	if err != nil {
		return info, fmt.Errorf("write shard 0: %w", err)
	}
	return info, nil
}
