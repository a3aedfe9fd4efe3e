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

// copies finds rows that have the same text as an earlier row, while the rows of a job
// are read, and writes a list of these copies next to the shards.
type copies struct {
	limit int               // number of different texts that are remembered
	seen  map[digest]uint32 // by text: the first row with it
	sets  []*roaring.Bitmap // by shard: its copies; nil if there are none
	count int64             // number of copies

	create    func() (blob.Writer, error) // opens the list for writing; nil if no list is written
	object    blob.Writer                 // nil before the first copy
	buffered  *bufio.Writer
	out       *shard.CopiesWriter
	rels      []uint32 // rows of the current shard that are copies: numbers in the job until end, which makes them positions
	distances []int64  // by copy in rels: number of rows from the original to the copy
}

// A digest identifies a text: it is the first half of the text's SHA-256. Among 100
// million rows two different texts have the same digest with a probability below 10⁻²²,
// and no one can construct such texts.
type digest [sha256.Size / 2]byte

func newCopies(limit int, create func() (blob.Writer, error)) *copies {
	return &copies{limit: limit, seen: make(map[digest]uint32), create: create}
}

// add takes the text of the next row and reports whether the row is a copy. Only the first
// limit different texts are remembered: rows with other texts run, even if they are equal.
func (c *copies) add(row int64, text string) bool {
	first, again := c.first(row, text)
	if again {
		c.rels = append(c.rels, uint32(row)) //nolint:gosec // end makes this number the position in the shard
		c.distances = append(c.distances, row-first)
	}
	return again
}

// first returns the first row with this text. again is false if no earlier row with the
// text is remembered.
func (c *copies) first(row int64, text string) (first int64, again bool) {
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

// end ends shard n and returns the shard's copies; nil if there are none. first is the
// number of the shard's first row. Call end for each shard.
func (c *copies) end(n int, first int64) (*roaring.Bitmap, error) {
	if len(c.rels) == 0 {
		c.sets = append(c.sets, nil)
		return nil, nil
	}
	for i := range c.rels {
		c.rels[i] -= uint32(first) //nolint:gosec // larger row numbers are never copies
	}
	set := roaring.BitmapOf(c.rels...)
	set.RunOptimize()
	c.sets, c.count = append(c.sets, set), c.count+int64(len(c.rels))
	err := c.write(n, set)
	c.rels, c.distances = c.rels[:0], c.distances[:0]
	return set, err
}

// write adds the copies of shard n to the list.
func (c *copies) write(n int, set *roaring.Bitmap) (err error) {
	if c.create == nil {
		return nil
	}
	if c.object == nil {
		if c.object, err = c.create(); err != nil {
			return fmt.Errorf("create the list of copies: %w", err)
		}
		c.buffered = bufio.NewWriterSize(c.object, 64<<10)
		c.out = shard.NewCopiesWriter(c.buffered)
	}
	if err := c.out.Add(n, set, c.distances); err != nil {
		return fmt.Errorf("write the list of copies: %w", err)
	}
	return nil
}

// commit makes the list durable, if there is one.
func (c *copies) commit() error {
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

// drop discards a list that is not committed.
func (c *copies) drop() {
	if c != nil && c.object != nil {
		c.object.Abort()
	}
}

// of returns the copies in shard n.
func (c *copies) of(n int) *roaring.Bitmap {
	if c == nil || n >= len(c.sets) {
		return nil
	}
	return c.sets[n]
}

// lookForCopies starts to look for equal rows, if the job wants this. For an estimate
// copies are only counted: all rows of the sample run.
func (g *ingester) lookForCopies(ctx context.Context) {
	g.copies.drop()
	g.copies = nil
	switch {
	case !g.spec.Dedup:
	case g.spec.Estimate:
		g.copies = newCopies(g.DedupRows, nil)
	default:
		g.copies = newCopies(g.DedupRows, func() (blob.Writer, error) { return g.Bucket.Create(ctx, layout.Copies(g.id), layout.Bytes) })
	}
}

// Copies has the copies among the rows of a job, and gives access to the stored list.
type Copies struct {
	*shard.Copies
	memory []byte // the list for rows that are in the record; nil if the list is an object
}

// Open opens the list of copies and their originals.
func (c *Copies) Open(ctx context.Context, bucket blob.Bucket, job string) (blob.Object, error) {
	if c.memory != nil {
		return inMemory{bytes.NewReader(c.memory)}, nil
	}
	return bucket.Open(ctx, layout.Copies(job))
}

// inMemory is a list in memory with the methods of an object.
type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error    { return nil }
func (inMemory) Info() blob.Info { return blob.Info{} }

// ReadCopies returns the copies among the rows of a job with these shards; nil if there
// are none.
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
	if c.Copies, err = shard.ReadCopies(o, o.Size(), m.Shards); err != nil {
		return nil, err
	}
	return c, nil
}

// inlineCopies returns the list of copies among rows that are in a record.
func inlineCopies(texts []string) []byte {
	var list bytes.Buffer
	c := newCopies(len(texts), func() (blob.Writer, error) { return listWriter{&list}, nil })
	for row, text := range texts {
		c.add(int64(row), text)
	}
	if _, err := c.end(0, 0); err != nil || c.commit() != nil {
		panic("writing to memory fails")
	}
	return list.Bytes()
}

// listWriter writes to memory.
type listWriter struct{ *bytes.Buffer }

func (listWriter) Commit() (blob.Info, error) { return blob.Info{}, nil }
func (listWriter) Abort()                     {}
