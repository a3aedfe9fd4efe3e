package shard

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"sort"
	"unsafe"

	"github.com/rowmill/rowmill"
)

// A Reader reads the blocks of a shard, in any order. ReadBlock is safe for concurrent
// use.
type Reader struct {
	r         io.ReaderAt // the shard object; nil if the rows are in texts
	closer    io.Closer
	texts     []string
	first     int64
	rows      int
	ids       bool
	hasFields bool // whether rows have fields
	blocks    []blockEntry
}

type blockEntry struct {
	offset int64
	size   int
	first  int // first row of the block, counted from the shard's first row
	rows   int
	crc    uint32
}

// NewReader returns a Reader for a shard object of size bytes in r. Close of the Reader
// closes closer, which may be nil.
func NewReader(r io.ReaderAt, size int64, closer io.Closer) (*Reader, error) {
	if size < int64(len(magic)+footerSize) {
		return nil, fmt.Errorf("%w: %d bytes are too few", ErrCorrupt, size)
	}
	foot := make([]byte, footerSize)
	if _, err := r.ReadAt(foot, size-int64(footerSize)); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read shard footer: %w", err)
	}
	le := binary.LittleEndian
	blocks := int64(le.Uint32(foot[4:]))
	indexSize := blocks * indexEntry
	indexAt := size - int64(footerSize) - indexSize
	if string(foot[footerSize-len(magic):]) != magic || indexAt < int64(len(magic)) {
		return nil, fmt.Errorf("%w: bad footer", ErrCorrupt)
	}
	head := make([]byte, len(magic))
	if _, err := r.ReadAt(head, 0); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read shard header: %w", err)
	}
	if string(head) != magic {
		return nil, fmt.Errorf("%w: it does not begin with the magic bytes of a shard", ErrCorrupt)
	}
	tail := make([]byte, indexSize+int64(footerSize))
	if _, err := r.ReadAt(tail, indexAt); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read shard index: %w", err)
	}
	summed := tail[:len(tail)-len(magic)-4]
	if crc32.Checksum(summed, castagnoli) != le.Uint32(tail[len(summed):]) {
		return nil, fmt.Errorf("%w: bad checksum of the index", ErrCorrupt)
	}
	flags := le.Uint32(foot)
	if flags&^knownFlags != 0 {
		return nil, fmt.Errorf("%w: unknown flags %#x", ErrCorrupt, flags)
	}
	s := &Reader{
		r: r, closer: closer, first: int64(le.Uint64(foot[16:])),
		ids: flags&flagIDs != 0, hasFields: flags&flagFields != 0,
	}
	next := int64(len(magic)) // blocks follow one another without gaps
	for e := tail[:indexSize]; len(e) > 0; e = e[indexEntry:] {
		b := blockEntry{
			offset: int64(le.Uint64(e)), size: int(le.Uint32(e[8:])),
			first: s.rows, rows: int(le.Uint32(e[12:])), crc: le.Uint32(e[16:]),
		}
		if b.offset != next || int64(b.size) > indexAt-b.offset || b.rows == 0 {
			return nil, fmt.Errorf("%w: bad index", ErrCorrupt)
		}
		next += int64(b.size)
		s.rows += b.rows
		s.blocks = append(s.blocks, b)
	}
	if next != indexAt || s.first < 0 || s.first > math.MaxInt64-int64(s.rows) {
		return nil, fmt.Errorf("%w: bad index", ErrCorrupt)
	}
	if uint64(s.rows) != le.Uint64(foot[8:]) {
		return nil, fmt.Errorf("%w: rows of the blocks do not add up", ErrCorrupt)
	}
	return s, nil
}

// NewTextReader returns a Reader for rows that are already in memory, without ids.
func NewTextReader(texts []string) *Reader {
	s := &Reader{texts: texts, rows: len(texts)}
	for at := 0; at < len(texts); at += blockRows {
		s.blocks = append(s.blocks, blockEntry{first: at, rows: min(blockRows, len(texts)-at)})
	}
	return s
}

// Rows returns the number of rows.
func (s *Reader) Rows() int { return s.rows }

// FirstRow returns the index of the shard's first row within the input.
func (s *Reader) FirstRow() int64 { return s.first }

// BlockOf returns the number of the block that contains row. row must be less than
// Rows.
func (s *Reader) BlockOf(row int) int {
	return sort.Search(len(s.blocks), func(i int) bool { return s.blocks[i].first > row }) - 1
}

// ReadBlock reads block number i, and checks its checksum and format.
func (s *Reader) ReadBlock(i int) (*Block, error) {
	const perRow = 64 // bytes of memory for the headers of text and id
	e := s.blocks[i]
	b := &Block{First: e.first, Bytes: perRow * int64(e.rows)}
	if s.r == nil {
		b.texts = s.texts[e.first : e.first+e.rows]
		return b, nil
	}
	raw := make([]byte, e.size)
	if _, err := s.r.ReadAt(raw, e.offset); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read block %d: %w", i, err)
	}
	if crc32.Checksum(raw, castagnoli) != e.crc {
		return nil, fmt.Errorf("%w: bad checksum of block %d", ErrCorrupt, i)
	}
	raw, err := unpack(raw)
	if err != nil {
		return nil, fmt.Errorf("unpack block %d: %w", i, err)
	}
	if e.rows > len(raw) {
		return nil, fmt.Errorf("%w: block %d is too short for its rows", ErrCorrupt, i)
	}
	b.Bytes += int64(len(raw))
	if err := b.decode(raw, e.rows, s.ids, s.hasFields); err != nil {
		return nil, fmt.Errorf("decode block %d: %w", i, err)
	}
	return b, nil
}

// Close closes the closer that was passed to NewReader.
func (s *Reader) Close() error {
	if s.closer == nil {
		return nil
	}
	return s.closer.Close()
}

// decode decodes the rows in raw. The block keeps using the memory of raw, which must
// not change afterwards.
func (b *Block) decode(raw []byte, rows int, ids, hasFields bool) error {
	text := unsafe.String(unsafe.SliceData(raw), len(raw)) // every text and id shares the memory
	b.texts = make([]string, rows)
	if ids {
		b.ids = make([]rowmill.ID, rows)
	}
	if hasFields {
		b.fields = make([]string, rows)
	}
	at := 0
	cut := func(n uint64) (string, bool) {
		if n > uint64(len(raw)-at) {
			return "", false
		}
		at += int(n)
		return text[at-int(n) : at], true
	}
	sized := func() (string, bool) {
		n, size := binary.Uvarint(raw[at:])
		if size <= 0 {
			return "", false
		}
		at += size
		return cut(n)
	}
	for i := range rows {
		var ok bool
		if b.texts[i], ok = sized(); !ok {
			return ErrCorrupt
		}
		if ids && !decodeID(&b.ids[i], raw, &at, cut, sized) {
			return ErrCorrupt
		}
		if !hasFields {
			continue
		}
		if b.fields[i], ok = sized(); !ok {
			return ErrCorrupt
		}
	}
	if at != len(raw) {
		return ErrCorrupt
	}
	return nil
}

// decodeID reads an id at position *at. readBytes reads a number of bytes, and readString
// reads a length and then this number of bytes.
func decodeID(id *rowmill.ID, raw []byte, at *int, readBytes func(uint64) (string, bool), readString func() (string, bool)) (ok bool) {
	if *at == len(raw) {
		return false
	}
	id.Kind = rowmill.IDKind(raw[*at])
	*at++
	switch id.Kind {
	case rowmill.IDNull:
	case rowmill.IDString, rowmill.IDLeafValue:
		id.Text, ok = readString()
		return ok
	case rowmill.IDBool:
		s, ok := readBytes(1)
		if !ok {
			return false
		}
		id.Int = int64(s[0])
	case rowmill.IDInt, rowmill.IDUint, rowmill.IDFloat:
		s, ok := readBytes(8)
		if !ok {
			return false
		}
		v := binary.LittleEndian.Uint64([]byte(s))
		if id.Kind == rowmill.IDFloat {
			id.Real = math.Float64frombits(v)
		} else {
			id.Int = int64(v)
		}
	default:
		return false
	}
	return true
}
