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

// copies finds out, while the rows of a job are read, which have the text of an
// earlier one, and writes that beside the shards.
type copies struct {
	limit int               // rows that are remembered
	seen  map[digest]uint32 // by text: the first row that had it
	sets  []*roaring.Bitmap // by shard: which rows are copies; nil for none
	count int64             // of them

	create    func() (blob.Writer, error)
	object    blob.Writer // nil before the first copy
	buffered  *bufio.Writer
	out       *shard.CopiesWriter
	rels      []uint32 // of the shard that is being cut
	distances []int64
}

// A digest stands for a text: the first half of its SHA-256. Among 100 million rows
// two that differ have the same one with a chance below 10⁻²², and nobody can make
// two that have.
type digest [sha256.Size / 2]byte

func newCopies(limit int, create func() (blob.Writer, error)) *copies {
	return &copies{limit: limit, seen: make(map[digest]uint32), create: create}
}

// add takes in the text of a row and reports whether it is a copy. The first limit
// texts are remembered; rows of others just run.
func (c *copies) add(row int64, text string) bool {
	first, again := c.first(row, text)
	if again {
		c.rels = append(c.rels, uint32(row)) //nolint:gosec // made its place in the shard by end
		c.distances = append(c.distances, row-first)
	}
	return again
}

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

// end ends shard n and returns its copies, nil for none. It must be called for each
// shard.
func (c *copies) end(n int, first int64) (*roaring.Bitmap, error) {
	if len(c.rels) == 0 {
		c.sets = append(c.sets, nil)
		return nil, nil
	}
	for i := range c.rels {
		c.rels[i] -= uint32(first) //nolint:gosec // no row above is a copy
	}
	set := roaring.BitmapOf(c.rels...)
	set.RunOptimize()
	c.sets, c.count = append(c.sets, set), c.count+int64(len(c.rels))
	err := c.write(n, set)
	c.rels, c.distances = c.rels[:0], c.distances[:0]
	return set, err
}

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

// commit makes what was written durable, if anything was.
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

// drop lets go of what was written and not committed.
func (c *copies) drop() {
	if c != nil && c.object != nil {
		c.object.Abort()
	}
}

// of are the copies of shard n.
func (c *copies) of(n int) *roaring.Bitmap {
	if c == nil || n >= len(c.sets) {
		return nil
	}
	return c.sets[n]
}

// lookForCopies begins to look for equal rows, where the job wants that. An
// estimate is told how many there are, and no more: rows of its sample all run.
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

// Copies are which rows of a job are copies of others, and where that is read from.
type Copies struct {
	*shard.Copies
	memory []byte // of rows that ride in the record; else it is an object
}

// Open opens what says of which rows they are copies.
func (c *Copies) Open(ctx context.Context, bucket blob.Bucket, job string) (blob.Object, error) {
	if c.memory != nil {
		return inMemory{bytes.NewReader(c.memory)}, nil
	}
	return bucket.Open(ctx, layout.Copies(job))
}

// inMemory is an object that is none.
type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error    { return nil }
func (inMemory) Info() blob.Info { return blob.Info{} }

// ReadCopies returns which rows of a job with these shards are copies of others; nil
// where none is.
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

// inlineCopies is the list of copies among rows that ride in a record.
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
