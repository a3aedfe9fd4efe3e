package shard

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"sort"

	"github.com/RoaringBitmap/roaring/v2"
)

// A row with the same text as an earlier row is a copy of that row, its original. A
// copy is not run; it gets the answer of its original. An object beside the shards
// lists the copies: a magic, a section for each shard that has copies, in order, and
// a last section.
//
//	section  shard (4 bytes), bytes of the set (4), bytes of the distances (4),
//	         CRC-32C of these three and of the rest of the section (4); the set, a
//	         RoaringBitmap of the copies by position in the shard; for each copy, in
//	         order, an uvarint: how many rows back its original is
//	last     a section without set and distances, of shard 2³²-1
//
// Numbers are little-endian. The object only saves work: a job without this object has
// the same results.
const (
	copiesMagic   = "RMCOPY01"
	copiesHeader  = 4 + 4 + 4 + 4
	copiesLast    = math.MaxUint32
	copiesSection = 1 << 30 // largest section in bytes, far above the size that a shard can need
)

// A RowCopiesWriter writes the list of a job's copies, shard by shard.
type RowCopiesWriter struct {
	w       io.Writer
	section []byte
	err     error // the first error; all later calls return it
}

// NewRowCopiesWriter returns a RowCopiesWriter that writes to w, and writes the magic bytes.
func NewRowCopiesWriter(w io.Writer) *RowCopiesWriter {
	_, err := io.WriteString(w, copiesMagic)
	return &RowCopiesWriter{w: w, err: err}
}

// Add writes the copies in shard n. Each call needs a higher n than the call before.
// rows has the positions of the copies in the shard. distances has, for each copy, how
// many rows back its original is.
func (c *RowCopiesWriter) Add(n int, rows *roaring.Bitmap, distances []int64) error {
	if c.err != nil {
		return c.err
	}
	set, err := rows.ToBytes()
	if err != nil {
		return fmt.Errorf("encode the copies of shard %d: %w", n, err)
	}
	c.section = append(append(c.section[:0], make([]byte, copiesHeader)...), set...)
	for _, d := range distances {
		c.section = binary.AppendUvarint(c.section, uint64(d)) //nolint:gosec // an original comes before its copies
	}
	return c.write(uint32(n), len(set)) //nolint:gosec // a manifest lists the shards
}

// Close writes the last section. It does not close the underlying writer.
func (c *RowCopiesWriter) Close() error {
	if c.err != nil {
		return c.err
	}
	c.section = append(c.section[:0], make([]byte, copiesHeader)...)
	return c.write(copiesLast, 0)
}

func (c *RowCopiesWriter) write(n uint32, set int) error {
	le := binary.LittleEndian
	le.PutUint32(c.section, n)
	le.PutUint32(c.section[4:], uint32(set))                             //nolint:gosec // a set of positions in a shard is small
	le.PutUint32(c.section[8:], uint32(len(c.section)-copiesHeader-set)) //nolint:gosec // a section is small
	le.PutUint32(c.section[12:], copiesSum(c.section))
	_, c.err = c.w.Write(c.section)
	return c.err
}

// copiesSum returns the checksum of a section of the list.
func copiesSum(section []byte) uint32 {
	return crc32.Update(crc32.Checksum(section[:copiesHeader-4], castagnoli), castagnoli, section[copiesHeader:])
}

// RowCopies is the list of the copies of a job, in memory. It needs about one bit per copy
// and one bit per original.
type RowCopies struct {
	shards  []ManifestEntry
	byShard []shardCopies // copies in each shard, by number of the shard
	rows    int64
}

type shardCopies struct {
	rows   *roaring.Bitmap // copies in the shard, as positions; nil for none
	needed *roaring.Bitmap // originals in the shard, as positions; nil for none
	last   int             // number of the last shard with an original of a copy in this shard
	at     int64           // offset of the distances in the object
	size   int             // bytes of the distances
}

// ReadRowCopies reads which rows of shards are copies from an object of size bytes.
func ReadRowCopies(r io.ReaderAt, size int64, shards []ManifestEntry) (*RowCopies, error) {
	c := &RowCopies{shards: shards, byShard: make([]shardCopies, len(shards))}
	head := make([]byte, len(copiesMagic))
	if _, err := r.ReadAt(head, 0); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read copies: %w", err)
	}
	if string(head) != copiesMagic {
		return nil, fmt.Errorf("%w: it does not begin with the magic bytes of a list of copies", ErrCorrupt)
	}
	for at, before := int64(len(copiesMagic)), -1; ; {
		section, err := readSection(r, at, size)
		if err != nil {
			return nil, err
		}
		n := binary.LittleEndian.Uint32(section)
		at += int64(len(section))
		if n == copiesLast && len(section) == copiesHeader && at == size {
			return c, nil
		}
		if int64(n) >= int64(len(shards)) || int(n) <= before {
			return nil, fmt.Errorf("%w: the list of copies has shard %d after shard %d; the job has %d shards", ErrCorrupt, n, before, len(shards))
		}
		before = int(n)
		if err := c.addSection(before, section, at); err != nil {
			return nil, err
		}
	}
}

// readSection reads the section at offset at, and checks its length and checksum.
func readSection(r io.ReaderAt, at, size int64) ([]byte, error) {
	head := make([]byte, copiesHeader)
	if size-at < copiesHeader {
		return nil, fmt.Errorf("%w: the list of copies ends early", ErrCorrupt)
	}
	if _, err := r.ReadAt(head, at); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read copies: %w", err)
	}
	body := int64(binary.LittleEndian.Uint32(head[4:])) + int64(binary.LittleEndian.Uint32(head[8:]))
	if body > copiesSection || body > size-at-copiesHeader {
		return nil, fmt.Errorf("%w: the list of copies ends early", ErrCorrupt)
	}
	section := append(head, make([]byte, body)...)
	if _, err := r.ReadAt(section[copiesHeader:], at+copiesHeader); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read copies: %w", err)
	}
	if binary.LittleEndian.Uint32(head[12:]) != copiesSum(section) {
		return nil, fmt.Errorf("%w: bad checksum of copies", ErrCorrupt)
	}
	return section, nil
}

// addSection adds the copies of shard n from a section that ends at offset end.
func (c *RowCopies) addSection(n int, section []byte, end int64) error {
	set := int(binary.LittleEndian.Uint32(section[4:]))
	distances := section[copiesHeader+set:]
	rows := roaring.New()
	if err := rows.UnmarshalBinary(section[copiesHeader : copiesHeader+set]); err != nil {
		return fmt.Errorf("%w: copies of shard %d: %w", ErrCorrupt, n, err)
	}
	if rows.IsEmpty() || int64(rows.Maximum()) >= int64(c.shards[n].Rows) {
		return fmt.Errorf("%w: the list of copies has rows that shard %d does not have", ErrCorrupt, n)
	}
	of := &c.byShard[n]
	of.rows, of.at, of.size = rows, end-int64(len(distances)), len(distances)
	c.rows += int64(rows.GetCardinality()) //nolint:gosec // positions have 32 bits
	originals, err := c.originals(n, distances)
	if err != nil {
		return err
	}
	var rels []uint32
	last := -1
	flushNeeded := func() {
		if len(rels) == 0 {
			return
		}
		if c.byShard[last].needed == nil {
			c.byShard[last].needed = roaring.New()
		}
		c.byShard[last].needed.AddMany(rels)
		rels = rels[:0]
	}
	for _, row := range originals {
		m := c.ShardOf(row)
		if m < 0 || c.isCopy(m, row) {
			return fmt.Errorf("%w: a row of shard %d is a copy of row %d, which does not exist or is itself a copy", ErrCorrupt, n, row)
		}
		if m != last {
			flushNeeded()
			last = m
		}
		rels = append(rels, uint32(row-c.shards[m].First)) //nolint:gosec // a position in a shard
		of.last = max(of.last, m)
	}
	flushNeeded()
	return nil
}

// isCopy reports whether a row of shard m is a copy.
func (c *RowCopies) isCopy(m int, row int64) bool {
	rows := c.byShard[m].rows
	return rows != nil && rows.Contains(uint32(row-c.shards[m].First)) //nolint:gosec // a position in a shard
}

// originals returns the original of each copy in shard n, in the order of the copies.
func (c *RowCopies) originals(n int, distances []byte) ([]int64, error) {
	rows := make([]int64, 0, c.byShard[n].rows.GetCardinality())
	for it := c.byShard[n].rows.Iterator(); it.HasNext(); {
		row := c.shards[n].First + int64(it.Next())
		d, size := binary.Uvarint(distances)
		if size <= 0 || d == 0 || d > uint64(row) { //nolint:gosec // no row is negative
			return nil, fmt.Errorf("%w: copies of shard %d without their originals", ErrCorrupt, n)
		}
		distances = distances[size:]
		rows = append(rows, row-int64(d)) //nolint:gosec // at most row
	}
	if len(distances) > 0 {
		return nil, fmt.Errorf("%w: originals of shard %d without their copies", ErrCorrupt, n)
	}
	return rows, nil
}

// Count returns the number of copies in the job.
func (c *RowCopies) Count() int64 { return c.rows }

// Rows returns the copies in shard n, as positions in the shard; nil if the shard has
// no copies. The caller must not change the result.
func (c *RowCopies) Rows(n int) *roaring.Bitmap { return c.byShard[n].rows }

// OriginalRows returns the rows of shard n that are originals of copies in any shard, as
// positions in the shard; nil if there are none. The caller must not change the result.
func (c *RowCopies) OriginalRows(n int) *roaring.Bitmap { return c.byShard[n].needed }

// LastOriginalShard returns the number of the last shard that has an original of a copy in shard n.
func (c *RowCopies) LastOriginalShard(n int) int { return c.byShard[n].last }

// ShardOf returns the number of the shard with a row, or -1 if the job has no such row.
func (c *RowCopies) ShardOf(row int64) int {
	n := sort.Search(len(c.shards), func(i int) bool { return c.shards[i].First > row }) - 1
	if n < 0 || row-c.shards[n].First >= int64(c.shards[n].Rows) {
		return -1
	}
	return n
}

// ReadOriginals returns the original of each copy in Rows(n). It reads the originals from
// r, the object that ReadRowCopies read.
func (c *RowCopies) ReadOriginals(r io.ReaderAt, n int) ([]int64, error) {
	distances := make([]byte, c.byShard[n].size)
	if _, err := r.ReadAt(distances, c.byShard[n].at); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read the originals of shard %d: %w", n, err)
	}
	return c.originals(n, distances)
}
