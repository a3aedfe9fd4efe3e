package archive

import (
	"context"
	"fmt"
	"io"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// ListKept returns the names of the columns that a job keeps of its input.
func (a *Archive) ListKept(ctx context.Context, record store.Record) ([]string, error) {
	kept, err := a.bucket.Open(ctx, layout.KeptColumnsKey(record.Job.ID))
	if err != nil {
		return nil, MissingAsRemoved(fmt.Errorf("open the kept columns: %w", err))
	}
	defer kept.Close()
	names, err := results.ListColumns(kept)
	return names, MissingAsRemoved(err)
}

// makeWide returns the file base with more columns: columns that the job keeps of its input, and
// properties of the answers. The first request makes the file. name is the name of the new
// artifact.
func (a *Archive) makeWide(ctx context.Context, record store.Record, base store.Artifact, name string) (store.Artifact, error) {
	return a.getOrMakeFile(ctx, record, artifactSpec{name, layout.NewSubsetKey, layout.Parquet}, func(ctx context.Context, w io.Writer) error {
		source, err := a.bucket.Open(ctx, base.Key)
		if err != nil {
			return MissingAsRemoved(fmt.Errorf("open the result file: %w", err))
		}
		defer source.Close()
		if len(record.Spec.Keep) == 0 {
			return MissingAsRemoved(results.WriteWide(ctx, w, source, nil, nil, record.Spec.Schema))
		}
		kept, err := a.bucket.Open(ctx, layout.KeptColumnsKey(record.Job.ID))
		if err != nil {
			return MissingAsRemoved(fmt.Errorf("open the kept columns: %w", err))
		}
		defer kept.Close()
		var chosen *roaring.Bitmap
		if record.Spec.Limit > 0 && record.Job.InputRows != nil {
			chosen = shard.ChooseRows(&record.Spec, *record.Job.InputRows)
		}
		return MissingAsRemoved(results.WriteWide(ctx, w, source, kept, chosen, record.Spec.Schema))
	})
}
