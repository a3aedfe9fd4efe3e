package shard_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
)

func encode(t testing.TB, first int64, ids bool, rows []rowmill.Row) []byte {
	t.Helper()
	var b bytes.Buffer
	w := shard.NewWriter(&b, first, ids)
	for _, row := range rows {
		must.Succeed(t, w.Add(row.Text, row.ID))
	}
	if w.Rows() != len(rows) {
		t.Fatalf("Rows() = %d, want %d", w.Rows(), len(rows))
	}
	must.Succeed(t, w.Close())
	return b.Bytes()
}

// blocks returns a block reader over the rows.
func blocks(t testing.TB, first int64, ids bool, rows []rowmill.Row) *shard.Reader {
	t.Helper()
	data := encode(t, first, ids, rows)
	r := must.Get(shard.NewReader(bytes.NewReader(data), int64(len(data)), nil))(t)
	if r.Rows() != len(rows) || r.FirstRow() != first {
		t.Fatalf("reader has %d rows from %d, want %d from %d", r.Rows(), r.FirstRow(), len(rows), first)
	}
	return r
}

func TestBlocksCoverEveryRowOnce(t *testing.T) {
	t.Parallel()
	rows := make([]rowmill.Row, 5_000)
	texts := make([]string, len(rows))
	for i := range rows {
		texts[i] = strings.Repeat("x", i%977)
		rows[i].Text = texts[i]
	}
	for name, r := range map[string]*shard.Reader{
		"object": blocks(t, 3, false, rows), "memory": shard.NewTextReader(texts),
	} {
		next := 0
		for next < len(rows) {
			b := must.Get(r.ReadBlock(r.BlockOf(next)))(t)
			if b.First != next || b.Rows() == 0 {
				t.Fatalf("%s: block of row %d begins at %d with %d rows", name, next, b.First, b.Rows())
			}
			for range b.Rows() {
				if b.Text(next) != texts[next] || b.ID(next) != (rowmill.ID{}) {
					t.Fatalf("%s: row %d differs", name, next)
				}
				next++
			}
		}
	}
}

func everyKind() []rowmill.Row {
	return []rowmill.Row{
		{Text: "plain", ID: rowmill.ID{Kind: rowmill.IDString, Text: "007"}},
		{Text: "", ID: rowmill.ID{}},
		{Text: "line\r\nbreak \x00 é", ID: rowmill.ID{Kind: rowmill.IDInt, Int: math.MinInt64}},
		{Text: strings.Repeat("x", 100_000), ID: rowmill.ID{Kind: rowmill.IDUint, Int: -1}},
		{Text: "f", ID: rowmill.ID{Kind: rowmill.IDFloat, Real: math.Copysign(0, -1)}},
		{Text: "b", ID: rowmill.ID{Kind: rowmill.IDBool, Int: 1}},
		{Text: "s", ID: rowmill.ID{Kind: rowmill.IDString}},
		{Text: "d", ID: rowmill.ID{Kind: rowmill.IDLeafValue, Text: "\xff\x00\n\x80"}},
	}
}

func TestRoundTripKeepsEveryKindOfID(t *testing.T) {
	t.Parallel()
	rows := everyKind()
	got, first, err := decode(encode(t, 1<<40, true, rows))
	if err != nil || first != 1<<40 {
		t.Fatalf("first row %d, %v", first, err)
	}
	for i := range rows {
		rows[i].Index = first + int64(i)
	}
	if diff := cmp.Diff(rows, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// Short rows take less space, long ones less time.
func TestRowsArePackedByTheirLength(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		row  string
		mark []byte
	}{
		{"of some words", []byte{0x28, 0xb5, 0x2f, 0xfd}}, // the magic number of a Zstandard frame
		{strings.Repeat("of many words ", 100), []byte{1}},
	} {
		rows := slices.Repeat([]rowmill.Row{{Text: c.row}}, 2000)
		data := encode(t, 0, false, rows)
		if got := data[len("RMSHARD1"):]; !bytes.HasPrefix(got, c.mark) {
			t.Errorf("a block of rows of %d bytes begins with % x, want % x", len(c.row), got[:4], c.mark)
		}
		got, _, err := decode(data)
		if err != nil || len(got) != len(rows) || got[1999].Text != c.row {
			t.Errorf("%d rows of %d bytes: %v", len(got), len(c.row), err)
		}
		if whole := len(rows) * len(c.row); len(data) > whole/3 {
			t.Errorf("%d bytes are packed to %d", whole, len(data))
		}
	}
}

// Inputs are cut by Size, so Size must not depend on how well rows compress.
func TestSizeIsThatOfPlainRows(t *testing.T) {
	t.Parallel()
	const rows, length = 3000, 100
	var object bytes.Buffer
	w := shard.NewWriter(&object, 0, false)
	for range rows {
		must.Succeed(t, w.Add(strings.Repeat("x", length), rowmill.ID{}))
	}
	if size, plain := w.Size(), int64(rows*(1+length)); size < plain || size > plain+plain/100 {
		t.Errorf("size is %d, the rows have %d bytes", size, plain)
	}
	must.Succeed(t, w.Close())
	if object.Len() > rows*length/10 {
		t.Errorf("rows of %d bytes take %d", rows*length, object.Len())
	}
}

func TestRoundTripProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.Bool().Draw(t, "ids")
		texts := rapid.SliceOf(rapid.String()).Draw(t, "texts")
		var b bytes.Buffer
		w := shard.NewWriter(&b, 5, ids)
		for i, text := range texts {
			var id rowmill.ID
			if ids {
				id = rowmill.ID{Kind: rowmill.IDInt, Int: int64(i) * -3}
			}
			must.Succeed(t, w.Add(text, id))
		}
		must.Succeed(t, w.Close())
		got, _, err := decode(b.Bytes())
		if err != nil || len(got) != len(texts) {
			t.Fatalf("decode: %d rows, %v", len(got), err)
		}
		for i, text := range texts {
			if got[i].Text != text || ids && got[i].ID.Int != int64(i)*-3 {
				t.Fatalf("row %d differs", i)
			}
		}
	})
}

func TestEveryTruncationAndEveryFlippedBitIsFound(t *testing.T) {
	t.Parallel()
	for _, long := range []int{0, 200} { // Zstandard, Snappy
		everyDamage(t, encode(t, 7, true, []rowmill.Row{
			{Text: "one" + strings.Repeat("1", long), ID: rowmill.ID{Kind: rowmill.IDInt, Int: 1}},
			{Text: "two" + strings.Repeat("abc", long), ID: rowmill.ID{Kind: rowmill.IDString, Text: "b"}},
		}))
	}
}

func everyDamage(t *testing.T, data []byte) {
	t.Helper()
	for n := range data {
		if _, _, err := decode(data[:n]); !errors.Is(err, shard.ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	for i := range data {
		for bit := range 8 {
			bad := bytes.Clone(data)
			bad[i] ^= 1 << bit
			if _, _, err := decode(bad); !errors.Is(err, shard.ErrCorrupt) {
				t.Fatalf("bit %d of byte %d flipped: %v", bit, i, err)
			}
		}
	}
}

func TestWriterRefusesWhatItCannotKeep(t *testing.T) {
	t.Parallel()
	w := shard.NewWriter(io.Discard, 0, false)
	if err := w.Add("x", rowmill.ID{Kind: rowmill.IDInt}); err == nil {
		t.Error("an id in a shard without ids was accepted")
	}
	w = shard.NewWriter(io.Discard, 0, true)
	if err := w.Add("x", rowmill.ID{Kind: 99}); err == nil {
		t.Error("an unknown kind of id was accepted")
	}
	if err := w.Close(); err == nil {
		t.Error("Close after an error succeeded")
	}
	if err := shard.NewWriter(io.Discard, -1, true).Close(); err == nil {
		t.Error("a negative first row was accepted")
	}
	w = shard.NewWriter(io.Discard, 0, true)
	must.Succeed(t, w.Close())
	if err := w.Add("x", rowmill.ID{}); err == nil {
		t.Error("Add after Close succeeded")
	}
}

// fullDisk accepts limit bytes.
type fullDisk struct{ limit int }

var errFull = errors.New("no space left")

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.limit -= len(p); d.limit < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestWriterPassesWriteErrorsOn(t *testing.T) {
	t.Parallel()
	random := rand.NewChaCha8([32]byte{}) // does not compress
	for _, limit := range []int{0, 100 << 10} {
		w := shard.NewWriter(&fullDisk{limit}, 0, false)
		var err error
		for range 100 {
			text := make([]byte, 4<<10)
			_, _ = random.Read(text)
			if err = w.Add(string(text), rowmill.ID{}); err != nil {
				break
			}
		}
		if !errors.Is(err, errFull) || !errors.Is(w.Close(), errFull) {
			t.Errorf("limit %d: got %v", limit, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(f, 0, true, everyKind()[:3]))
	f.Add(encode(f, 9, false, []rowmill.Row{{Text: "a"}, {Text: ""}}))
	f.Add(encode(f, 0, true, everyKind()))
	f.Add([]byte("RMSHARD1"))
	f.Fuzz(func(t *testing.T, body []byte) {
		// The checksum would reject nearly everything. A repaired checksum lets the
		// test reach the parser.
		for _, data := range [][]byte{body, repair(body)} {
			rows, first, err := decode(data)
			if err != nil {
				if !errors.Is(err, shard.ErrCorrupt) {
					t.Fatalf("error is not ErrCorrupt: %v", err)
				}
				continue
			}
			again, _, err := decode(encode(t, first, true, rows))
			if err != nil || len(again) != len(rows) {
				t.Fatalf("rewritten shard: %v", err)
			}
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	text := strings.Repeat("word ", 60)
	b.SetBytes(int64(len(text)))
	w := shard.NewWriter(io.Discard, 0, true)
	for i := 0; b.Loop(); i++ {
		if w.Rows() == 16_384 {
			w = shard.NewWriter(io.Discard, 0, true)
		}
		must.Succeed(b, w.Add(text, rowmill.ID{Kind: rowmill.IDInt, Int: int64(i)}))
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, length := range []int{100, 300} { // Zstandard, Snappy
		b.Run(fmt.Sprintf("rows of %d bytes", length), func(b *testing.B) { benchmarkDecode(b, length) })
	}
}

func benchmarkDecode(b *testing.B, length int) {
	rows := make([]rowmill.Row, 16_384)
	for i := range rows {
		rows[i] = rowmill.Row{Text: fmt.Sprintf("%0*d", length, i), ID: rowmill.ID{Kind: rowmill.IDInt, Int: int64(i)}}
	}
	data := encode(b, 0, true, rows)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if got, _, err := decode(data); err != nil || len(got) != len(rows) {
			b.Fatal(len(got), err)
		}
	}
}

// decode reads all rows of a shard, block by block.
func decode(data []byte) (rows []rowmill.Row, first int64, err error) {
	r, err := shard.NewReader(bytes.NewReader(data), int64(len(data)), nil)
	if err != nil {
		return nil, 0, err
	}
	for len(rows) < r.Rows() {
		b, err := r.ReadBlock(r.BlockOf(len(rows)))
		if err != nil {
			return nil, 0, err
		}
		for row := b.First; row < b.First+b.Rows(); row++ {
			rows = append(rows, b.Row(r.FirstRow(), row))
		}
	}
	return rows, r.FirstRow(), nil
}

func TestRowsHaveTheirFields(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := shard.NewWriter(&b, 7, true)
	w.EnableFields()
	want := []rowmill.Row{{Index: 7, Text: "a", ID: rowmill.ID{Kind: rowmill.IDString, Text: "x"}, Fields: `["1"]`}, {Index: 8, Text: "b", ID: rowmill.ID{Kind: rowmill.IDString, Text: "y"}, Fields: `["2"]`}}
	for _, row := range want {
		must.Succeed(t, w.AddRow(row.Text, row.ID, row.Fields))
	}
	must.Succeed(t, w.Close())
	got, first, err := decode(b.Bytes())
	if err != nil || first != 7 {
		t.Fatalf("first row %d, %v", first, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}
