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
	// mergeBytes is the largest size of the decoded blocks that a merge has in memory.
	// 32 MiB is enough to read 100 parts of any size in one pass, or more parts if they
	// are small or follow each other. If there are too many parts, batches of them are
	// first merged into temporary files.
	mergeBytes = 32 << 20

	// mergeParts is the largest number of open parts. Each open part needs memory for
	// its footer, 16 KiB, and for the bucket's open object.
	mergeParts = 256

	// openAtOnce is the number of parts that are opened in parallel. Opening a part
	// from a bucket may take tens of milliseconds.
	openAtOnce = 16

	// blockBytes is the usual size of a block in a part, in bytes. See
	// columnar.TableConfig.
	blockBytes = 256 << 10

	// spliceBytes is the smallest average size of row groups, in bytes before
	// compression, at which parts are joined without decoding. With many tiny row
	// groups the result would be slow to read.
	spliceBytes = 4 << 20

	// checkEvery is the number of rows between two checks whether the context is
	// canceled.
	checkEvery = 4096
)

// PartSource is a part and the set of its accepted rows.
type PartSource struct {
	Source Source
	Accept *roaring.Bitmap // accepted rows, relative to First; nil: all rows of the part
	First  int64           // index of the first row of the shard
	// Release frees the resources that reading Source needs. It is called after the
	// last read, once or twice. It may be nil.
	Release func()
}

// MergeParts writes the accepted rows of a shard's parts to w, in order, as one complete
// part. Together the parts must have every row from First on, each once, and all rows
// in Accept. MergeParts returns the number of rows, and the caller compares it with the size
// of the shard. For any number of parts, MergeParts has at most mergeParts sources open, and
// at most mergeBytes and one row group in memory. For too many parts, it uses temporary
// files without names.
func MergeParts(ctx context.Context, w io.Writer, s Schema, parts []PartSource) (int64, error) {
	rows, err := mergeShard(ctx, w, s, parts)
	if err != nil {
		return 0, fmt.Errorf("merge %d parts: %w", len(parts), err)
	}
	return rows, nil
}

func mergeShard(ctx context.Context, w io.Writer, s Schema, parts []PartSource) (int64, error) {
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
	open, err := openOrMergeParts(ctx, s, waiting)
	defer closeParts(open)
	if err != nil {
		return 0, err
	}
	if joined := sortIfJoinable(open, first); len(joined) == 1 {
		return joined[0].table.Rows(), copyAll(ctx, w, joined[0].Source)
	} else if len(joined) > 1 {
		return spliceParts(ctx, w, s, joined)
	}
	return interleave(ctx, w, s, open, first)
}

// mergePart is a part that MergeParts or VisitPartRows reads. It is opened only when it is
// needed.
type mergePart struct {
	PartSource
	number    int             // position in the caller's list of parts; -1 for a temporary file
	table     *columnar.Table // nil until the part is open
	tries     *attemptsReader // the attempts at rows; nil if the part has none
	from      int64           // the first accepted row or an earlier row; known before the part is open
	low, high int64           // the first and the last accepted row; set when the part is open
	dense     bool            // the part has all rows from low to high, and all are accepted
	temporary *os.File        // file of a temporary part, or nil
}

// newPart returns a part that is not open yet. number is its position in the caller's
// list.
func newPart(number int, p PartSource) *mergePart {
	part := &mergePart{PartSource: p, number: number, from: p.First}
	if p.Accept != nil {
		part.from += int64(p.Accept.Minimum())
	}
	return part
}

// open reads the part's footer and sets the fields that depend on it. It returns an
// error if the part does not fit the schema or the shard.
func (p *mergePart) open(s Schema) error {
	t, err := openTable(p.Source)
	if err != nil {
		return err
	}
	if !slices.Equal(t.Columns(), s.columns()) {
		return fmt.Errorf("the part's columns differ from the columns of job %s", s.JobID)
	}
	if p.tries, err = newAttemptsReader(t); err != nil {
		return err
	}
	p.table = t
	p.low, p.high, p.dense = denseRange(t)
	switch {
	case t.Rows() == 0 && p.Accept != nil:
		return p.errMissingRows(0)
	case t.Rows() > 0 && (p.low < p.First || p.high-p.First > math.MaxUint32):
		return fmt.Errorf("the part's rows %d to %d are outside the shard that starts at row %d", p.low, p.high, p.First)
	case t.Rows() > 0 && p.Accept != nil:
		low, high := p.from, p.First+int64(p.Accept.Maximum())
		all := p.Accept.GetCardinality() == uint64(high-low+1)
		p.dense = p.dense && all && p.low == low && p.high == high
		p.low, p.high = low, high
	}
	return nil
}

// close frees the part's resources. It can be called again.
func (p *mergePart) close() {
	if p.temporary != nil {
		_ = p.temporary.Close() // the file was only read, so an error loses no data
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

// errMissingRows returns the error for a part that lacks some of its accepted rows.
// found is the number of accepted rows that the part has.
func (p *mergePart) errMissingRows(found uint64) error {
	return fmt.Errorf("part %d has only %d of its %d accepted rows", p.number, found, p.Accept.GetCardinality())
}

// blockSize estimates the size of the part's larger blocks, in bytes. A block ends with
// the row that fills it, so larger blocks exceed the average.
func (p *mergePart) blockSize() int64 {
	raw := p.table.UncompressedSize()
	return min(raw, max(blockBytes, raw/max(1, p.table.NumBlocks()))*5/4)
}

// sortIfJoinable returns the parts in order of rows if they can be joined without decoding,
// and nil otherwise. Each part must be dense, the parts must follow each other from row
// first on, and their row groups must be large enough. A single part may have small row
// groups.
func sortIfJoinable(parts []*mergePart, first int64) []*mergePart {
	parts = slices.Clone(parts)
	slices.SortFunc(parts, func(a, b *mergePart) int { return cmp.Compare(a.low, b.low) })
	raw, groups := int64(0), int64(0)
	for _, p := range parts {
		if !p.dense || p.low != first {
			return nil
		}
		first = p.high + 1
		raw += p.table.UncompressedSize()
		groups += int64(p.table.Groups())
	}
	if len(parts) > 1 && raw < groups*spliceBytes {
		return nil
	}
	return parts
}

// spliceParts concatenates the parts by copying their column chunks, and returns the number of
// rows.
func spliceParts(ctx context.Context, w io.Writer, s Schema, parts []*mergePart) (int64, error) {
	var rows int64
	err := writeSpliced(w, s, s.columns(), func(to *columnar.Splicer) error {
		for _, p := range parts {
			err := to.Append(ctx, p.table)
			if err == nil {
				err = copyAttempts(to, p.table)
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

// copyAll copies the whole file src to w.
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
