package columnar

import (
	"bytes"
	"context"
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/internal/must"
)

func splice(tb rapid.TB, columns []TableColumn, files ...[]byte) []byte {
	tb.Helper()
	var out bytes.Buffer
	s := must.Get(NewSplicer(&out, columns, []KeyValue{{"k", "v"}}))(tb)
	rows := int64(0)
	for _, file := range files {
		t := openBytes(tb, file)
		must.Succeed(tb, s.Append(context.Background(), t))
		rows += t.Rows()
	}
	if s.Rows() != rows {
		tb.Fatalf("%d rows spliced, want %d", s.Rows(), rows)
	}
	must.Succeed(tb, s.Close())
	return out.Bytes()
}

// TestSplice splices tables with all and with some columns. The column chunks
// must equal the chunks of the sources byte for byte, and the indexes must be
// right.
func TestSplice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var rows []cells
		var files [][]byte
		for range rapid.IntRange(0, 4).Draw(t, "tables") {
			some := drawRows(t)
			rows = append(rows, some...)
			files = append(files, makeTable(t, everyColumn(), some, drawConfig(t)))
		}
		whole := splice(t, everyColumn(), files...)
		sameRows(t, "spliced", readCells(t, openBytes(t, whole)), rows)
		sameRows(t, "parquet-go", oracleCells(t, whole), rows)
		checkStatistics(t, whole, rows)

		all := everyColumn()
		columns := []TableColumn{all[0], all[1], all[8], all[6]}
		subset := splice(t, columns, files...)
		if again := splice(t, columns, whole); !bytes.Equal(again, subset) {
			t.Fatal("a subset of the spliced table is not the splice of subsets")
		}
		picked := make([]cells, len(rows))
		for i, row := range rows {
			picked[i] = cells{row[0], row[1], row[8], row[6]}
		}
		sameRows(t, "subset", readCells(t, openBytes(t, subset)), picked)
		sameChunks(t, columns, subset, files)
	})
}

// rangeBuffer is a RangeWriter that counts its ranges.
type rangeBuffer struct {
	bytes.Buffer
	ranges int
}

func (b *rangeBuffer) WriteRange(src io.ReaderAt, offset, length int64) error {
	b.ranges++
	_, err := io.Copy(&b.Buffer, io.NewSectionReader(src, offset, length))
	return err
}

// TestSpliceByRanges checks that a RangeWriter gets the same file, and
// consecutive chunks as one range.
func TestSpliceByRanges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var files [][]byte
		groups := 0
		for range rapid.IntRange(0, 4).Draw(t, "tables") {
			files = append(files, makeTable(t, everyColumn(), drawRows(t), drawConfig(t)))
			groups += openBytes(t, files[len(files)-1]).Groups()
		}
		all := everyColumn()
		for _, columns := range [][]TableColumn{all, all[:3], {all[0], all[1], all[8], all[6]}} {
			var out rangeBuffer
			s := must.Get(NewSplicer(&out, columns, []KeyValue{{"k", "v"}}))(t)
			for _, file := range files {
				must.Succeed(t, s.Append(context.Background(), openBytes(t, file)))
			}
			chunks := out.ranges
			must.Succeed(t, s.Close())
			if !bytes.Equal(out.Bytes(), splice(t, columns, files...)) {
				t.Fatal("it is another file")
			}
			if len(columns) != 4 && chunks > groups {
				t.Fatalf("%d ranges of %d row groups, with consecutive chunks", chunks, groups)
			}
		}
	})
}

// TestSpliceWithTrailingColumns checks that the columns before the trailing
// ones can be copied as one range, which includes the first bytes of the file,
// and that the rest of the file is the same.
func TestSpliceWithTrailingColumns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var files [][]byte
		var rows []cells
		for range rapid.IntRange(0, 4).Draw(t, "tables") {
			some := drawRows(t)
			rows = append(rows, some...)
			files = append(files, makeTable(t, everyColumn(), some, drawConfig(t)))
		}
		all := everyColumn()
		trailing := rapid.IntRange(0, len(all)).Draw(t, "trailing")
		var out rangeBuffer
		s := must.Get(NewSplicer(&out, all, []KeyValue{{"k", "v"}}))(t)
		s.SetFirstTrailingColumn(trailing)
		for _, file := range files {
			must.Succeed(t, s.Append(context.Background(), openBytes(t, file)))
		}
		if rapid.Bool().Draw(t, "attached") {
			must.Succeed(t, s.Attach("more", []byte("abc")))
		}
		must.Succeed(t, s.Close())
		whole := out.Bytes()
		sameRows(t, "spliced", readCells(t, openBytes(t, whole)), rows)
		sameRows(t, "parquet-go", oracleCells(t, whole), rows)
		checkStatistics(t, whole, rows)
		sameChunks(t, all, whole, files)
		for _, columns := range [][]TableColumn{all[:trailing], all[trailing:]} {
			if len(columns) == 0 {
				continue
			}
			var part rangeBuffer
			s := must.Get(NewSplicer(&part, columns, []KeyValue{{"k", "v"}}))(t)
			must.Succeed(t, s.Append(context.Background(), openBytes(t, whole)))
			must.Succeed(t, s.flushRange())
			if part.ranges > 1 {
				t.Fatalf("%d columns are %d ranges", len(columns), part.ranges)
			}
			if &columns[0] == &all[0] && part.ranges == 1 && part.Len() != int(s.offset) {
				t.Fatalf("%d of the first %d bytes are one range", part.Len(), s.offset)
			}
			must.Succeed(t, s.Close())
			if !bytes.Equal(part.Bytes(), splice(t, columns, files...)) {
				t.Fatal("it is another file")
			}
		}
	})
}

// sameChunks checks that the column chunks of file are copies of the chunks in
// sources.
func sameChunks(tb rapid.TB, columns []TableColumn, file []byte, sources [][]byte) {
	tb.Helper()
	out, g := openBytes(tb, file), 0
	for _, source := range sources {
		in := openBytes(tb, source)
		for i := range in.Groups() {
			for c := range columns {
				a := chunkBytes(in, source, i, in.ColumnPosition(columns[c].Name))
				if b := chunkBytes(out, file, g, c); !bytes.Equal(a, b) {
					tb.Fatalf("row group %d, column %q: %d bytes differ from the %d of the source", g, columns[c].Name, len(b), len(a))
				}
			}
			g++
		}
	}
	if out.Groups() != g {
		tb.Fatalf("%d row groups, want %d", out.Groups(), g)
	}
}

func chunkBytes(t *Table, file []byte, g, c int) []byte {
	m := t.meta.RowGroups[g].Columns[c].MetaData
	return file[m.DataPageOffset:][:m.TotalCompressedSize]
}

func TestSpliceRefuses(t *testing.T) {
	t.Parallel()
	table := openBytes(t, makeTable(t, []TableColumn{{Name: "a", Kind: TableText}}, []cells{{"x"}}, TableConfig{}))
	for name, column := range map[string]TableColumn{
		"missing":    {Name: "b", Kind: TableText},
		"wrong kind": {Name: "a", Kind: TableInt},
		"required":   {Name: "a", Kind: TableText, Required: true},
	} {
		s := must.Get(NewSplicer(&bytes.Buffer{}, []TableColumn{column}, nil))(t)
		if err := s.Append(context.Background(), table); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
