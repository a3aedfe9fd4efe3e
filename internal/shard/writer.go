package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/klauspost/compress/zstd"

	"github.com/rowmill/rowmill"
)

// Writer writes one shard. It is used by one goroutine.
type Writer struct {
	w           io.Writer
	block       []byte // rows of the block that is being filled, not compressed
	index       []byte // index entries of the written blocks
	first       int64
	at          int64 // offset in the object of the block that is being filled
	plain       int64 // bytes of the written blocks before compression
	rows        int
	rowsInBlock int // number of rows in the block that is being filled
	ids         bool
	hasFields   bool          // whether rows have fields
	frame       []byte        // buffer with the compressed form of the last written block
	encoder     *zstd.Encoder // nil until the first block of short rows
	err         error         // the first error; all later calls return it
}

// NewWriter returns a Writer for a shard whose first row has the index first in the
// input. If ids is true, every row has the id that Add gets; otherwise Add must get
// null ids. The caller owns w and closes it after Close.
func NewWriter(w io.Writer, first int64, ids bool) *Writer {
	s := &Writer{w: w, first: first, ids: ids, block: make([]byte, 0, blockBytes+4<<10)}
	if first < 0 {
		s.err = fmt.Errorf("start shard: first row %d is negative", first)
		return s
	}
	s.write([]byte(magic))
	return s
}

// EnableFields makes the shard store the fields that AddRow gets for every row. Call it
// before the first row.
func (s *Writer) EnableFields() { s.hasFields = true }

// Add appends the next row, without fields.
func (s *Writer) Add(text string, id rowmill.ID) error { return s.AddRow(text, id, "") }

// AddRow appends the next row. fields must be empty unless EnableFields was called.
func (s *Writer) AddRow(text string, id rowmill.ID, fields string) error {
	if s.err != nil {
		return s.err
	}
	if s.Size()+int64(len(text))+int64(len(id.Text))+int64(len(fields))+3*binary.MaxVarintLen64+indexEntry > maxSize {
		s.err = fmt.Errorf("add row %d: the shard would exceed %d bytes", s.first+int64(s.rows), maxSize)
		return s.err
	}
	s.block = binary.AppendUvarint(s.block, uint64(len(text)))
	s.block = append(s.block, text...)
	if s.ids {
		s.addID(id)
	} else if id.Kind != rowmill.IDNull {
		s.err = errors.New("add row: the shard was started without ids")
	}
	if s.hasFields {
		s.block = binary.AppendUvarint(s.block, uint64(len(fields)))
		s.block = append(s.block, fields...)
	} else if fields != "" && s.err == nil {
		s.err = errors.New("add row: the shard was started without fields")
	}
	if s.err != nil {
		return s.err
	}
	s.rows++
	s.rowsInBlock++
	if s.rowsInBlock >= blockRows || len(s.block) >= blockBytes {
		s.endBlock()
	}
	return s.err
}

func (s *Writer) addID(id rowmill.ID) {
	s.block = append(s.block, byte(id.Kind))
	switch id.Kind {
	case rowmill.IDNull:
	case rowmill.IDString, rowmill.IDLeafValue:
		s.block = binary.AppendUvarint(s.block, uint64(len(id.Text)))
		s.block = append(s.block, id.Text...)
	case rowmill.IDInt, rowmill.IDUint:
		s.block = binary.LittleEndian.AppendUint64(s.block, uint64(id.Int))
	case rowmill.IDFloat:
		s.block = binary.LittleEndian.AppendUint64(s.block, math.Float64bits(id.Real))
	case rowmill.IDBool:
		s.block = append(s.block, byte(id.Int&1))
	default:
		s.err = fmt.Errorf("add row %d: unknown kind of id %d", s.first+int64(s.rows), id.Kind)
	}
}

// endBlock compresses and writes the block, and adds it to the index.
func (s *Writer) endBlock() {
	s.frame = s.pack(s.block, s.rowsInBlock, s.frame)
	s.index = binary.LittleEndian.AppendUint64(s.index, uint64(s.at))
	s.index = binary.LittleEndian.AppendUint32(s.index, uint32(len(s.frame)))
	s.index = binary.LittleEndian.AppendUint32(s.index, uint32(s.rowsInBlock))
	s.index = binary.LittleEndian.AppendUint32(s.index, crc32.Checksum(s.frame, castagnoli))
	s.write(s.frame)
	s.plain += int64(len(s.block))
	s.block, s.rowsInBlock = s.block[:0], 0
}

func (s *Writer) write(p []byte) {
	if _, err := s.w.Write(p); err != nil {
		s.err = fmt.Errorf("write shard: %w", err)
	}
	s.at += int64(len(p))
}

// Rows returns the number of rows that were added.
func (s *Writer) Rows() int { return s.rows }

// Size returns the size in bytes that the shard would have if it were closed now and
// not compressed: about the size of its rows in memory.
func (s *Writer) Size() int64 {
	size := int64(len(magic)) + s.plain + int64(len(s.block)+len(s.index)+footerSize)
	if s.rowsInBlock > 0 {
		size += indexEntry
	}
	return size
}

// Close writes the index and the footer. A shard without index and footer cannot be
// read.
func (s *Writer) Close() error {
	if s.err == nil && s.rowsInBlock > 0 {
		s.endBlock()
	}
	if s.err != nil {
		return s.err
	}
	var flags uint32
	if s.ids {
		flags |= flagIDs
	}
	if s.hasFields {
		flags |= flagFields
	}
	tail := s.index
	blocks := len(tail) / indexEntry
	tail = binary.LittleEndian.AppendUint32(tail, flags)
	tail = binary.LittleEndian.AppendUint32(tail, uint32(blocks))
	tail = binary.LittleEndian.AppendUint64(tail, uint64(s.rows))
	tail = binary.LittleEndian.AppendUint64(tail, uint64(s.first))
	tail = binary.LittleEndian.AppendUint32(tail, crc32.Checksum(tail, castagnoli))
	if s.write(append(tail, magic...)); s.err != nil {
		return s.err
	}
	s.err = errors.New("the shard is closed")
	return nil
}
