package columnar_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"github.com/rowmill/rowmill/internal/columnar"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/pythontest"
)

// TestSuite_ShapesOfParquetTesting reads the shapes of files that
// apache/parquet-testing collects, written again with pyarrow. TestOddFiles and
// TestLegacyNesting have the shapes that pyarrow does not write.
func TestSuite_ShapesOfParquetTesting(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: other programs are asked without it")
	}
	t.Parallel()
	program, dir := pythontest.FindPython(t, "we read no shape of parquet-testing", "pyarrow.parquet"), t.TempDir()
	if out, err := exec.CommandContext(t.Context(), program, filepath.Join("testdata", "shapes.py"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	list := must.Get(os.ReadFile(filepath.Join(dir, "want.json")))(t)
	var files map[string]any // an error, or the columns: each has texts or an error
	must.Succeed(t, json.Unmarshal(list, &files))
	if len(files) < 40 {
		t.Fatalf("%d files", len(files))
	}
	for name, want := range files {
		t.Run(name, func(t *testing.T) {
			data := must.Get(os.ReadFile(filepath.Join(dir, name)))(t)
			if diff := cmp.Diff(want, contents(data, want)); diff != "" {
				t.Errorf("(-want +got):\n%.2000s", diff)
			}
		})
	}
}

// contents returns the texts of each column of a file, or the error. If want is a part
// of the error, contents returns only this part.
func contents(data []byte, want any) any {
	said := func(err error, want any) any {
		if part, ok := want.(string); ok && strings.Contains(err.Error(), part) {
			return part
		}
		return err.Error()
	}
	f, err := columnar.Open(bytes.NewReader(data), int64(len(data)), columnar.Limits{})
	if err != nil {
		return said(err, want)
	}
	wanted, _ := want.(map[string]any)
	columns := map[string]any{}
	for i, c := range f.Columns() {
		texts := []any{}
		rows := f.Rows(i)
		defer rows.Close()
		err := rows.Next()
		for ; err == nil; err = rows.Next() {
			var text string
			if text, err = rows.Text(0); err != nil {
				break
			}
			texts = append(texts, text)
		}
		if columns[c.Name] = texts; !errors.Is(err, io.EOF) {
			columns[c.Name] = said(err, wanted[c.Name])
		}
	}
	return columns
}

// TestLegacyNesting reads lists and maps of the first writers, with levels that differ
// from today's rules of the format.
// https://github.com/apache/parquet-format/blob/master/LogicalTypes.md
func TestLegacyNesting(t *testing.T) {
	t.Parallel()
	list := func(e *format.SchemaElement) { e.ConvertedType.Set(deprecated.List) }
	whole := parquet.Leaf(parquet.Int32Type)
	value := func(n int32, repetition, definition int) parquet.Value {
		return parquet.Int32Value(n).Level(repetition, definition, 0)
	}
	tests := map[string]struct {
		node   parquet.Node
		change func(meta *format.FileMetaData)
		row    parquet.Row
		want   string
	}{
		"lists of two levels": {
			node: parquet.Group{"array": parquet.Repeated(parquet.Group{"array": parquet.Repeated(whole)})},
			change: func(meta *format.FileMetaData) {
				list(&meta.Schema[1])
				list(&meta.Schema[2])
			},
			row:  parquet.Row{value(1, 0, 2), value(2, 2, 2), value(3, 1, 2), value(4, 2, 2)},
			want: "[[1,2],[3,4]]",
		},
		"a list whose element is the repeated value": {
			node:   parquet.Group{"element": parquet.Repeated(whole)},
			change: func(meta *format.FileMetaData) { list(&meta.Schema[1]) },
			row:    parquet.Row{value(7, 0, 1), value(8, 1, 1)},
			want:   "[7,8]",
		},
		"a list of tuples": {
			node:   parquet.Group{"v_tuple": parquet.Repeated(parquet.Group{"a": whole})},
			change: func(meta *format.FileMetaData) { list(&meta.Schema[1]) },
			row:    parquet.Row{value(7, 0, 1), value(8, 1, 1)},
			want:   `[{"a":7},{"a":8}]`,
		},
		"a repeated value without a list": {
			node:   parquet.Repeated(whole),
			change: func(*format.FileMetaData) {},
			row:    parquet.Row{value(7, 0, 1), value(8, 1, 1)},
			want:   "[7,8]",
		},
		"a repeated group without a list": {
			node:   parquet.Optional(parquet.Group{"phone": parquet.Repeated(parquet.Group{"number": whole})}),
			change: func(*format.FileMetaData) {},
			row:    parquet.Row{value(7, 0, 2), value(8, 1, 2)},
			want:   `{"phone":[{"number":7},{"number":8}]}`,
		},
		"a map without values": {
			node: parquet.Group{"key_value": parquet.Repeated(parquet.Group{"key": whole})},
			change: func(meta *format.FileMetaData) {
				meta.Schema[1].ConvertedType.Set(deprecated.Map)
			},
			row:  parquet.Row{value(7, 0, 1), value(8, 1, 1)},
			want: `{"key_value":[{"key":7},{"key":8}]}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			w := parquet.NewWriter(&b, parquet.NewSchema("x", parquet.Group{"v": test.node}))
			must.Get(w.WriteRows([]parquet.Row{test.row}))(t)
			must.Succeed(t, w.Close())
			texts, err := read(t, rewrite(t, b.Bytes(), func(meta *format.FileMetaData, _ []page) { test.change(meta) }))
			if err != nil || !slices.Equal(texts, []string{test.want}) {
				t.Errorf("%v, got %q, want %s", err, texts, test.want)
			}
		})
	}
}
