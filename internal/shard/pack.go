package shard

import (
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// newEncoder returns the Zstandard encoder of a Writer, which uses a few hundred
// kilobytes of memory. The fastest level reduces prose to 0.31 of its size, Snappy to
// 0.43. Higher levels are hardly better.
//
// Encoders and decoders are not kept in a shared pool: each has channels, which belong
// to the synctest bubble that made them.
func newEncoder() *zstd.Encoder {
	e, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), // the index of the shard has a checksum
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
		zstd.WithDecodeAllCapLimit(true), // checks the claimed size of a frame before memory is allocated
		zstd.WithDecoderMaxMemory(maxSize),
		zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
}

// frameBlock is the largest decompressed size of a block in a Zstandard frame, and
// blockHead is the smallest compressed size, both in bytes. See
// https://datatracker.ietf.org/doc/html/rfc8878#section-3.1.1.2.
const frameBlock, blockHead = 128 << 10, 3

// longRow is the mean row size in bytes from which on a block is compressed with
// Snappy. Zstandard costs 5 ns more per byte: half a microsecond for a short row, but
// as much as the whole HTTP exchange with the server for a row with a page of text.
const longRow = 256

// snappyMarker is the first byte of a block compressed with Snappy; a Zstandard frame
// begins with 0x28. snappyMost is the largest possible ratio of decompressed to
// compressed bytes. See
// https://github.com/google/snappy/blob/main/format_description.txt.
const snappyMarker, snappyMost = 1, 32

// pack returns a compressed block with the given number of rows. It uses the memory of
// buf if possible.
func (s *Writer) pack(block []byte, rows int, buf []byte) []byte {
	if len(block) < rows*longRow {
		if s.encoder == nil {
			s.encoder = newEncoder()
		}
		return s.encoder.EncodeAll(block, buf[:0])
	}
	buf = slices.Grow(buf[:0], 1+s2.MaxEncodedLen(len(block)))
	packed := s2.EncodeSnappy(buf[1:cap(buf)], block)
	return append(append(buf[:0], snappyMarker), packed...) // copies nothing unless s2 allocated another buffer
}

// unpack returns the decompressed rows of a block.
func unpack(stored []byte) ([]byte, error) {
	if len(stored) > 0 && stored[0] == snappyMarker {
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
