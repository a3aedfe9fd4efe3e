package columnar

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/compress/lz4"
	"github.com/parquet-go/parquet-go/encoding"
	"github.com/parquet-go/parquet-go/format"

	"github.com/rowmill/rowmill/internal/must"
)

func packers() map[format.CompressionCodec]compress.Codec {
	return map[format.CompressionCodec]compress.Codec{
		format.Uncompressed: &parquet.Uncompressed, format.Snappy: &parquet.Snappy, format.Gzip: &parquet.Gzip, format.Brotli: &parquet.Brotli,
		format.Zstd: &parquet.Zstd, format.Lz4Raw: &lz4.Codec{Level: lz4.Fastest},
	}
}

// TestUnpackIsExact decompresses into buffers of the right size and of wrong
// sizes that a page may claim.
func TestUnpackIsExact(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 100_000)
	random := rand.New(rand.NewPCG(3, 4))
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	for id, codec := range packers() {
		var u unpacker
		for i, plain := range [][]byte{{}, {1}, noise, make([]byte, 3_000_000), bytes.Repeat([]byte("words "), 1000), bytes.Repeat([]byte("a"), 19)} {
			packed := must.Get(codec.Encode(nil, plain))(t)
			dst := bytes.Repeat([]byte("M"), len(plain))
			if err := u.unpack(id, dst, packed); err != nil || !bytes.Equal(dst, plain) {
				t.Errorf("%v, case %d: %v, equal %v", id, i, err, bytes.Equal(dst, plain))
			}
			for _, size := range []int{0, 1, len(plain) - 1, len(plain) + 1, 2*len(plain) + 100} {
				if size < 0 || size == len(plain) {
					continue
				}
				if err := u.unpack(id, make([]byte, size), packed); err == nil {
					t.Errorf("%v, case %d: %d bytes became %d", id, i, len(plain), size)
				}
			}
			for cut := range min(len(packed), 40) {
				if err := u.unpack(id, dst, packed[:len(packed)-1-cut]); err == nil && !bytes.Equal(dst, plain) {
					t.Errorf("%v, case %d: %d bytes fewer are something else", id, i, cut+1)
				}
			}
		}
		u.close()
	}
	for _, id := range []format.CompressionCodec{format.LZO, format.Lz4, 8, -1} {
		if canUnpack(id) || new(unpacker).unpack(id, []byte{0}, []byte{1}) == nil {
			t.Errorf("%v was accepted", id)
		}
	}
}

// FuzzUnpack compares the decoders with another program. The other program must
// decode every accepted input to the same bytes, and the decoders must accept
// every block that the other program encodes.
func FuzzUnpack(f *testing.F) {
	for id, codec := range packers() {
		for _, plain := range []string{"words words words words words", fmt.Sprint(make([]int, 500))} {
			packed := must.Get(codec.Encode(nil, []byte(plain)))(f)
			f.Add(int32(id), uint16(len(plain)), packed)
		}
	}
	f.Fuzz(func(t *testing.T, n int32, size uint16, b []byte) {
		id := format.CompressionCodec(n)
		codec := packers()[id]
		if codec == nil {
			return
		}
		var u unpacker
		defer u.close()
		dst := bytes.Repeat([]byte("M"), int(size))
		if u.unpack(id, dst, b) == nil && len(b) > 0 {
			// The other program's LZ4 decoder does not return for a bad block.
			plain, err := codec.Decode(make([]byte, 0, int(size)+1), b)
			if err != nil || !bytes.Equal(plain, dst) {
				t.Fatalf("%v: got %q, another program %q, %v", id, dst, plain, err)
			}
		}
		packed := must.Get(codec.Encode(nil, b))(t)
		dst = make([]byte, len(b))
		if err := u.unpack(id, dst, packed); err != nil || !bytes.Equal(dst, b) {
			t.Fatalf("%v: %v", id, err)
		}
	})
}

// leafOfKind returns a required leaf.
func leafOfKind(kind format.Type) *schemaNode {
	n := &schemaNode{path: "v", element: &format.SchemaElement{}}
	n.element.Type.Set(kind)
	n.element.TypeLength.Set(3)
	return n
}

// decodeAll decodes n values as if they were the values of a page.
func decodeAll(kind format.Type, e format.Encoding, data []byte, n int) (values [][]byte, err error) {
	r := &pageReader{leaf: leafOfKind(kind), limits: &Limits{MaxPageBytes: 1 << 20}}
	v, err := r.decodeValues(data, e, n)
	for i := 0; i < n && err == nil; i++ {
		values = append(values, bytes.Clone(v.takeRaw()))
	}
	return values, err
}

// FuzzValues compares the decoders of values with another program's encoders,
// and gives them random bytes.
func FuzzValues(f *testing.F) {
	for kind := range int32(8) {
		f.Add(kind, []byte("abcabdabeabfabcabdabcabcabcaaaaaaaaabcdefghijklmnopqrstuvwxyz"))
		f.Add(kind, bytes.Repeat([]byte{1, 0, 0, 0, 0, 0, 0, 0}, 200))
	}
	f.Fuzz(func(t *testing.T, n int32, raw []byte) {
		if n < 0 || n > int32(format.FixedLenByteArray) || len(raw) > 1<<14 {
			return
		}
		kind := format.Type(n)
		width := leafOfKind(kind).valueWidth()
		var want [][]byte
		for rest := raw; len(rest) > 0; {
			size := width
			if width == byteArray {
				size = int(rest[0]) % 16
			}
			size = min(size, len(rest))
			if width != byteArray && size < width {
				break
			}
			v := bytes.Clone(rest[:size])
			if kind == format.Boolean {
				v[0] &= 1
			}
			want, rest = append(want, v), rest[max(size, 1):]
		}
		for _, e := range []encoding.Encoding{
			&parquet.Plain, &parquet.RLE, &parquet.DeltaBinaryPacked, &parquet.DeltaLengthByteArray, &parquet.DeltaByteArray, &parquet.ByteStreamSplit,
		} {
			if encoded, ok := encode(t, kind, e, want); ok {
				got, err := decodeAll(kind, e.Encoding(), encoded, len(want))
				if err != nil || !slices.EqualFunc(got, want, bytes.Equal) {
					t.Fatalf("%v of %v: got %q, %v, want %q", e, kind, got, err, want)
				}
			}
			for _, n := range []int{0, 1, 7, 300} {
				if values, err := decodeAll(kind, e.Encoding(), raw, n); err == nil && len(values) != n {
					t.Fatalf("%v of %v: %d values, want %d", e, kind, len(values), n)
				}
			}
		}
		for _, width := range []int{0, 1, 2, 7} {
			levels, err := decodeLevels(nil, raw, 100, 1<<width-1)
			if err == nil && width > 0 && (len(levels) != 100 || int(slices.Max(levels)) > 1<<width-1) {
				t.Fatalf("%d levels up to %d, want 100 up to %d", len(levels), slices.Max(levels), 1<<width-1)
			}
		}
	})
}

// encode encodes values with another program. ok is false if the encoding does
// not support the type.
func encode(t *testing.T, kind format.Type, e encoding.Encoding, values [][]byte) (encoded []byte, ok bool) {
	var err error
	all := bytes.Join(values, nil)
	one := func(fits bool, f func() ([]byte, error)) {
		if fits && len(values) > 0 {
			ok = true
			encoded, err = f()
		}
	}
	split := e.Encoding() == format.ByteStreamSplit
	plain := e.Encoding() == format.Plain
	delta := e.Encoding() == format.DeltaBinaryPacked
	switch kind {
	case format.Boolean:
		bits := make([]byte, (len(values)+7)/8)
		for i, v := range values {
			bits[i/8] |= v[0] << (i % 8)
		}
		one(plain || e.Encoding() == format.RLE, func() ([]byte, error) { return e.EncodeBoolean(nil, bits) })
	case format.Int32:
		one(plain || split || delta, func() ([]byte, error) { return e.EncodeInt32(nil, ints[int32](values)) })
	case format.Int64:
		one(plain || split || delta, func() ([]byte, error) { return e.EncodeInt64(nil, ints[int64](values)) })
	case format.FixedLenByteArray:
		one(plain || split || e.Encoding() == format.DeltaByteArray, func() ([]byte, error) { return e.EncodeFixedLenByteArray(nil, all, 3) })
	case format.ByteArray:
		offsets := []uint32{0}
		for _, v := range values {
			offsets = append(offsets, offsets[len(offsets)-1]+uint32(len(v)))
		}
		one(plain || e.Encoding() == format.DeltaLengthByteArray || e.Encoding() == format.DeltaByteArray,
			func() ([]byte, error) { return e.EncodeByteArray(nil, all, offsets) })
	}
	if err != nil && !errors.Is(err, encoding.ErrNotSupported) {
		t.Fatalf("encode %v as %v: %v", kind, e, err)
	}
	return encoded, ok && err == nil
}

func ints[T int32 | int64](values [][]byte) (all []T) {
	for _, v := range values {
		var n T
		for i, b := range v {
			n |= T(b) << (8 * i)
		}
		all = append(all, n)
	}
	return all
}
