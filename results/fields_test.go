package results

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

// TestFieldsOfAFunction writes the fields of a Function into parts and a merge.
// They must be columns after the inputs, and must be read again when another
// job takes over the rows. The output column may have a name of its own.
func TestFieldsOfAFunction(t *testing.T) {
	t.Parallel()
	for _, output := range []string{"", "answer"} {
		t.Run(output, func(t *testing.T) { testFieldsOfAFunction(t, output) })
	}
}

func testFieldsOfAFunction(t *testing.T, output string) {
	t.Helper()
	s := Schema{
		JobID: testJob, Output: output, Model: "m", IDColumn: "key", IDType: rowmill.IDType{IDKind: rowmill.IDString}, Fields: []string{"name", "a, b"},
	}
	entries := []entry{
		{rowmill.Row{Index: 0, Text: "Greet Ann", ID: rowmill.ID{Kind: rowmill.IDString, Text: "1"}, Fields: `["Ann",""]`}, rowmill.RowOutput{Text: "x"}},
		{rowmill.Row{Index: 1, Text: "a prompt"}, rowmill.RowOutput{Text: "y"}},
		{rowmill.Row{Index: 2, Text: "Greet B", Fields: EncodeFields([]string{"\"B\"\n", "<é>"})}, rowmill.RowOutput{Err: &rowmill.RowError{Code: "no", Message: "no"}}},
	}
	var merged, full, asJSON, without bytes.Buffer
	parts := []PartSource{{Source: writePart(t, s, entries[1:2])}, {Source: writePart(t, s, []entry{entries[0], entries[2]})}}
	if rows, err := MergeParts(t.Context(), &merged, s, parts); err != nil || rows != 3 {
		t.Fatalf("%d rows, %v", rows, err)
	}
	must.Get(ConcatParts(t.Context(), &full, s, []Source{bytes.NewReader(merged.Bytes())}, Full))(t)
	result := bytes.NewReader(full.Bytes())
	for _, file := range []Source{result, bytes.NewReader(merged.Bytes())} {
		if read, err := ReadSchema(file); err != nil || !reflect.DeepEqual(read, s) {
			t.Errorf("the schema is read as %+v, %v", read, err)
		}
	}
	must.Succeed(t, WriteJSON(t.Context(), &asJSON, result, s, FileVariant{Inputs: true}))
	var members map[string][]any
	must.Succeed(t, json.Unmarshal(asJSON.Bytes(), &members))
	want := map[string][]any{
		"outputs": {"x", "y", nil}, "inputs": {"Greet Ann", "a prompt", "Greet B"}, "key": {"1", nil, nil},
		"name": {"Ann", nil, "\"B\"\n"}, "a, b": {"", nil, "<é>"},
	}
	if diff := cmp.Diff(want, members); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
	text := csvOf(t, result, s, Full)
	if want := "key,inputs,name,\"a, b\"," + s.OutputName() + ",cumulative_logprobs\r\n1,Greet Ann,Ann,\"\",x,\r\n,a prompt,,,y,\r\n"; !strings.HasPrefix(text, want) {
		t.Errorf("CSV %q, want %q", text, want)
	}
	must.Succeed(t, WriteSubset(t.Context(), &without, result, s, FileVariant{}))
	if read, err := ReadSchema(bytes.NewReader(without.Bytes())); err != nil || read.Fields != nil || read.IDColumn != "key" {
		t.Errorf("without the inputs there are %+v, %v", read, err)
	}
	var taken []rowmill.Row
	must.Succeed(t, VisitPartRows(t.Context(), s, parts, func(row *rowmill.Row, _ *rowmill.RowOutput) error {
		taken = append(taken, *row)
		return nil
	}))
	for i, row := range taken {
		if diff := cmp.Diff(entries[i].row, row); diff != "" {
			t.Errorf("row %d (-want +got):\n%s", i, diff)
		}
	}
	w := must.Get(NewPartWriter(new(bytes.Buffer), s))(t)
	for _, fields := range []string{`["one"]`, `{}`, `[`} {
		if err := w.Add(&rowmill.Row{Index: 9, Fields: fields}, &rowmill.RowOutput{}); err == nil {
			t.Errorf("the fields %s were taken", fields)
		}
	}
	for _, name := range []string{"key", s.OutputName(), "outputs", "inputs", "cumulative_logprobs", "RESERVED_x"} {
		bad := s
		bad.Fields = []string{name}
		if bad.Validate() == nil {
			t.Errorf("a field may be named %q", name)
		}
	}
}
