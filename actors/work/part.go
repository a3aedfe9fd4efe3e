package work

import (
	"bufio"
	"context"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// WritePart writes the rows of a batch, in order, as a part under a key of layout. It
// may be repeated under another key.
func WritePart(ctx context.Context, bucket blob.Bucket, schema results.Schema, key string, b *Batch) (assign.Part, error) {
	slices.SortFunc(b.Tasks, byRow)
	part := assign.Part{Key: key, Shard: b.Shard}
	w, err := bucket.Create(ctx, key, layout.Parquet)
	if err != nil {
		return part, err
	}
	defer w.Abort()
	buffered := bufio.NewWriterSize(w, 64<<10)
	p, err := results.NewPartWriter(buffered, schema)
	if err != nil {
		return part, err
	}
	rels := make([]uint32, len(b.Tasks))
	for i, t := range b.Tasks {
		if err := p.Add(&t.Row, &t.Out); err != nil {
			return part, fmt.Errorf("row %d: %w", t.Row.Index, err)
		}
		rels[i] = uint32(t.Rel)
		part.Totals = part.Totals.Plus(totalsOf(t))
	}
	part.Rows = assign.NewRowSet(roaring.BitmapOf(rels...))
	if err := p.Close(); err != nil {
		return part, err
	}
	if err := buffered.Flush(); err != nil {
		return part, err
	}
	info, err := w.Commit()
	if err != nil {
		return part, err
	}
	part.Size = info.Size
	return part, archive.ReadBack(ctx, bucket, info)
}

func totalsOf(t *dispatch.Task) store.Totals {
	sum := store.Totals{Rows: 1}
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
