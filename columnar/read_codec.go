package columnar

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
)

// Decompressors grow their output until it fits, so a page of a few kilobytes
// could fill the memory. unpackedSize returns an upper bound of the size of b
// unpacked, from the compressed bytes alone where the format allows it. It
// stops counting above limit.
func unpackedSize(codec format.CompressionCodec, b []byte, limit int64) (int64, error) {
	if len(b) == 0 {
		return 0, nil
	}
	switch codec {
	case format.Snappy:
		n, width := binary.Uvarint(b)
		if width <= 0 {
			return 0, errPacked
		}
		return int64(min(n, 1<<40)), nil
	case format.Gzip:
		const ratio = 1032 // deflate's best: 258 bytes from 2 bits
		if int64(len(b))*ratio <= limit {
			return int64(len(b)) * ratio, nil
		}
		r, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return 0, err
		}
		return count(r, limit)
	case format.Brotli:
		return count(brotli.NewReader(bytes.NewReader(b)), limit)
	case format.Zstd:
		return zstdSize(b)
	case format.Lz4Raw:
		return lz4Size(b)
	}
	return 0, fmt.Errorf("the codec %v is not supported; use Snappy, Zstandard or Gzip", codec)
}

var errPacked = errors.New("its compressed bytes are damaged")

func count(r io.Reader, limit int64) (int64, error) {
	return io.Copy(io.Discard, io.LimitReader(r, limit+1))
}

// zstdSize adds up what the blocks of all frames can hold at most. See
// https://datatracker.ietf.org/doc/html/rfc8878#section-3.1.1.
func zstdSize(b []byte) (int64, error) {
	const blockMax = 128 << 10
	var total int64
	for len(b) > 0 {
		var head zstd.Header
		if err := head.Decode(b); err != nil {
			return 0, err
		}
		if head.Skippable {
			skip := int64(head.HeaderSize) + int64(head.SkippableSize)
			if skip > int64(len(b)) {
				return 0, errPacked
			}
			b = b[skip:]
			continue
		}
		if head.HasFCS && head.FrameContentSize > 1<<40 {
			return 1 << 40, nil
		}
		b = b[head.HeaderSize:]
		var frame int64
		for last := false; !last; {
			if len(b) < 3 {
				return 0, errPacked
			}
			v := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
			b = b[3:]
			last = v&1 != 0
			size := v >> 3
			switch v >> 1 & 3 {
			case 0: // raw
				frame += int64(size)
			case 1: // one byte repeated
				frame += int64(size)
				size = 1
			case 2: // compressed
				frame += blockMax
			default:
				return 0, errPacked
			}
			if size > len(b) {
				return 0, errPacked
			}
			b = b[size:]
		}
		if head.HasCheckSum {
			if len(b) < 4 {
				return 0, errPacked
			}
			b = b[4:]
		}
		if head.HasFCS {
			// The decoder reserves this much and stops when there is more.
			frame = int64(head.FrameContentSize)
		}
		total += frame
	}
	return total, nil
}

// lz4Size walks the sequences of an LZ4 block. It must be exact: the decoder
// doubles its buffer for ever when a block is damaged. See
// https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md.
func lz4Size(b []byte) (int64, error) {
	const matchMin = 4
	var size int64
	length := func(n int) (int64, bool) {
		total := int64(n)
		for more := n == 15; more; b = b[1:] {
			if len(b) == 0 {
				return 0, false
			}
			total += int64(b[0])
			more = b[0] == 255
		}
		return total, true
	}
	for len(b) > 0 {
		token := b[0]
		b = b[1:]
		literals, ok := length(int(token >> 4))
		if !ok || literals > int64(len(b)) {
			return 0, errPacked
		}
		size += literals
		if b = b[literals:]; len(b) == 0 && token&15 == 0 {
			return size, nil // a block ends in literals, without a match
		}
		if len(b) < 2 {
			return 0, errPacked
		}
		offset := int64(binary.LittleEndian.Uint16(b))
		b = b[2:]
		match, ok := length(int(token & 15))
		if !ok || offset == 0 || offset > size {
			return 0, errPacked
		}
		size += match + matchMin
	}
	return 0, errPacked
}
