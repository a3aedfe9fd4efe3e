package ingest

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/shard"
)

// writeManifest writes the list of shards. It is written after the last shard, so its
// existence means that ingest is complete.
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
