package ingest

import (
	"bufio"
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

// Keep changes the input of a finished job so that another job can continue it: rows in
// the record are written as a shard, and the objects from which shards were cut are
// removed. It may be repeated.
func Keep(ctx context.Context, bucket blob.Bucket, rec *store.Record) error {
	id := rec.Job.ID
	if texts := rec.Spec.Inline; texts != nil {
		w, err := bucket.Create(ctx, layout.Shard(id, 0), layout.Bytes)
		if err != nil {
			return fmt.Errorf("create shard 0: %w", err)
		}
		defer w.Abort()
		buffered := bufio.NewWriterSize(w, 64<<10)
		info, err := writeInline(buffered, texts)
		if err = errors.Join(err, buffered.Flush()); err != nil {
			return fmt.Errorf("write shard 0: %w", err)
		}
		if _, err := w.Commit(); err != nil {
			return fmt.Errorf("commit shard 0: %w", err)
		}
		return writeManifest(ctx, bucket, id, shard.Manifest{Rows: int64(info.Rows), Shards: []shard.Info{info}})
	}
	if _, err := bucket.Stat(ctx, layout.Manifest(id)); errors.Is(err, rowmill.ErrNotFound) {
		return nil // the next job cuts the original input
	} else if err != nil {
		return fmt.Errorf("look for the manifest: %w", err)
	}
	return errors.Join(bucket.Delete(ctx, layout.Raw(id)), bucket.Delete(ctx, layout.Spooled(id)))
}

// writeInline writes rows from a record as one shard.
func writeInline(w io.Writer, texts []string) (shard.Info, error) {
	out := shard.NewWriter(w, 0, false)
	for _, text := range texts {
		if err := out.Add(text, rowmill.ID{}); err != nil {
			return shard.Info{}, err
		}
	}
	info := shard.Info{Rows: out.Rows(), Bytes: out.Size()}
	return info, out.Close()
}
