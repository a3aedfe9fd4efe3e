package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// holdings say which part of a job holds a row, by the parts' records: of
// thousands none is opened that does not, but one to know where a shard begins.
type holdings struct {
	*Archive
	shards [][]store.Part
	firsts map[int]int64 // rows with which shards begin, as far as they were asked for
}

func (a *Archive) holdings(ctx context.Context, jobID string) (*holdings, error) {
	parts, err := a.parts(ctx, jobID)
	if err != nil {
		return nil, err
	}
	return &holdings{a, byShard(parts), map[int]int64{}}, nil
}

// first is the first row of the i-th of the shards.
func (h *holdings) first(ctx context.Context, i int) (int64, error) {
	row, known := h.firsts[i]
	if known {
		return row, nil
	}
	row, err := h.firstOfShard(ctx, h.shards[i][0])
	if err == nil {
		h.firsts[i] = row
	}
	return row, err
}

// from is the index of the last shard that begins at the row or before it, or
// of the first of all.
func (h *holdings) from(ctx context.Context, row int64) (int, error) {
	low, high := 0, len(h.shards) // of those that begin behind the row
	for low < high {
		middle := (low + high) / 2
		first, err := h.first(ctx, middle)
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

// holder is the part that holds the row and counts; nil for none.
func (h *holdings) holder(ctx context.Context, row int64) (*store.Part, error) {
	if len(h.shards) == 0 {
		return nil, nil
	}
	i, err := h.from(ctx, row)
	if err != nil {
		return nil, err
	}
	first, err := h.first(ctx, i)
	if err != nil || first > row {
		return nil, err
	}
	for at := range h.shards[i] {
		accepted, err := acceptedRows(h.shards[i][at])
		if err != nil {
			return nil, err
		}
		if accepted.Contains(uint32(row - first)) {
			return &h.shards[i][at], nil
		}
	}
	return nil, nil
}

// firstOfShard is the first row of the shard of a part that was committed
// before all others of it: then all its rows are accepted.
func (a *Archive) firstOfShard(ctx context.Context, part store.Part) (row int64, err error) {
	accepted, err := acceptedRows(part)
	if err != nil {
		return 0, err
	}
	err = a.withObjects(ctx, func(files []results.Source) error {
		row, err = results.FirstRow(files[0])
		return err
	}, part.Key)
	return row - int64(accepted.Minimum()), err
}

// acceptedRows are the rows that a part is accepted for, within its shard.
func acceptedRows(part store.Part) (*roaring.Bitmap, error) {
	rows := roaring.New()
	if part.Complete || len(part.Accepted) == 0 {
		rows.AddRange(0, uint64(max(1, part.Rows)))
		return rows, nil
	}
	err := rows.UnmarshalBinary(part.Accepted)
	if err == nil && rows.IsEmpty() {
		err = errors.New("there are none")
	}
	if err != nil {
		return nil, fmt.Errorf("read the rows of part %s: %w", part.Key, err)
	}
	return rows, nil
}

func (a *Archive) parts(ctx context.Context, jobID string) ([]store.Part, error) {
	parts, err := a.store.ListParts(ctx, jobID)
	if err != nil {
		return nil, fmt.Errorf("list parts: %w", err)
	}
	return parts, nil
}

// byShard groups parts, which are in the order of their shards, and within
// one in that of commit.
func byShard(parts []store.Part) [][]store.Part {
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
