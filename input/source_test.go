package input_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/internal/columnar"
	"github.com/rowmill/rowmill/internal/must"
)

// sourceRows returns the columns of a file with their kinds, and its rows.
func sourceRows(file []byte, opts input.Options, names []string) (head []string, rows [][]any, err error) {
	s, err := input.OpenSource(bytes.NewReader(file), int64(len(file)), opts, names)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	for _, c := range s.Columns {
		head = append(head, fmt.Sprintf("%s:%d", c.Name, c.IDKind))
	}
	for {
		values, row := make([]rowmill.ID, len(s.Columns)), []any{}
		err := s.Next(values)
		if errors.Is(err, io.EOF) {
			return head, rows, nil
		}
		if err != nil {
			return head, rows, err
		}
		for _, v := range values {
			row = append(row, map[rowmill.IDKind]any{
				rowmill.IDNull: nil, rowmill.IDString: v.Text, rowmill.IDInt: v.Int, rowmill.IDFloat: v.Real, rowmill.IDBool: v.Int != 0,
			}[v.Kind])
		}
		rows = append(rows, row)
	}
}

func TestOpenSource(t *testing.T) {
	t.Parallel()
	var packed, parquet bytes.Buffer
	w := gzip.NewWriter(&packed)
	must.Get(w.Write([]byte("a,b\n1,x\n")))(t)
	must.Succeed(t, w.Close())
	table := must.Get(columnar.NewTableWriter(&parquet, []columnar.TableColumn{{Name: "n", Kind: columnar.TableInt}, {Name: "t", Kind: columnar.TableText}}, nil, columnar.TableConfig{}))(t)
	table.AppendInt(0, 7)
	table.AppendText(1, "seven")
	must.Succeed(t, table.EndRow())
	table.AppendNull(0)
	table.AppendText(1, "")
	must.Succeed(t, errors.Join(table.EndRow(), table.Close()))
	objects := `{"i":1,"f":1,"b":true,"t":"x","m":1,"n":null,"big":12345678901234567890}` + "\n\n" +
		`{"f":2.5,"i":-2,"b":null,"t":"é\n","m":"two","o":{"a": [1, 2]},"i":3}` + "\n" + `"a prompt"` + "\n"
	for name, test := range map[string]struct {
		file   string
		format input.Format
		names  []string
		head   []string
		rows   [][]any
	}{
		"CSV":            {"a,b\n1,x\n\"2\n\",\n", "", nil, []string{"a:1", "b:1"}, [][]any{{"1", "x"}, {"2\n", ""}}},
		"chosen columns": {"a,b,c\n1,x,y\n", "", []string{"c", "a"}, []string{"c:1", "a:1"}, [][]any{{"y", "1"}}},
		"TSV":            {"a\tb\n1\tx\n", input.FormatTSV, nil, []string{"a:1", "b:1"}, [][]any{{"1", "x"}}},
		"gzip":           {packed.String(), "", []string{"b"}, []string{"b:1"}, [][]any{{"x"}}},
		"Parquet":        {parquet.String(), "", nil, []string{"n:2", "t:1"}, [][]any{{int64(7), "seven"}, {nil, ""}}},
		"JSON Lines": {
			objects, "", nil,
			[]string{"i:2", "f:4", "b:5", "t:1", "m:1", "n:1", "big:1", "o:1"},
			[][]any{{int64(1), 1.0, true, "x", "1", nil, "12345678901234567890", nil}, {int64(3), 2.5, nil, "é\n", "two", nil, nil, `{"a":[1,2]}`}, {nil, nil, nil, nil, nil, nil, nil, nil}},
		},
		"members": {objects, input.FormatJSONL, []string{"o", "i"}, []string{"o:1", "i:2"}, [][]any{{nil, int64(1)}, {`{"a":[1,2]}`, int64(3)}, {nil, nil}}},
	} {
		head, rows, err := sourceRows([]byte(test.file), input.Options{Format: test.format}, test.names)
		if diff := cmp.Diff(test.head, head); diff != "" || err != nil {
			t.Errorf("%s: %v, columns (-want +got):\n%s", name, err, diff)
		}
		if diff := cmp.Diff(test.rows, rows); diff != "" {
			t.Errorf("%s: rows (-want +got):\n%s", name, diff)
		}
	}
}

func TestOpenSource_Refuses(t *testing.T) {
	t.Parallel()
	many := strings.Builder{}
	for i := range 10_001 {
		fmt.Fprintf(&many, "{\"m%d\":1}\n", i)
	}
	for name, test := range map[string]struct {
		file  string
		names []string
		piece string
	}{
		"no column":        {"a,b\n1,x\n", []string{"A"}, `no column "A", which keep_columns names. Did you mean "a"?`},
		"two columns":      {"a,a\n1,x\n", nil, `"a", appears 2 times`},
		"two named":        {"a,a\n1,x\n", []string{"a"}, `"a", appears 2 times`},
		"no member":        {"{\"a\":1}\n", []string{"b"}, `No object of the JSON Lines input has the member "b"`},
		"strings":          {"\"a\"\n\"b\"\n", nil, "no columns to keep"},
		"too many members": {many.String(), nil, "more than 10000 different members"},
		"not JSON":         {"{\"a\":1}\nx\n", nil, "Line 2 of the JSON Lines input"},
	} {
		_, _, err := sourceRows([]byte(test.file), input.Options{}, test.names)
		if failure := (*rowmill.Failure)(nil); !errors.As(err, &failure) || !strings.Contains(err.Error(), test.piece) {
			t.Errorf("%s: %v, want %q", name, err, test.piece)
		}
	}
	if _, _, err := sourceRows([]byte(many.String()), input.Options{}, []string{"m10000"}); err != nil {
		t.Errorf("a named member of many: %v", err)
	}
	if _, _, err := sourceRows([]byte("a\nb\n"), input.Options{Format: input.FormatLines}, nil); err == nil {
		t.Error("plain text has columns")
	}
}
