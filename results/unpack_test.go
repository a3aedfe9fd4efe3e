package results

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/columnar"
	"github.com/rowmill/rowmill/internal/must"
)

// opinionSchema is a schema as Pydantic writes it, with a property that has the name of another
// column.
const opinionSchema = `{
	"$defs": {"Label": {"enum": ["good", "bad"], "type": "string"}, "Loop": {"$ref": "#/$defs/Loop"}, "a/b": {"type": "boolean"}},
	"required": ["why", "stars"],
	"properties": {
		"label": {"$ref": "#/$defs/Label"},
		"stars": {"type": "integer"},
		"weight": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": null},
		"sure": {"allOf": [{"$ref": "#/$defs/a~1b"}]},
		"tags": {"type": "array", "items": {"type": "string"}},
		"loop": {"$ref": "#/$defs/Loop"},
		"either": {"type": ["integer", "string"]},
		"maybe": {"type": ["integer", "null"]},
		"inputs": {"type": "string"}
	},
	"type": "object"
}`

func TestUnpack(t *testing.T) {
	t.Parallel()
	s := Schema{JobID: testJob, Output: "answer", Model: "m"}
	whole := `{"label":"good","stars":4,"weight":0.5,"sure":true,"tags":["a", "b"],"loop":{"x": 1},"either":7,"maybe":-1,"inputs":"own"}`
	reasoned := must.Get(json.Marshal(map[string]string{"reasoning_content": "because", "content": whole}))(t)
	answers := []string{whole, string(reasoned), `{"stars":4.0,"weight":null,"sure":"yes","either":"x","maybe":9007199254740993}`, `{"stars":1.5,"maybe":1e300}`, "no JSON", "[1]", ""}
	var entries []entry
	for i, answer := range answers {
		out := rowmill.RowOutput{Text: answer}
		if answer == "" {
			out = rowmill.RowOutput{Err: &rowmill.RowError{Code: "no"}}
		}
		entries = append(entries, entry{rowmill.Row{Index: int64(i), Text: "t"}, out})
	}
	var file bytes.Buffer
	must.Succeed(t, WriteWide(t.Context(), &file, WideSource{Full: fullOf(t, s, entries), Rows: rowsOf(t, s, entries), Answers: json.RawMessage(opinionSchema)}))
	schema := must.Get(ReadSchema(bytes.NewReader(file.Bytes())))(t)
	const text = columnar.TableText
	want := []columnar.TableColumn{
		{Name: "label", Kind: text},
		{Name: "stars", Kind: columnar.TableInt},
		{Name: "weight", Kind: columnar.TableReal},
		{Name: "sure", Kind: columnar.TableBool},
		{Name: "tags", Kind: text},
		{Name: "loop", Kind: text},
		{Name: "either", Kind: text},
		{Name: "maybe", Kind: columnar.TableInt},
		{Name: "answer.inputs", Kind: text},
	}
	if !reflect.DeepEqual(schema.Unpacked, want) {
		t.Errorf("columns %v, want %v", schema.Unpacked, want)
	}
	all := map[string]any{"label": "good", "stars": 4.0, "weight": 0.5, "sure": true, "tags": `["a","b"]`, "loop": `{"x":1}`, "either": "7", "maybe": -1.0, "answer.inputs": "own"}
	rows := []map[string]any{all, all, {"stars": 4.0, "either": "x", "maybe": 9007199254740993.0}, {}, {}, {}, {}}
	for i, got := range rowsOfJSON(t, bytes.NewReader(file.Bytes()), schema, FileVariant{Unpack: true}) {
		want := map[string]any{"answer": any(answers[i])}
		if answers[i] == "" {
			want["answer"] = nil
		}
		for name := range all {
			want[name] = rows[i][name]
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("row %d is %v, want %v", i, got, want)
		}
	}
	if got := rowsOfJSON(t, bytes.NewReader(file.Bytes()), schema, FileVariant{})[0]; len(got) != 1 {
		t.Errorf("without unpack a row is %v", got)
	}
}

// A schema without properties, or with properties in odd forms, gives no columns and no panic.
func TestListProperties(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string][]property{
		``:                       nil,
		`{"type":"object"}`:      nil,
		`{"properties":{}}`:      nil,
		`{"properties":[1]}`:     nil,
		`{"$ref":"#/missing"}`:   nil,
		`{"$ref":"https://x/y"}`: nil,
		`{"$ref":"#/$defs/A","$defs":{"A":{"properties":{"b":{"type":"integer"},"a":true}}}}`: {{"b", columnar.TableInt}, {"a", columnar.TableText}},
		`{"anyOf":[{"type":"null"},{"properties":{"x":{"type":"boolean"}}}]}`:                 {{"x", columnar.TableBool}},
	} {
		if got := listProperties(json.RawMessage(schema)); !reflect.DeepEqual(got, want) || HasProperties(json.RawMessage(schema)) != (want != nil) {
			t.Errorf("%s: %v, want %v", schema, got, want)
		}
	}
}
