package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/shard"
)

// writeManifest writes the list of shards. Call it after the last shard is written: if
// the list exists, the shards are complete.
func writeManifest(ctx context.Context, bucket blob.Bucket, job string, m shard.Manifest) error {
	doc, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode manifest: %w", err)
	}
	if _, err = blob.Write(ctx, bucket, layout.ManifestKey(job), layout.JSON, func(w io.Writer) error {
		_, err := w.Write(doc)
		return err
	}); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}
