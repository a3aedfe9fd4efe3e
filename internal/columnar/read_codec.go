package columnar

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
)

// errPacked means that compressed bytes are damaged, or that they do not decompress to
// the size in the page header.
var errPacked = errors.New("the page does not decompress to the size in its header")

// canUnpack reports whether pages with the codec can be read. The codec LZ4 is not
// supported, because programs do not agree on its framing:
// https://github.com/apache/parquet-format/blob/master/Compression.md.
func canUnpack(codec format.CompressionCodec) bool {
	switch codec {
	case format.Uncompressed, format.Snappy, format.Gzip, format.Brotli, format.Zstd, format.Lz4Raw:
		return true
	}
	return false
}

// unpacker decompresses the pages of a column chunk. Its decoders may still have bytes
// of a previous page, so two files never share an unpacker.
type unpacker struct {
	packed bytes.Reader
	gzip   *gzip.Reader
	zstd   *zstd.Decoder
}

// unpack decompresses b into dst. It returns an error if the result is not exactly as
// long as dst. No decoder allocates memory for a size that b claims.
func (u *unpacker) unpack(codec format.CompressionCodec, dst, b []byte) error {
	if len(dst) == 0 && len(b) == 0 {
		return nil // a page of nulls
	}
	u.packed.Reset(b)
	switch codec {
	case format.Uncompressed:
		if len(b) != len(dst) {
			return errPacked
		}
		copy(dst, b)
		return nil
	case format.Snappy:
		if n, err := s2.DecodedLen(b); err != nil || n != len(dst) {
			return errPacked
		}
		_, err := s2.Decode(dst, b)
		return err
	case format.Gzip:
		return u.unpackGzip(dst)
	case format.Brotli:
		// A new reader each time: Reset does not clear the state of a damaged page.
		return readExactly(brotli.NewReader(&u.packed), dst)
	case format.Zstd:
		return u.unpackZstd(dst, b)
	case format.Lz4Raw:
		return unpackLZ4(dst, b)
	}
	return errPacked
}

func (u *unpacker) unpackGzip(dst []byte) error {
	if u.gzip == nil {
		u.gzip = new(gzip.Reader)
	}
	if err := u.gzip.Reset(&u.packed); err != nil {
		return err
	}
	return readExactly(u.gzip, dst)
}

func (u *unpacker) unpackZstd(dst, b []byte) (err error) {
	if u.zstd == nil {
		u.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return err
		}
	}
	plain, err := u.zstd.DecodeAll(b, dst[:0:len(dst)])
	if err == nil && len(plain) != len(dst) {
		err = errPacked
	}
	return err
}

// close frees the decoders. The unpacker can be used again.
func (u *unpacker) close() {
	if u.zstd != nil {
		u.zstd.Close()
	}
	*u = unpacker{}
}

// readExactly fills dst from r. It returns an error if r has fewer or more bytes.
func readExactly(r io.Reader, dst []byte) error {
	if _, err := io.ReadFull(r, dst); err != nil {
		return errPacked
	}
	var more [1]byte
	if n, err := io.ReadFull(r, more[:]); n > 0 || !errors.Is(err, io.EOF) {
		return errPacked
	}
	return nil
}

// unpackLZ4 decompresses the LZ4 block b into dst.
// https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md.
func unpackLZ4(dst, b []byte) error {
	const shortestMatch = 4
	at := 0 // number of bytes in dst that are decompressed
	for len(b) > 0 {
		token := b[0]
		literals, rest := readLZ4Length(token>>4, b[1:])
		if literals > min(len(rest), len(dst)-at) {
			return errPacked
		}
		at += copy(dst[at:], rest[:literals])
		if b = rest[literals:]; len(b) == 0 && token&15 == 0 && at == len(dst) {
			return nil // a block ends with literals that no match follows
		}
		if len(b) < 2 {
			return errPacked
		}
		offset := int(binary.LittleEndian.Uint16(b))
		match, rest := readLZ4Length(token&15, b[2:])
		if match > len(dst)-at-shortestMatch || offset == 0 || offset > at {
			return errPacked
		}
		// A match may overlap the bytes that it writes. Then these bytes repeat.
		for from, end := at-offset, at+match+shortestMatch; at < end; {
			at += copy(dst[at:end], dst[from:at])
		}
		b = rest
	}
	return errPacked
}

// readLZ4Length decodes a length that begins with half a token and continues in b. It
// returns the length and the bytes after it. If b ends too early, the length is larger
// than any block.
func readLZ4Length(nibble byte, b []byte) (int, []byte) {
	n := int(nibble)
	for more := nibble == 15; more; b = b[1:] {
		if len(b) == 0 {
			return math.MaxInt32, nil
		}
		n += int(b[0])
		more = b[0] == 255
	}
	return n, b
}
