package results

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/columnar"
)

const (
	// mergeBytes bounds the decoded blocks that a merge holds. 32 MiB read
	// 100 parts of any size, or more that are small, in one pass; beyond that
	// as many as fit are merged into a temporary file, and so on.
	mergeBytes = 32 << 20

	// blockBytes is what a block of a part takes at least, see
	// columnar.TableConfig.
	blockBytes = 256 << 10

	// spliceBytes is the least average size of row groups, before
	// compression, at which parts are joined without decoding them: many tiny
	// row groups would make the result slow to read.
	spliceBytes = 4 << 20

	// checkEvery is the number of rows between looks at the context.
	checkEvery = 4096
)

// PartSource is a part and the rows of it that count.
type PartSource struct {
	Source Source
	Accept *roaring.Bitmap // rows that count, relative to First; nil for all
	First  int64           // the first row of the shard
}

// Merge writes the rows that count of a shard's parts, in order, as one
// complete part. They must be every row from First on, each once, and all that
// Accept names; how many the shard has is for the caller to compare with the
// returned number. It holds mergeBytes and one row group, whatever the number
// of parts, and uses unnamed temporary files where the parts' blocks do not
// fit.
func Merge(ctx context.Context, w io.Writer, s Schema, parts []PartSource) (int64, error) {
	rows, err := merge(ctx, w, s, parts)
	if err != nil {
		return 0, fmt.Errorf("merge %d parts: %w", len(parts), err)
	}
	return rows, nil
}

func merge(ctx context.Context, w io.Writer, s Schema, parts []PartSource) (int64, error) {
	if err := s.Validate(); err != nil {
		return 0, err
	}
	if len(parts) == 0 {
		return 0, fmt.Errorf("there is nothing to merge")
	}
	first := parts[0].First
	var open []*mergePart
	for i, p := range parts {
		if p.First != first {
			return 0, fmt.Errorf("part %d is of the shard that starts at row %d, part 0 of that at %d", i, p.First, first)
		}
		part, err := openPart(s, i, p)
		if err != nil {
			return 0, fmt.Errorf("part %d: %w", i, err)
		}
		if part.table.Rows() > 0 && (p.Accept == nil || !p.Accept.IsEmpty()) {
			open = append(open, part)
		} else if p.Accept != nil && !p.Accept.IsEmpty() {
			return 0, part.lacking(0)
		}
	}
	if joined := joinable(open, first); len(joined) == 1 {
		return joined[0].table.Rows(), copyAll(ctx, w, joined[0].Source)
	} else if len(joined) > 1 {
		return join(ctx, w, s, joined)
	}
	open, err := reduce(ctx, s, open)
	defer closeTemporary(open)
	if err != nil {
		return 0, err
	}
	return interleave(ctx, w, s, open, first)
}

// mergePart is an open part.
type mergePart struct {
	PartSource
	number    int // among the caller's parts; -1 for a temporary file
	table     *columnar.Table
	low, high int64 // first and last row
	dense     bool  // every row between low and high is there and counts
	temporary *os.File
}

func openPart(s Schema, number int, p PartSource) (*mergePart, error) {
	t, err := open(p.Source)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(t.Columns(), s.columns()) {
		return nil, fmt.Errorf("its columns are not those of job %s", s.JobID)
	}
	part := &mergePart{PartSource: p, number: number, table: t}
	if part.low, part.high, part.dense = denseRange(t); t.Rows() == 0 {
		return part, nil
	}
	if part.low < p.First || part.high-p.First > math.MaxUint32 {
		return nil, fmt.Errorf("its rows %d to %d are not of the shard that starts at row %d", part.low, part.high, p.First)
	}
	if p.Accept != nil && part.dense {
		from, to := uint64(part.low-p.First), uint64(part.high-p.First)
		all := p.Accept.GetCardinality() == to-from+1
		part.dense = all && uint64(p.Accept.Minimum()) == from && uint64(p.Accept.Maximum()) == to
	}
	return part, nil
}

// lacking is the error for a part that has only found of its accepted rows.
func (p *mergePart) lacking(found uint64) error {
	return fmt.Errorf("part %d has only %d of the %d rows it was accepted for", p.number, found, p.Accept.GetCardinality())
}

// held estimates the bytes of the part's larger blocks: somewhat more than
// the average, since a block ends with the row that fills it.
func (p *mergePart) held() int64 {
	raw := p.table.RawBytes()
	return min(raw, max(blockBytes, raw/max(1, p.table.Blocks()))*5/4)
}

// joinable returns the parts in order if they can be joined without decoding:
// each dense, one behind the other from first on, in row groups of fair size.
// A single such part needs no fair size.
func joinable(parts []*mergePart, first int64) []*mergePart {
	parts = slices.Clone(parts)
	slices.SortFunc(parts, func(a, b *mergePart) int { return cmp.Compare(a.low, b.low) })
	raw, groups := int64(0), int64(0)
	for _, p := range parts {
		if !p.dense || p.low != first {
			return nil
		}
		first = p.high + 1
		raw += p.table.RawBytes()
		groups += int64(p.table.Groups())
	}
	if len(parts) > 1 && raw < groups*spliceBytes {
		return nil
	}
	return parts
}

// join copies the parts' column chunks one behind the other.
func join(ctx context.Context, w io.Writer, s Schema, parts []*mergePart) (int64, error) {
	splice, err := columnar.NewSplicer(w, s.columns(), s.meta())
	if err != nil {
		return 0, err
	}
	for _, p := range parts {
		if err := splice.Append(ctx, p.table); err != nil {
			return 0, fmt.Errorf("part %d: %w", p.number, err)
		}
	}
	return splice.Rows(), splice.Close()
}

// copyAll copies a whole file.
func copyAll(ctx context.Context, w io.Writer, src Source) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n, err := io.Copy(w, io.NewSectionReader(src, 0, src.Size()))
	if err == nil && n < src.Size() {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("copy part: %w", err)
	}
	return nil
}

// reduce merges parts into temporary files until the blocks of what is left
// fit mergeBytes. What it returns may need closeTemporary even on error.
func reduce(ctx context.Context, s Schema, parts []*mergePart) ([]*mergePart, error) {
	for {
		total := int64(0)
		for _, p := range parts {
			total += p.held()
		}
		if total <= mergeBytes || len(parts) <= 2 {
			return parts, nil
		}
		var next []*mergePart
		for len(parts) > 0 {
			held, n := int64(0), 0
			for n < len(parts) && (n < 2 || held+parts[n].held() <= mergeBytes) {
				held += parts[n].held()
				n++
			}
			p, err := mergeTemporary(ctx, s, parts[:n])
			closeTemporary(parts[:n])
			parts = parts[n:]
			if err != nil {
				closeTemporary(parts)
				return next, err
			}
			next = append(next, p)
		}
		parts = next
	}
}

// mergeTemporary merges parts into a file that has no name any more.
func mergeTemporary(ctx context.Context, s Schema, parts []*mergePart) (_ *mergePart, err error) {
	f, err := os.CreateTemp("", "rowmill-merge-*")
	if err != nil {
		return nil, fmt.Errorf("temporary file: %w", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close() // the first error says more
		}
	}()
	if err := os.Remove(f.Name()); err != nil {
		return nil, fmt.Errorf("temporary file: %w", err)
	}
	if _, err := interleave(ctx, f, s, parts, -1); err != nil {
		return nil, err
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, fmt.Errorf("temporary file: %w", err)
	}
	p, err := openPart(s, -1, PartSource{Source: io.NewSectionReader(f, 0, size), First: parts[0].First})
	if err != nil {
		return nil, fmt.Errorf("temporary file: %w", err)
	}
	p.temporary = f
	return p, nil
}

// closeTemporary closes the parts that are temporary files.
func closeTemporary(parts []*mergePart) {
	for _, p := range parts {
		if p.temporary != nil {
			_ = p.temporary.Close() // it was only read since
		}
	}
}
