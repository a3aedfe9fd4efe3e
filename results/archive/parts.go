package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// partIndex finds the part that has the result of a row. It searches the records of the
// parts. It opens only one part of a shard, to find the index of the shard's first row.
type partIndex struct {
	*Archive
	shards [][]store.Part // parts by shard, in order of commit
	firsts map[int]int64  // index of the first row by position in shards, as far as known
}

// newPartIndex returns the index of a job's parts.
func (a *Archive) newPartIndex(ctx context.Context, jobID string) (*partIndex, error) {
	parts, err := a.listParts(ctx, jobID)
	if err != nil {
		return nil, err
	}
	return &partIndex{a, groupByShard(parts), map[int]int64{}}, nil
}

// firstRowOfShard returns the index of the first row of the shard at position i.
func (h *partIndex) firstRowOfShard(ctx context.Context, i int) (int64, error) {
	row, known := h.firsts[i]
	if known {
		return row, nil
	}
	row, err := h.firstRowFromPart(ctx, h.shards[i][0])
	if err == nil {
		h.firsts[i] = row
	}
	return row, err
}

// findShard returns the position of the last shard that begins at or before the row. It
// returns 0 if there is no such shard.
func (h *partIndex) findShard(ctx context.Context, row int64) (int, error) {
	low, high := 0, len(h.shards) // binary search for the first shard after the row
	for low < high {
		middle := (low + high) / 2
		first, err := h.firstRowOfShard(ctx, middle)
		if err != nil {
			return 0, err
		}
		if first > row {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return max(0, low-1), nil
}

// findPart returns the part with the accepted result of a row, or nil if the row has no
// result yet.
func (h *partIndex) findPart(ctx context.Context, row int64) (*store.Part, error) {
	if len(h.shards) == 0 {
		return nil, nil
	}
	i, err := h.findShard(ctx, row)
	if err != nil {
		return nil, err
	}
	first, err := h.firstRowOfShard(ctx, i)
	if err != nil || first > row {
		return nil, err
	}
	for at := range h.shards[i] {
		accepted, err := AcceptedRows(h.shards[i][at])
		if err != nil {
			return nil, err
		}
		if accepted.Contains(uint32(row - first)) {
			return &h.shards[i][at], nil
		}
	}
	return nil, nil
}

// firstRowFromPart returns the index of the first row of a part's shard. The part must be
// the first committed part of the shard, because only in that part all rows are
// accepted.
func (a *Archive) firstRowFromPart(ctx context.Context, part store.Part) (row int64, err error) {
	accepted, err := AcceptedRows(part)
	if err != nil {
		return 0, err
	}
	err = a.withObjects(ctx, func(files []results.Source) error {
		row, err = results.FirstRowIndex(files[0])
		return err
	}, part.Key)
	return row - int64(accepted.Minimum()), err
}

// AcceptedRows returns the accepted rows of a part, relative to the first row of the
// shard.
func AcceptedRows(part store.Part) (*roaring.Bitmap, error) {
	rows := roaring.New()
	if part.Complete || len(part.Accepted) == 0 {
		rows.AddRange(0, uint64(max(1, part.Rows)))
		return rows, nil
	}
	err := rows.UnmarshalBinary(part.Accepted)
	if err == nil && rows.IsEmpty() {
		err = errors.New("no row is accepted")
	}
	if err != nil {
		return nil, fmt.Errorf("read the rows of part %s: %w", part.Key, err)
	}
	return rows, nil
}

// listParts lists the committed parts of a job.
func (a *Archive) listParts(ctx context.Context, jobID string) ([]store.Part, error) {
	parts, err := a.store.ListParts(ctx, jobID)
	if err != nil {
		return nil, fmt.Errorf("list parts: %w", err)
	}
	return parts, nil
}

// groupByShard groups parts by shard. The parts must be ordered by shard, and within a shard
// by commit.
func groupByShard(parts []store.Part) [][]store.Part {
	var shards [][]store.Part
	for _, part := range parts {
		if n := len(shards); n > 0 && shards[n-1][0].Shard == part.Shard {
			shards[n-1] = append(shards[n-1], part)
		} else {
			shards = append(shards, []store.Part{part})
		}
	}
	return shards
}
