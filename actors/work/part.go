package work

import (
	"context"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// WritePart writes the rows of a batch, sorted by row, as a part. key is a key of a
// part from package layout. After an error the caller may try again with another key.
func WritePart(ctx context.Context, bucket blob.Bucket, schema results.Schema, key string, b *Batch) (assign.Part, error) {
	slices.SortFunc(b.Tasks, byRow)
	part := assign.Part{Key: key, Shard: b.Shard}
	rels := make([]uint32, len(b.Tasks))
	for i, t := range b.Tasks {
		rels[i] = uint32(t.Rel)
		part.Totals = part.Totals.Plus(totalsOf(t))
	}
	part.Rows = assign.NewRowSet(roaring.BitmapOf(rels...))
	var err error
	part.Size, err = archive.WritePart(ctx, bucket, key, schema, func(p *results.PartWriter) error {
		for _, t := range b.Tasks {
			if err := p.Add(&t.Row, &t.Out); err != nil {
				return fmt.Errorf("row %d: %w", t.Row.Index, err)
			}
		}
		return nil
	})
	return part, err
}

// totalsOf returns the totals of one row.
func totalsOf(t *dispatch.RowTask) store.RowTotals {
	sum := store.RowTotals{Rows: 1}
	if t.Out.Failed() {
		sum.Failed = 1
		return sum
	}
	if t.Cut {
		sum.TruncatedRows = 1
	}
	if t.Out.Finish == rowmill.FinishLength {
		sum.TruncatedOutputs = 1
	}
	sum.InputTokens, sum.OutputTokens = t.Out.InputTokens, t.Out.OutputTokens
	return sum
}
