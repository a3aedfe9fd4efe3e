package ingest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"unsafe"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/shard"
)

// copyFinder finds the copies among the rows of a job: rows with the same text as an
// earlier row, the original. It examines the rows while they are read, and writes a
// list of the copies next to the shards.
type copyFinder struct {
	limit int               // maximum number of different texts to remember
	seen  map[digest]uint32 // by digest of the text: the first row with this text
	sets  []*roaring.Bitmap // by shard: positions of the copies in the shard; nil if there are none
	count int64             // number of copies found

	create   func() (blob.Writer, error) // opens the list for writing; nil if no list is written
	object   blob.Writer                 // the list of copies; nil before the first copy
	buffered *bufio.Writer
	out      *shard.RowCopiesWriter
	// rels has the copies in the current shard: row numbers in the job, until endShard
	// turns them into positions in the shard.
	rels      []uint32
	distances []int64 // for each copy in rels: its row number minus the row number of its original
}

// A digest stands for a text: it is the first half of the text's SHA-256. Among 100
// million rows, two different texts have the same digest with a probability below
// 10⁻²², and no client can construct such texts.
type digest [sha256.Size / 2]byte

// newCopyFinder returns a copyFinder that remembers up to limit different texts. create
// opens the list for writing; it is nil if no list is written.
func newCopyFinder(limit int, create func() (blob.Writer, error)) *copyFinder {
	return &copyFinder{limit: limit, seen: make(map[digest]uint32), create: create}
}

// add examines the next row and reports whether it is a copy. Only the first limit
// different texts are remembered: a row with another text is never a copy.
func (c *copyFinder) add(row int64, text string) bool {
	first, again := c.findFirst(row, text)
	if again {
		c.rels = append(c.rels, uint32(row)) //nolint:gosec // end makes this number the position in the shard
		c.distances = append(c.distances, row-first)
	}
	return again
}

// findFirst returns the first row with this text. again is true if that is an earlier row,
// and false if row itself is the first or its text is not remembered.
func (c *copyFinder) findFirst(row int64, text string) (first int64, again bool) {
	if row > math.MaxUint32 {
		return row, false
	}
	sum := sha256.Sum256(unsafe.Slice(unsafe.StringData(text), len(text)))
	d := digest(sum[:])
	if have, found := c.seen[d]; found {
		return int64(have), true
	}
	if len(c.seen) < c.limit {
		c.seen[d] = uint32(row)
	}
	return row, false
}

// endShard finishes shard n. first is the row number of the shard's first row. Call endShard once
// for each shard, in order.
func (c *copyFinder) endShard(n int, first int64) error {
	if len(c.rels) == 0 {
		c.sets = append(c.sets, nil)
		return nil
	}
	for i := range c.rels {
		c.rels[i] -= uint32(first) //nolint:gosec // a row number above 32 bits is never a copy
	}
	set := roaring.BitmapOf(c.rels...)
	set.RunOptimize()
	c.sets, c.count = append(c.sets, set), c.count+int64(len(c.rels))
	err := c.write(n, set)
	c.rels, c.distances = c.rels[:0], c.distances[:0]
	return err
}

// write appends the copies of shard n to the list. It creates the list before the first
// copy.
func (c *copyFinder) write(n int, set *roaring.Bitmap) (err error) {
	if c.create == nil {
		return nil
	}
	if c.object == nil {
		if c.object, err = c.create(); err != nil {
			return fmt.Errorf("create the list of copies: %w", err)
		}
		c.buffered = bufio.NewWriterSize(c.object, 64<<10)
		c.out = shard.NewRowCopiesWriter(c.buffered)
	}
	if err := c.out.Add(n, set, c.distances); err != nil {
		return fmt.Errorf("write the list of copies: %w", err)
	}
	return nil
}

// commit stores the list permanently, if there is a list.
func (c *copyFinder) commit() error {
	if c == nil || c.object == nil {
		return nil
	}
	err := c.out.Close()
	if err == nil {
		err = c.buffered.Flush()
	}
	if err == nil {
		_, err = c.object.Commit()
	}
	if err != nil {
		return fmt.Errorf("write the list of copies: %w", err)
	}
	return nil
}

// drop deletes the list, unless it is committed.
func (c *copyFinder) drop() {
	if c != nil && c.object != nil {
		c.object.Abort()
	}
}

// shardCopies returns the positions of the copies in shard n; nil if there are none.
func (c *copyFinder) shardCopies(n int) *roaring.Bitmap {
	if c == nil || n >= len(c.sets) {
		return nil
	}
	return c.sets[n]
}

// lookForCopies starts the search for copies, if the job wants equal rows to run once.
// In an estimate the copies are only counted: all rows of the sample run.
func (g *ingester) lookForCopies(ctx context.Context) {
	g.copies.drop()
	g.copies = nil
	switch {
	case !g.spec.Dedup:
	case g.spec.Estimate:
		g.copies = newCopyFinder(g.DedupRows, nil)
	default:
		g.copies = newCopyFinder(g.DedupRows, func() (blob.Writer, error) { return g.Bucket.Create(ctx, layout.RowCopiesKey(g.id), layout.Bytes) })
	}
}

// Copies has the copies among the rows of a job, and can open the stored list of them.
type Copies struct {
	*shard.RowCopies
	// memory is the list if the rows are in the job's record; nil if the list is an object
	// in the bucket.
	memory []byte
}

// Open opens the list of copies, which also has their originals.
func (c *Copies) Open(ctx context.Context, bucket blob.Bucket, job string) (blob.Object, error) {
	if c.memory != nil {
		return inMemory{bytes.NewReader(c.memory)}, nil
	}
	return bucket.Open(ctx, layout.RowCopiesKey(job))
}

// inMemory is an object whose content is in memory.
type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error          { return nil }
func (inMemory) Info() blob.ObjectInfo { return blob.ObjectInfo{} }

// ReadCopies returns the copies among the rows of a job; nil if there are none. m is
// the job's manifest.
func ReadCopies(ctx context.Context, bucket blob.Bucket, job string, spec *rowmill.Spec, m shard.Manifest) (*Copies, error) {
	if m.Copies == 0 || spec.Estimate {
		return nil, nil
	}
	c := &Copies{}
	if spec.Inline != nil {
		c.memory = inlineCopies(spec.Inline)
	}
	o, err := c.Open(ctx, bucket, job)
	if err != nil {
		return nil, fmt.Errorf("open the list of copies: %w", err)
	}
	defer o.Close()
	if c.RowCopies, err = shard.ReadRowCopies(o, o.Size(), m.Shards); err != nil {
		return nil, err
	}
	return c, nil
}

// inlineCopies returns the list of copies among rows that are in the job's record.
func inlineCopies(texts []string) []byte {
	var list bytes.Buffer
	c := newCopyFinder(len(texts), func() (blob.Writer, error) { return listWriter{&list}, nil })
	for row, text := range texts {
		c.add(int64(row), text)
	}
	if err := c.endShard(0, 0); err != nil || c.commit() != nil {
		panic("writing to memory fails")
	}
	return list.Bytes()
}

// listWriter is a blob.Writer that writes to memory.
type listWriter struct{ *bytes.Buffer }

func (listWriter) Commit() (blob.ObjectInfo, error) { return blob.ObjectInfo{}, nil }
func (listWriter) Abort()                           {}
