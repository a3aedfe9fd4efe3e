package shard

import (
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// newEncoder makes the encoder of one Writer. It keeps a few hundred kilobytes. The
// fastest level reduces prose to 0.31 of its size, Snappy to 0.43. Better levels gain
// next to nothing.
//
// Encoders and decoders are not shared: each holds channels, which belong to the
// synctest bubble that made them.
func newEncoder() *zstd.Encoder {
	e, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), // the index has one
		zstd.WithSingleSegment(true),
		zstd.WithWindowSize(blockBytes),
		zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return e
}

func newDecoder() *zstd.Decoder {
	d, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecodeAllCapLimit(true), // what a frame says it holds is checked before memory is taken
		zstd.WithDecoderMaxMemory(maxSize),
		zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
}

// frameBlock is what a block of a frame stands for at most, and blockHead what it
// takes at least. See https://datatracker.ietf.org/doc/html/rfc8878#section-3.1.1.2.
const frameBlock, blockHead = 128 << 10, 3

// Blocks whose rows are of longRow bytes or more in the mean are compressed by Snappy. A
// frame costs 5 ns a byte more: half a microsecond where a row is short, and as much
// as its way to the server and back where it is a page.
const longRow = 256

// bySnappy is the first byte of a block that Snappy has compressed, that of a frame is
// 0x28; snappyMost is how many bytes one of it stands for at most. See
// https://github.com/google/snappy/blob/main/format_description.txt.
const bySnappy, snappyMost = 1, 32

// pack compresses a block of so many rows.
func (s *Writer) pack(block []byte, rows int, buf []byte) []byte {
	if len(block) < rows*longRow {
		if s.encoder == nil {
			s.encoder = newEncoder()
		}
		return s.encoder.EncodeAll(block, buf[:0])
	}
	buf = slices.Grow(buf[:0], 1+s2.MaxEncodedLen(len(block)))
	packed := s2.EncodeSnappy(buf[1:cap(buf)], block)
	return append(append(buf[:0], bySnappy), packed...) // which are there, unless s2 took memory of its own
}

// unpack returns the rows of a compressed block.
func unpack(stored []byte) ([]byte, error) {
	if len(stored) > 0 && stored[0] == bySnappy {
		return unpackSnappy(stored[1:])
	}
	var head zstd.Header
	if err := head.Decode(stored); err != nil || !head.HasFCS || head.Skippable || head.FrameContentSize > min(maxSize, uint64(len(stored)/blockHead)*frameBlock) {
		return nil, fmt.Errorf("%w: bad frame", ErrCorrupt)
	}
	decoder := newDecoder()
	defer decoder.Close()
	raw, err := decoder.DecodeAll(stored, make([]byte, 0, head.FrameContentSize))
	if err != nil || uint64(len(raw)) != head.FrameContentSize {
		return nil, fmt.Errorf("%w: bad frame", ErrCorrupt)
	}
	return raw, nil
}

func unpackSnappy(stored []byte) ([]byte, error) {
	size, err := s2.DecodedLen(stored)
	if err != nil || size > min(maxSize, snappyMost*len(stored)) {
		return nil, fmt.Errorf("%w: bad Snappy block", ErrCorrupt)
	}
	raw, err := s2.Decode(make([]byte, size), stored)
	if err != nil {
		return nil, fmt.Errorf("%w: bad Snappy block", ErrCorrupt)
	}
	return raw, nil
}
