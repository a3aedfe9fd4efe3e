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
	// 100 parts of any size, or more that are small or lie one behind the
	// other, in one pass; beyond that as many as fit are merged into a
	// temporary file, and so on.
	mergeBytes = 32 << 20

	// mergeParts bounds the parts that are open at a time: each takes its
	// footer, 16 KiB, and what the bucket needs for an open object.
	mergeParts = 256

	// openAtOnce is how many parts are opened at the same time: a bucket may
	// take tens of milliseconds for each.
	openAtOnce = 16

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
	// Release lets go of what reading Source holds; it is called when no more
	// of it will be read, once or twice. nil where reading holds nothing.
	Release func()
}

// Merge writes the rows that count of a shard's parts, in order, as one
// complete part. They must be every row from First on, each once, and all that
// Accept names; how many the shard has is for the caller to compare with the
// returned number. It reads at most mergeParts sources at a time, and holds
// mergeBytes and one row group, whatever the number of parts; where the parts
// are more than that it uses unnamed temporary files.
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
	var waiting []*mergePart
	for i, p := range parts {
		if p.First != first {
			return 0, fmt.Errorf("part %d is of the shard that starts at row %d, part 0 of that at %d", i, p.First, first)
		}
		if p.Accept == nil || !p.Accept.IsEmpty() {
			waiting = append(waiting, newPart(i, p))
		}
	}
	open, err := gather(ctx, s, waiting)
	defer closeParts(open)
	if err != nil {
		return 0, err
	}
	if joined := joinable(open, first); len(joined) == 1 {
		return joined[0].table.Rows(), copyAll(ctx, w, joined[0].Source)
	} else if len(joined) > 1 {
		return join(ctx, w, s, joined)
	}
	return interleave(ctx, w, s, open, first)
}

// mergePart is a part, open or not.
type mergePart struct {
	PartSource
	number    int             // among the caller's parts; -1 for a temporary file
	table     *columnar.Table // nil until it is open
	tries     *triesReader
	from      int64 // no row before it counts; known before it is open
	low, high int64 // the first and the last row that counts, once it is open
	dense     bool  // its rows are all those between low and high, and all count
	temporary *os.File
}

// newPart is a part that is not open yet.
func newPart(number int, p PartSource) *mergePart {
	part := &mergePart{PartSource: p, number: number, from: p.First}
	if p.Accept != nil {
		part.from += int64(p.Accept.Minimum())
	}
	return part
}

// open reads the part's footer.
func (p *mergePart) open(s Schema) error {
	t, err := open(p.Source)
	if err != nil {
		return err
	}
	if !slices.Equal(t.Columns(), s.columns()) {
		return fmt.Errorf("its columns are not those of job %s", s.JobID)
	}
	if p.tries, err = newTriesReader(t); err != nil {
		return err
	}
	p.table = t
	p.low, p.high, p.dense = denseRange(t)
	switch {
	case t.Rows() == 0 && p.Accept != nil:
		return p.lacking(0)
	case t.Rows() > 0 && (p.low < p.First || p.high-p.First > math.MaxUint32):
		return fmt.Errorf("its rows %d to %d are not of the shard that starts at row %d", p.low, p.high, p.First)
	case t.Rows() > 0 && p.Accept != nil:
		low, high := p.from, p.First+int64(p.Accept.Maximum())
		all := p.Accept.GetCardinality() == uint64(high-low+1)
		p.dense = p.dense && all && p.low == low && p.high == high
		p.low, p.high = low, high
	}
	return nil
}

// close lets go of the part.
func (p *mergePart) close() {
	if p.temporary != nil {
		_ = p.temporary.Close() // it was only read since
	}
	if p.Release != nil {
		p.Release()
	}
	p.table, p.tries = nil, nil
}

func closeParts(parts []*mergePart) {
	for _, p := range parts {
		p.close()
	}
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
		if err := copyTries(splice, p.table); err != nil {
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
