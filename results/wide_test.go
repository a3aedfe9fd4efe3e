package results

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

// keptOf returns a file with columns of all kinds, and the values of its rows.
func keptOf(t *testing.T, rows int64, more ...string) (file *bytes.Reader, columns []KeptColumn) {
	t.Helper()
	for name, kind := range map[string]rowmill.IDKind{"text": rowmill.IDString, "int": rowmill.IDInt, "uint": rowmill.IDUint, "float": rowmill.IDFloat, "a, bool": rowmill.IDBool} {
		columns = append(columns, KeptColumn{name, rowmill.IDType{IDKind: kind}})
	}
	for _, name := range more {
		columns = append(columns, KeptColumn{name, rowmill.IDType{IDKind: rowmill.IDString}})
	}
	return writeKept(t, rows, columns), columns
}

func writeKept(t *testing.T, rows int64, columns []KeptColumn) *bytes.Reader {
	t.Helper()
	var out bytes.Buffer
	row := int64(0)
	must.Succeed(t, WriteKept(t.Context(), &out, columns, func(values []rowmill.ID) error {
		if row == rows {
			return io.EOF
		}
		for c := range values {
			values[c] = sampleID(columns[c].IDKind, row)
		}
		row++
		return nil
	}))
	return bytes.NewReader(out.Bytes())
}

// rowsOf returns the "rows" file with entries.
func rowsOf(t *testing.T, s Schema, entries []entry) *bytes.Reader {
	t.Helper()
	var rows bytes.Buffer
	must.Get(ConcatRows(t.Context(), &rows, s, []Source{writePart(t, s, entries)}))(t)
	return bytes.NewReader(rows.Bytes())
}

// rowsOfJSON returns the rows of a file as JSON, with their members by name.
func rowsOfJSON(t *testing.T, file Source, s Schema, v FileVariant) (rows []map[string]any) {
	t.Helper()
	var lines bytes.Buffer
	must.Succeed(t, WriteJSONLines(t.Context(), &lines, file, s, v))
	for line := range strings.Lines(lines.String()) {
		var row map[string]any
		must.Succeed(t, json.Unmarshal([]byte(line), &row))
		rows = append(rows, row)
	}
	return rows
}

// A file with kept columns has the values of the input and the values of the results, for all
// rows and for a sample. Its variants have only the columns that a client wants.
func TestKept(t *testing.T) {
	t.Parallel()
	const rows = 3000
	all := FileVariant{Inputs: true, Logprobs: true, Columns: AllColumns}
	for name, s := range schemas() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kept, columns := keptOf(t, rows)
			chosen := roaring.BitmapOf(0, 7, 1500, 2999)
			for _, sample := range []*roaring.Bitmap{nil, chosen} {
				numbers := make([]uint32, rows)
				for i := range numbers {
					numbers[i] = uint32(i)
				}
				if sample != nil {
					numbers = sample.ToArray()
				}
				entries := sampleEntries(s, 0, len(numbers))
				full, rowsFile := fullOf(t, s, entries), rowsOf(t, s, entries)
				var out bytes.Buffer
				must.Succeed(t, WriteWide(t.Context(), &out, WideSource{Full: full, Rows: rowsFile, Kept: kept, Chosen: sample}))
				file := bytes.NewReader(out.Bytes())
				schema := must.Get(ReadSchema(file))(t)
				plain, got := rowsOfJSON(t, full, s, Full), rowsOfJSON(t, file, schema, all)
				var values []map[string]any
				for _, c := range columns { // the values as the results write an ID
					id := Schema{JobID: "j", IDColumn: c.Name, IDType: c.IDType}
					var entries []entry
					for row := range int64(rows) {
						entries = append(entries, entry{row: rowmill.Row{Index: row, ID: sampleID(c.IDKind, row)}})
					}
					for i, row := range rowsOfJSON(t, fullOf(t, id, entries), id, FileVariant{}) {
						if len(values) <= i {
							values = append(values, map[string]any{})
						}
						values[i][c.Name] = row[c.Name]
					}
				}
				for i, row := range got {
					for name, value := range values[numbers[i]] {
						plain[i][name] = value
					}
					if !reflect.DeepEqual(row, plain[i]) {
						t.Fatalf("row %d is %v, want %v", i, row, plain[i])
					}
				}
				if len(got) != len(numbers) {
					t.Fatalf("%d rows, want %d", len(got), len(numbers))
				}
				two := FileVariant{Columns: NewColumnNames("int", "a, bool")}
				out.Reset()
				must.Succeed(t, WriteSubset(t.Context(), &out, file, schema, two))
				subset := must.Get(ReadSchema(bytes.NewReader(out.Bytes())))(t)
				for _, row := range rowsOfJSON(t, bytes.NewReader(out.Bytes()), subset, two)[:3] {
					for _, name := range []string{"int", "a, bool", testJob} {
						if _, has := row[name]; !has {
							t.Errorf("a row of the subset lacks %q: %v", name, row)
						}
					}
					if want := 3 + len(s.IDColumn)/len("my id"); len(row) != want {
						t.Errorf("a row of the subset has %d columns, want %d: %v", len(row), want, row)
					}
				}
			}
		})
	}
}

// The ID and the fields of a prompt are once in the file. A column of the input with the name
// of another column of the results, and other rows, are errors.
func TestKept_Names(t *testing.T) {
	t.Parallel()
	id := rowmill.ID{Kind: rowmill.IDString, Text: "1"}
	s := Schema{JobID: testJob, IDColumn: "key", IDType: rowmill.IDType{IDKind: rowmill.IDString}, Fields: []string{"name", "int"}}
	entries := []entry{{rowmill.Row{ID: id, Text: "t", Fields: `["a","5"]`}, rowmill.RowOutput{Text: "x"}}}
	full, rowsFile := fullOf(t, s, entries), rowsOf(t, s, entries)
	write := func(kept Source, sample *roaring.Bitmap) (Schema, error) {
		var out bytes.Buffer
		if err := WriteWide(t.Context(), &out, WideSource{Full: full, Rows: rowsFile, Kept: kept, Chosen: sample}); err != nil {
			return Schema{}, err
		}
		return ReadSchema(bytes.NewReader(out.Bytes()))
	}
	kept, columns := keptOf(t, 1, "key")
	got := must.Get(write(kept, nil))(t)
	if got.IDColumn != "key" || !reflect.DeepEqual(got.Fields, []string{"name"}) || len(got.Kept) != len(columns)-1 {
		t.Errorf("ID %q, fields %q, kept %v", got.IDColumn, got.Fields, namesOf(got.Kept))
	}
	alone := writeKept(t, 1, []KeptColumn{{"key", rowmill.IDType{IDKind: rowmill.IDString}}})
	if got := must.Get(write(alone, nil))(t); got.IDColumn != "key" || len(got.Kept) != 0 {
		t.Errorf("with the ID column alone: ID %q, kept %v", got.IDColumn, namesOf(got.Kept))
	}
	for _, name := range []string{"inputs", "outputs", testJob, "RESERVED_x"} {
		bad, _ := keptOf(t, 1, name)
		if _, err := write(bad, nil); err == nil {
			t.Errorf("a column of the input can have the name %q", name)
		}
	}
	more, _ := keptOf(t, 2)
	for name, sample := range map[string]*roaring.Bitmap{"more rows": nil, "a larger sample": roaring.BitmapOf(0, 1), "a row that does not exist": roaring.BitmapOf(2)} {
		if _, err := write(more, sample); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// With meta a row has the facts about its run, and the file has the specification of the job. A
// property of the answers with the name of such a column keeps its name.
func TestMeta(t *testing.T) {
	t.Parallel()
	s := Schema{JobID: testJob, Output: "answer", Model: "m"}
	entries := sampleEntries(s, 0, 50)
	var out, subset bytes.Buffer
	must.Succeed(t, WriteWide(t.Context(), &out, WideSource{
		Full: fullOf(t, s, entries), Rows: rowsOf(t, s, entries), Answers: json.RawMessage(`{"properties":{"server":{}}}`), Specification: `{"model":"m"}`,
	}))
	wide := must.Get(ReadSchema(bytes.NewReader(out.Bytes())))(t)
	v := FileVariant{Meta: true}
	must.Succeed(t, WriteSubset(t.Context(), &subset, bytes.NewReader(out.Bytes()), wide, v))
	schema := must.Get(ReadSchema(bytes.NewReader(subset.Bytes())))(t)
	if schema.Specification != `{"model":"m"}` || namesOf(wide.Unpacked)[0] != "server" {
		t.Errorf("specification %s, unpacked columns %v", schema.Specification, wide.Unpacked)
	}
	null := func(text string) any {
		if text == "" {
			return nil
		}
		return text
	}
	for i, got := range rowsOfJSON(t, bytes.NewReader(subset.Bytes()), schema, v) {
		o := entries[i].out
		want := map[string]any{
			"answer": o.Text, "finish_reason": null(string(o.Finish)), "input_tokens": float64(o.InputTokens), "output_tokens": float64(o.OutputTokens),
			"answer.server": null(o.Engine), "duration_seconds": o.Seconds, "attempts": float64(o.Attempts), "error_code": nil, "error": nil,
		}
		if o.Failed() {
			want["answer"], want["error_code"], want["error"] = nil, o.Err.Code, o.Err.Message
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("row %d is %v, want %v", i, got, want)
		}
	}
}
