package input_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/internal/must"
)

// fields returns PromptFields that join the values of columns. A name that ends in ? is
// optional.
func fields(names ...string) *input.PromptFields {
	f := &input.PromptFields{
		Size:      func(values []string) int64 { return int64(len(strings.Join(values, "|"))) },
		Render:    func(values []string) string { return strings.Join(values, "|") },
		RowFields: func(values []string) string { return fmt.Sprintf("%q", values) },
	}
	for _, name := range names {
		plain, optional := strings.CutSuffix(name, "?")
		f.Names, f.Required = append(f.Names, plain), append(f.Required, !optional)
	}
	return f
}

// The interface says: URL inputs of a Function are read as rows whose columns
// match the Function's inputs.
func TestFieldsOfAFile(t *testing.T) {
	t.Parallel()
	type list struct {
		ID    int64    `parquet:"id"`
		Extra string   `parquet:"extra"`
		B     *float64 `parquet:"b,optional"`
		A     []string `parquet:"a,list"`
	}
	half := 0.5
	var file bytes.Buffer
	must.Succeed(t, parquet.Write(&file, []list{{7, "x", &half, []string{"é", "\""}}, {8, "y", nil, nil}}))
	for name, test := range map[string]struct {
		data []byte
		opts input.Options
		want []rowmill.Row
	}{
		"csv": {
			[]byte("extra,b,a\n1,2,3\n,,\"4\n5\"\n"),
			input.Options{Fields: fields("a", "b", "c?")},
			[]rowmill.Row{{Index: 0, Text: "3|2|"}, {Index: 1, Text: "4\n5||"}},
		},
		"csv with ids": {
			[]byte("b,id,a\n2,007,3\n"),
			input.Options{Fields: fields("a?", "b"), IDColumn: "id"},
			[]rowmill.Row{{Text: "3|2", ID: rowmill.ID{Kind: rowmill.IDString, Text: "007"}}},
		},
		"gzip": {zip(t, []byte("a\n1\n")), input.Options{Fields: fields("a", "b?")}, []rowmill.Row{{Text: "1|"}}},
		"parquet": {
			file.Bytes(),
			input.Options{Fields: fields("b", "x?", "a")},
			[]rowmill.Row{{Index: 0, Text: `0.5||["é","\""]`}, {Index: 1, Text: "||[]"}},
		},
		"parquet with ids": {
			file.Bytes(),
			input.Options{Fields: fields("extra", "b"), IDColumn: "id"},
			[]rowmill.Row{
				{Index: 0, Text: "x|0.5", ID: rowmill.ID{Kind: rowmill.IDInt, Int: 7}},
				{Index: 1, Text: "y|", ID: rowmill.ID{Kind: rowmill.IDInt, Int: 8}},
			},
		},
	} {
		got, _, err := read(t, test.data, test.opts)
		for i, row := range test.want {
			test.want[i].Fields = fmt.Sprintf("%q", strings.Split(row.Text, "|"))
		}
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestFieldsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		data string
		opts input.Options
		want []string
	}{
		"required":   {"a,c\n1,2\n", input.Options{Fields: fields("a", "b")}, []string{`no column "b", which the prompt names`, `"a", "c"`}},
		"case":       {"A\n1\n", input.Options{Fields: fields("a")}, []string{`Did you mean "A"?`}},
		"none":       {"x\n1\n", input.Options{Fields: fields("a?", "b?")}, []string{"no column that the prompt uses", `"a", "b"`, `"x"`}},
		"twice":      {"a,b,a\n1,2,3\n", input.Options{Fields: fields("a?")}, []string{`"a", appears 2 times`}},
		"id":         {"a\n1\n", input.Options{Fields: fields("a"), IDColumn: "id"}, []string{`no column "id", which id_column_name names`}},
		"too long":   {"a,b\n1,2\n123,456\n", input.Options{Fields: fields("a", "b"), Limits: input.Limits{MaxRowBytes: 6}}, []string{"prompt of row 1 (line 3) has 7 bytes, more than 6"}},
		"no inputs":  {"a\n1\n", input.Options{Fields: fields()}, []string{"no column that the prompt uses"}},
		"ragged row": {"a,b\n1\n", input.Options{Fields: fields("a")}, []string{"Line 2"}},
	} {
		_, _, err := read(t, []byte(test.data), test.opts)
		var failure *rowmill.Failure
		if !errors.As(err, &failure) || failure.Code != rowmill.CodeInvalidInputFile {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(failure.Message, want) {
				t.Errorf("%s: %q does not contain %q", name, failure.Message, want)
			}
		}
	}
}

func TestSpooledObjects(t *testing.T) {
	t.Parallel()
	text := func(row int64, object []byte) (text, fields string, err error) {
		if string(object) == `{"bad":1}` {
			return "", "", rowmill.Failf(rowmill.CodeInvalidInputFile, "row %d is bad", row)
		}
		return fmt.Sprintf("%d:%s", row, object), `["kept"]`, nil
	}
	got, err := drain(input.NewSpooledObjectReader(strings.NewReader("\"{plain}\"\n{\"a\":1}\n"), text))
	want := []rowmill.Row{{Index: 0, Text: "{plain}"}, {Index: 1, Text: `1:{"a":1}`, Fields: `["kept"]`}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	_, err = drain(input.NewSpooledObjectReader(strings.NewReader("\"a\"\n{\"bad\":1}\n"), text))
	var failure *rowmill.Failure
	if !errors.As(err, &failure) || failure.Message != "row 1 is bad" {
		t.Errorf("failure: %v", err)
	}
	if _, err = drain(input.NewSpooledReader(strings.NewReader("{\"secret\":1}\n"))); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("an object without a Function: %v", err)
	}
}
