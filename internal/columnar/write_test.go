package columnar

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/internal/must"
)

// everyColumn returns the columns of a table with every kind of column.
func everyColumn() []TableColumn {
	return []TableColumn{
		{Name: "row", Kind: TableInt, Required: true},
		{Name: "text", Kind: TableText},
		{Name: "must", Kind: TableText, Required: true},
		{Name: "int", Kind: TableInt},
		{Name: "uint", Kind: TableUint},
		{Name: "real", Kind: TableReal},
		{Name: "bool", Kind: TableBool},
		{Name: "yes", Kind: TableBool, Required: true},
		{Name: "floats", Kind: TableFloats},
	}
}

// cells is one row of everyColumn: nil, string, int64, uint64, float64, bool or
// []float32.
type cells []any

// addCells writes a row.
func addCells(w *TableWriter, row cells) error {
	for c, v := range row {
		switch v := v.(type) {
		case nil:
			w.AppendNull(c)
		case string:
			w.AppendText(c, v)
		case int64:
			w.AppendInt(c, v)
		case uint64:
			w.AppendUint(c, v)
		case float64:
			w.AppendReal(c, v)
		case bool:
			w.AppendBool(c, v)
		case []float32:
			w.AppendFloats(c, v)
		}
	}
	return w.EndRow()
}

// makeTable writes rows with small blocks and groups, so that the table has
// many.
func makeTable(tb rapid.TB, columns []TableColumn, rows []cells, cfg TableConfig) []byte {
	tb.Helper()
	var file bytes.Buffer
	w := must.Get(NewTableWriter(&file, columns, []KeyValue{{"k", "v"}}, cfg))(tb)
	for _, row := range rows {
		must.Succeed(tb, addCells(w, row))
	}
	must.Succeed(tb, w.Close())
	return file.Bytes()
}

func openBytes(tb rapid.TB, file []byte) *Table {
	tb.Helper()
	t := must.Get(OpenTable(bytes.NewReader(file), int64(len(file))))(tb)
	return t
}

// drawRows draws rows of everyColumn. A nil is as likely as a value.
func drawRows(t *rapid.T) []cells {
	text := rapid.OneOf(rapid.StringN(0, 6, -1), rapid.StringN(30, 80, -1))
	pick := func(v any, name string) any {
		if rapid.Bool().Draw(t, name+" null") {
			return nil
		}
		return v
	}
	rows := make([]cells, rapid.IntRange(0, 40).Draw(t, "rows"))
	for i := range rows {
		rows[i] = cells{
			int64(i),
			pick(text.Draw(t, "text"), "text"),
			text.Draw(t, "must"),
			pick(rapid.Int64().Draw(t, "int"), "int"),
			pick(rapid.Uint64().Draw(t, "uint"), "uint"),
			pick(rapid.Float64().Draw(t, "real"), "real"),
			pick(rapid.Bool().Draw(t, "bool"), "bool"),
			rapid.Bool().Draw(t, "yes"),
			pick(rapid.SliceOfN(rapid.Float32(), 0, 5).Draw(t, "floats"), "floats"),
		}
	}
	return rows
}

func drawConfig(t *rapid.T) TableConfig {
	return TableConfig{
		BlockBytes: rapid.IntRange(1, 2000).Draw(t, "block bytes"),
		GroupBytes: int64(rapid.IntRange(1, 4000).Draw(t, "group bytes")),
		GroupRows:  int64(rapid.IntRange(1, 50).Draw(t, "group rows")),
	}
}

// readCells reads a whole table with Scan.
func readCells(tb rapid.TB, t *Table) []cells {
	tb.Helper()
	all := make([]int, len(t.Columns()))
	for i := range all {
		all[i] = i
	}
	var rows []cells
	for scan := t.Scan(all...); ; {
		b, err := scan.Next()
		if errors.Is(err, io.EOF) {
			return rows
		}
		must.Succeed(tb, err)
		if b.First != int64(len(rows)) {
			tb.Fatalf("a block starts at row %d after %d rows", b.First, len(rows))
		}
		for i := range b.Rows {
			row := make(cells, len(all))
			for c := range all {
				if !b.IsNull(c, i) {
					row[c] = blockCell(b, c, i)
				}
			}
			rows = append(rows, row)
		}
	}
}

func blockCell(b *RowBlock, c, i int) any {
	switch b.columns[c].Kind {
	case TableText:
		return string(b.Text(c, i))
	case TableInt:
		return b.Int(c, i)
	case TableUint:
		return b.Uint(c, i)
	case TableReal:
		return b.Real(c, i)
	case TableBool:
		return b.Bool(c, i)
	default:
		return b.AppendFloats(c, i, []float32{})
	}
}

// sameRows compares printed values, so that NaNs are equal.
func sameRows(tb rapid.TB, what string, got, want []cells) {
	tb.Helper()
	if len(got) != len(want) {
		tb.Fatalf("%s: %d rows, want %d", what, len(got), len(want))
	}
	for i := range want {
		if g, w := fmt.Sprintf("%#v", got[i]), fmt.Sprintf("%#v", want[i]); g != w {
			tb.Fatalf("%s: row %d is\n%s, want\n%s", what, i, g, w)
		}
	}
}

// TestTableRoundTrip reads a table with Scan, from the start and from any row,
// and with parquet-go.
func TestTableRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rows := drawRows(t)
		file := makeTable(t, everyColumn(), rows, drawConfig(t))
		table := openBytes(t, file)
		if !slices.Equal(table.Columns(), everyColumn()) || table.Meta("k") != "v" || table.Rows() != int64(len(rows)) {
			t.Fatalf("columns %v, metadata %q, %d rows", table.Columns(), table.Meta("k"), table.Rows())
		}
		sameRows(t, "scan", readCells(t, table), rows)
		sameRows(t, "parquet-go", oracleCells(t, file), rows)
		checkStatistics(t, file, rows)
		if len(rows) == 0 {
			return
		}
		n := rapid.IntRange(0, len(rows)-1).Draw(t, "row")
		scan := table.Scan(8, 1)
		must.Succeed(t, scan.SeekRow(int64(n)))
		b := must.Get(scan.Next())(t)
		i := n - int(b.First)
		if b.IsNull(1, i) != (rows[n][1] == nil) || !b.IsNull(1, i) && string(b.Text(1, i)) != rows[n][1] {
			t.Fatalf("row %d found by SeekRow has another text", n)
		}
	})
}

// failingOnce fails one read, after some others.
type failingOnce struct {
	*bytes.Reader
	before int // number of reads before the failing one
}

var errReadOnce = errors.New("disk is slow")

func (f *failingOnce) ReadAt(p []byte, at int64) (int, error) {
	f.before--
	if f.before == -1 {
		return 0, errReadOnce
	}
	return f.Reader.ReadAt(p, at)
}

// A failed read does not make the table look damaged when the caller tries again.
func TestSeekAgainAfterAReadError(t *testing.T) {
	t.Parallel()
	columns := []TableColumn{{Name: "a", Kind: TableInt}, {Name: "b", Kind: TableText}}
	var rows []cells
	for i := range 20 {
		rows = append(rows, cells{int64(i), fmt.Sprint("text ", i)})
	}
	file := makeTable(t, columns, rows, TableConfig{BlockBytes: 1, GroupRows: 10})
	for before := 0; ; before++ {
		src := &failingOnce{Reader: bytes.NewReader(file), before: -1}
		table, err := OpenTable(src, int64(len(file)))
		must.Succeed(t, err)
		scan := table.Scan(0, 1)
		src.before = before
		err = scan.SeekRow(15)
		if err == nil {
			if before < 2 {
				t.Fatalf("SeekRow needs %d reads, want one for each column", before)
			}
			return
		}
		if !errors.Is(err, errReadOnce) {
			t.Fatal(err)
		}
		must.Succeed(t, scan.SeekRow(15))
		b, err := scan.Next()
		must.Succeed(t, err)
		if i := 15 - int(b.First); b.Int(0, i) != 15 || string(b.Text(1, i)) != "text 15" {
			t.Errorf("row 15 is %d, %q", b.Int(0, i), b.Text(1, i))
		}
	}
}

// oracleCells reads a table with parquet-go.
func oracleCells(tb rapid.TB, file []byte) []cells {
	tb.Helper()
	f := must.Get(parquet.OpenFile(bytes.NewReader(file), int64(len(file))))(tb)
	columns := everyColumn()
	var all []cells
	for _, g := range f.RowGroups() {
		reader := g.Rows()
		for rows := make([]parquet.Row, 7); ; {
			n, err := reader.ReadRows(rows)
			for _, row := range rows[:n] {
				all = append(all, oracleRow(columns, row))
			}
			if errors.Is(err, io.EOF) {
				break
			}
			must.Succeed(tb, err)
		}
		must.Succeed(tb, reader.Close())
	}
	return all
}

func oracleRow(columns []TableColumn, row parquet.Row) cells {
	out := make(cells, len(columns))
	for _, v := range row {
		c := v.Column()
		switch kind := columns[c].Kind; {
		case kind == TableFloats && v.DefinitionLevel() == listEmpty:
			out[c] = []float32{}
		case v.IsNull():
		case kind == TableText:
			out[c] = string(v.ByteArray())
		case kind == TableInt:
			out[c] = v.Int64()
		case kind == TableUint:
			out[c] = v.Uint64()
		case kind == TableReal:
			out[c] = v.Double()
		case kind == TableBool:
			out[c] = v.Boolean()
		default:
			list, _ := out[c].([]float32)
			out[c] = append(list, v.Float())
		}
	}
	return out
}

// checkStatistics compares the bounds and null counts of every page and chunk
// with the rows.
func checkStatistics(tb rapid.TB, file []byte, rows []cells) {
	tb.Helper()
	table := openBytes(tb, file)
	for g := range table.Groups() {
		from, to := table.GroupRows(g)
		for c, column := range table.columns {
			chunk := table.meta.RowGroups[g].Columns[c]
			s := chunk.MetaData.Statistics
			checkBounds(tb, column, rows[from:to], c, s.MinValue, s.MaxValue, s.NullCount)
			var index format.ColumnIndex
			at := file[chunk.ColumnIndexOffset:][:chunk.ColumnIndexLength]
			must.Succeed(tb, thrift.Unmarshal(new(thrift.CompactProtocol), at, &index))
			_, places, err := table.readPageLocations(table.locateOffsetIndex(g, c), nil, nil)
			if err != nil || len(places) != len(index.NullPages) {
				tb.Fatalf("%d pages in one index and %d in the other: %v", len(places), len(index.NullPages), err)
			}
			for p, place := range places {
				last := to
				if p+1 < len(places) {
					last = from + places[p+1].first
				}
				low, high := index.MinValues[p], index.MaxValues[p]
				if index.NullPages[p] {
					low, high = nil, nil
				} else if len(low) > boundBytes {
					tb.Fatalf("column %q: a bound of %d bytes", column.Name, len(low))
				}
				checkBounds(tb, column, rows[from+place.first:last], c, low, high, index.NullCounts[p])
			}
		}
	}
}

// checkBounds checks that all values of column c lie between low and high, if
// there are bounds.
func checkBounds(tb rapid.TB, column TableColumn, rows []cells, c int, low, high []byte, nulls int64) {
	tb.Helper()
	count := int64(0)
	for _, row := range rows {
		values := []any{row[c]}
		if list, ok := row[c].([]float32); ok {
			values = nil
			for _, f := range list {
				values = append(values, f)
			}
			if len(list) == 0 {
				count++
			}
		} else if row[c] == nil {
			count++
			continue
		}
		for _, v := range values {
			if low != nil && boundLess(v, low) {
				tb.Fatalf("column %q: %v lies below its bound %x", column.Name, v, low)
			}
			if high != nil && boundMore(v, high) {
				tb.Fatalf("column %q: %v lies above its bound %x", column.Name, v, high)
			}
		}
	}
	if count != nulls {
		tb.Fatalf("column %q: %d nulls, counted as %d", column.Name, count, nulls)
	}
}

func boundLess(v any, b []byte) bool {
	switch v := v.(type) {
	case string:
		return v < string(b)
	case int64:
		return v < int64(binary.LittleEndian.Uint64(b))
	case uint64:
		return v < binary.LittleEndian.Uint64(b)
	case float64:
		return v < math.Float64frombits(binary.LittleEndian.Uint64(b))
	case float32:
		return v < math.Float32frombits(binary.LittleEndian.Uint32(b))
	case bool:
		return !v && b[0] == 1
	}
	return false
}

func boundMore(v any, b []byte) bool {
	switch v := v.(type) {
	case string:
		return v > string(b)
	case int64:
		return v > int64(binary.LittleEndian.Uint64(b))
	case uint64:
		return v > binary.LittleEndian.Uint64(b)
	case float64:
		return v > math.Float64frombits(binary.LittleEndian.Uint64(b))
	case float32:
		return v > math.Float32frombits(binary.LittleEndian.Uint32(b))
	case bool:
		return v && b[0] == 0
	}
	return false
}

func FuzzUpperBound(f *testing.F) {
	f.Add(strings.Repeat("a", 40))
	f.Add(strings.Repeat("\U0010FFFF", 9))
	f.Add(strings.Repeat("x", 30) + "\uD7FF\uE000 and more")
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return
		}
		low, high := lowerBound([]byte(s)), upperBound([]byte(s))
		if string(low) > s || string(high) < s || !utf8.Valid(low) || !utf8.Valid(high) {
			t.Errorf("%q lies outside %q to %q", s, low, high)
		}
	})
}

func TestTableWriterRefuses(t *testing.T) {
	t.Parallel()
	for name, columns := range map[string][]TableColumn{
		"none":          nil,
		"no name":       {{Kind: TableText}},
		"no kind":       {{Name: "a"}},
		"twice":         {{Name: "a", Kind: TableText}, {Name: "a", Kind: TableInt}},
		"required list": {{Name: "a", Kind: TableFloats, Required: true}},
	} {
		if _, err := NewTableWriter(io.Discard, columns, nil, TableConfig{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := NewTableWriter(io.Discard, everyColumn(), nil, TableConfig{GroupRows: -1}); err == nil {
		t.Error("negative size: no error")
	}
}
