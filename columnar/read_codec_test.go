package columnar

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/compress/lz4"
	"github.com/parquet-go/parquet-go/format"
)

func packers() map[format.CompressionCodec]compress.Codec {
	return map[format.CompressionCodec]compress.Codec{
		format.Snappy: &parquet.Snappy, format.Gzip: &parquet.Gzip, format.Brotli: &parquet.Brotli,
		format.Zstd: &parquet.Zstd, format.Lz4Raw: &lz4.Codec{Level: lz4.Fastest},
	}
}

func TestUnpackedSizeIsNeverTooSmall(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 100_000)
	random := rand.New(rand.NewPCG(3, 4))
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	for id, codec := range packers() {
		for i, plain := range [][]byte{{1}, noise, make([]byte, 3_000_000), bytes.Repeat([]byte("words "), 1000)} {
			packed, err := codec.Encode(nil, plain)
			if err != nil {
				t.Fatal(err)
			}
			size, err := unpackedSize(id, packed, 1<<30)
			if err != nil || size < int64(len(plain)) {
				t.Errorf("%v, case %d: %d for %d bytes, %v", id, i, size, len(plain), err)
			}
			if id == format.Lz4Raw && size != int64(len(plain)) {
				t.Errorf("%v, case %d: %d is not exactly %d", id, i, size, len(plain))
			}
			if limit := int64(len(plain)) - 1; limit > 1 {
				if size, err := unpackedSize(id, packed, limit); err == nil && size <= limit {
					t.Errorf("%v, case %d: %d passes a limit of %d", id, i, size, limit)
				}
			}
		}
	}
}

func TestUnsupportedCodec(t *testing.T) {
	t.Parallel()
	if _, err := unpackedSize(format.LZO, []byte{1}, 1); err == nil {
		t.Error("LZO was accepted")
	}
}

// The decoder of LZ4 never returns from a damaged block, so what lz4Size
// accepts must decode, and to that size.
func FuzzLZ4Size(f *testing.F) {
	codec := &lz4.Codec{Level: lz4.Fastest}
	for _, plain := range []string{"a", "words words words words words", fmt.Sprint(make([]int, 500))} {
		packed, err := codec.Encode(nil, []byte(plain))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		size, err := lz4Size(b)
		if err != nil || size > 1<<20 {
			return
		}
		plain, err := codec.Decode(nil, b)
		if err != nil || int64(len(plain)) != size {
			t.Fatalf("decoded to %d bytes, %v; want %d", len(plain), err, size)
		}
	})
}

func FuzzUnpackedSize(f *testing.F) {
	for id, codec := range packers() {
		packed, err := codec.Encode(nil, []byte("words words words"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(int32(id), packed)
	}
	f.Fuzz(func(t *testing.T, id int32, b []byte) {
		codec := packers()[format.CompressionCodec(id)]
		size, err := unpackedSize(format.CompressionCodec(id), b, 1<<20)
		if err != nil || codec == nil || size > 1<<20 {
			return
		}
		if plain, err := decodeOrRecover(codec, b); err == nil && int64(len(plain)) > size {
			t.Fatalf("decoded to %d bytes; want at most %d", len(plain), size)
		}
	})
}

// decodeOrRecover decodes as the reader does, for which a panic of the library
// is one more way to say that data is damaged.
func decodeOrRecover(codec compress.Codec, b []byte) (plain []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	return codec.Decode(nil, b)
}
