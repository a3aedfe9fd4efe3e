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

	"github.com/rowmill/rowmill/internal/columnar"
)

const (
	// mergeBytes limits the decoded blocks that a merge holds. 32 MiB is enough
	// to read 100 parts of any size in one pass, or more parts if they are
	// small or follow each other. If there are more parts, batches that fit are
	// first merged into temporary files.
	mergeBytes = 32 << 20

	// mergeParts limits the number of open parts. Each needs memory for its
	// footer, 16 KiB, and for the bucket's open object.
	mergeParts = 256

	// openAtOnce is how many parts are opened in parallel: a bucket may take
	// tens of milliseconds for each.
	openAtOnce = 16

	// blockBytes is the usual size of a part's block, see columnar.TableConfig.
	blockBytes = 256 << 10

	// spliceBytes is the smallest average size of row groups, before
	// compression, at which parts are joined without decoding. With many tiny
	// row groups the result would be slow to read.
	spliceBytes = 4 << 20

	// checkEvery is the number of rows between checks of the context.
	checkEvery = 4096
)

// PartSource is a part and its accepted rows.
type PartSource struct {
	Source Source
	Accept *roaring.Bitmap // accepted rows, relative to First; nil for all
	First  int64           // the first row of the shard
	// Release frees the resources that reading Source holds. It is called once
	// or twice, after the last read. It may be nil.
	Release func()
}

// Merge writes the accepted rows of a shard's parts, in order, as one complete
// part. Together the parts must have every row from First on, each once, and
// all rows in Accept. Merge returns the number of rows, and the caller compares
// it with the size of the shard. Merge opens at most mergeParts sources at a
// time. It holds at most mergeBytes and one row group, for any number of parts:
// with too many parts it uses temporary files without names.
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
			return 0, fmt.Errorf("part %d is of the shard that starts at row %d, and part 0 is of the shard that starts at row %d", i, p.First, first)
		}
		if p.Accept == nil || !p.Accept.IsEmpty() {
			waiting = append(waiting, newPart(i, p))
		}
	}
	open, err := reduceParts(ctx, s, waiting)
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

// mergePart is a part that Merge or EachOfParts reads. It is opened when it is needed.
type mergePart struct {
	PartSource
	number    int             // position in the caller's list; -1 for a temporary file
	table     *columnar.Table // nil until the part is open
	tries     *triesReader
	from      int64 // the first accepted row or an earlier row; known before the part is open
	low, high int64 // the first and the last accepted row; set when the part is open
	dense     bool  // the part has all rows from low to high, and all are accepted
	temporary *os.File
}

// newPart returns a part that is not open yet.
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
		return fmt.Errorf("its columns differ from the columns of job %s", s.JobID)
	}
	if p.tries, err = newTriesReader(t); err != nil {
		return err
	}
	p.table = t
	p.low, p.high, p.dense = denseRange(t)
	switch {
	case t.Rows() == 0 && p.Accept != nil:
		return p.errMissingRows(0)
	case t.Rows() > 0 && (p.low < p.First || p.high-p.First > math.MaxUint32):
		return fmt.Errorf("its rows %d to %d are outside the shard that starts at row %d", p.low, p.high, p.First)
	case t.Rows() > 0 && p.Accept != nil:
		low, high := p.from, p.First+int64(p.Accept.Maximum())
		all := p.Accept.GetCardinality() == uint64(high-low+1)
		p.dense = p.dense && all && p.low == low && p.high == high
		p.low, p.high = low, high
	}
	return nil
}

// close frees the part's resources.
func (p *mergePart) close() {
	if p.temporary != nil {
		_ = p.temporary.Close() // only read, so an error loses nothing
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

// errMissingRows returns the error for a part in which only some of the accepted rows
// were found.
func (p *mergePart) errMissingRows(found uint64) error {
	return fmt.Errorf("part %d has only %d of its %d accepted rows", p.number, found, p.Accept.GetCardinality())
}

// blockSize estimates the size of the part's larger blocks in bytes. They are
// larger than the average, because a block ends with the row that fills it.
func (p *mergePart) blockSize() int64 {
	raw := p.table.RawBytes()
	return min(raw, max(blockBytes, raw/max(1, p.table.Blocks()))*5/4)
}

// joinable returns the parts in order if they can be joined without decoding:
// each part is dense, the parts follow each other from row first on, and their
// row groups are large enough. A single part may have small row groups.
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

// join concatenates the parts by copying their column chunks.
func join(ctx context.Context, w io.Writer, s Schema, parts []*mergePart) (int64, error) {
	var rows int64
	err := splice(w, s, s.columns(), func(to *columnar.Splicer) error {
		for _, p := range parts {
			err := to.Append(ctx, p.table)
			if err == nil {
				err = copyTries(to, p.table)
			}
			if err != nil {
				return fmt.Errorf("part %d: %w", p.number, err)
			}
		}
		rows = to.Rows()
		return nil
	})
	return rows, err
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
