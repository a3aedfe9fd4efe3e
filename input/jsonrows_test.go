package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

// readFile returns the rows of a file as "id: text", or the failure.
func readFile(t testing.TB, content string, opts Options) (rows []string, failure string) {
	t.Helper()
	r, err := Open(strings.NewReader(content), int64(len(content)), opts)
	for err == nil {
		var row rowmill.Row
		if err = r.Next(&row); err == nil {
			rows = append(rows, fmt.Sprintf("%s: %s", row.ID.Text, row.Text))
		}
	}
	if r != nil {
		must.Succeed(t, r.Close())
	}
	if errors.Is(err, io.EOF) {
		return rows, ""
	}
	var told *rowmill.Failure
	if !errors.As(err, &told) || told.Code != rowmill.CodeInvalidInputFile {
		t.Fatalf("error %v", err)
	}
	return rows, told.Message
}

func TestJSONLines(t *testing.T) {
	t.Parallel()
	lines := "\xEF\xBB\xBF" + `{"id": 7, "text": "one\n", "messages": [{"content": "a"}, {"content": "b"}], "a.b": "dotted", "a": {"b": "deep", "c": null}}` + "\r\n\r\n" +
		`  {"id": "x", "text": {"k": [1, 2.50]}, "messages": [{"content": 3}, {"content": true}], "a": {"b": "deep", "c": "c"}, "text": {"last":  "wins"}}` + "\n" +
		`{"text": null, "messages": [{}, {"content": ""}], "a.b": "", "a": {"c": "é"}}`
	for _, tt := range []struct {
		column, id string
		want       []string
	}{
		{"text", "", []string{": one\n", `: {"last":"wins"}`, ": "}},
		{"text", "id", []string{"7: one\n", `x: {"last":"wins"}`, ": "}},
		{"messages.1.content", "id", []string{"7: b", "x: true", ": "}},
		{"a.b", "", []string{": dotted", ": deep", ": "}},
		{"a.c", "", []string{": ", ": c", ": é"}},
	} {
		for _, compressed := range []bool{false, true} {
			content := lines
			if compressed {
				var packed bytes.Buffer
				w := gzip.NewWriter(&packed)
				_, _ = io.WriteString(w, lines)
				must.Succeed(t, w.Close())
				content = packed.String()
			}
			rows, failure := readFile(t, content, Options{Column: tt.column, IDColumn: tt.id})
			if diff := cmp.Diff(tt.want, rows); diff != "" || failure != "" {
				t.Errorf("%s: %s\n%s", tt.column, failure, diff)
			}
		}
	}
}

func TestJSONLines_Errors(t *testing.T) {
	t.Parallel()
	good := `{"a":"1","b":{"c":"2"}}` + "\n"
	for _, tt := range []struct {
		content string
		opts    Options
		want    string
	}{
		{good, Options{}, `Set column_name to the member with the text of each row; the first object has the members "a", "b".`},
		{good + `{"a"`, Options{Column: "a"}, "Line 2 of the JSON Lines input is not a JSON object."},
		{good + `["a"]`, Options{Column: "a"}, "Line 2 of the JSON Lines input is not a JSON object."},
		{good + "{\"a\":\"\xFF\"}", Options{Column: "a"}, "Line 2 of the JSON Lines input is not UTF-8."},
		{good + "\n" + `{"z":1}`, Options{Column: "a"}, `Line 3 of the JSON Lines input has no member "a". It has one member, "z".`},
		{good, Options{Column: "b.d"}, `Line 1 of the JSON Lines input has no member "b.d".`},
		{good, Options{Column: "b.c.d"}, `Line 1 of the JSON Lines input has no member "b.c.d".`},
		{good, Options{Column: "a", IDColumn: "a"}, "column_name and id_column_name are the same member"},
		{good, Options{Column: "a", IDColumn: "b"}, "is not a single value"},
		{good + `{"a":"` + strings.Repeat("x", 100) + `"}`, Options{Column: "a", Limits: Limits{MaxRowBytes: 50}}, "The text of row 1 (line 2) has 100 bytes, more than 50."},
		{good + `{"a":"` + strings.Repeat("x", 100) + `"}`, Options{Column: "a", Limits: Limits{MaxRecordBytes: 90}}, "Line 2 of the JSON Lines input has more than 90 bytes."},
		{good + good, Options{Column: "a", Limits: Limits{MaxRows: 1}}, "The input has more than 1 rows."},
	} {
		if _, failure := readFile(t, tt.content, tt.opts); !strings.Contains(failure, tt.want) {
			t.Errorf("%q: got %q, want %q", tt.content, failure, tt.want)
		}
	}
}

func TestJSONLines_FieldsOfAFunction(t *testing.T) {
	t.Parallel()
	fields := func(required bool) Options {
		return Options{Fields: &PromptFields{
			Names: []string{"x", "y.z"}, Required: []bool{required, false},
			Size:      func(v []string) int64 { return int64(len(v[0]) + len(v[1])) },
			Render:    func(v []string) string { return v[0] + "+" + v[1] },
			RowFields: func([]string) string { return "" },
		}}
	}
	rows, failure := readFile(t, `{"x":"a","y":{"z":1}}`+"\n"+`{"x":"b"}`, fields(true))
	if diff := cmp.Diff([]string{": a+1", ": b+"}, rows); diff != "" || failure != "" {
		t.Error(failure, diff)
	}
	if _, failure := readFile(t, `{"y":{"z":1}}`, fields(true)); !strings.Contains(failure, `no member "x"`) {
		t.Error(failure)
	}
	if _, failure := readFile(t, `{"q":1}`, fields(false)); !strings.Contains(failure, "no member that the prompt uses") {
		t.Error(failure)
	}
}

// FuzzMember compares paths of two steps with encoding/json.
func FuzzMember(f *testing.F) {
	f.Add(`{"a":{"b":[1,"x",{"c":null}]},"b":1}`, "a", "b")
	f.Add(`{"a":[{"b":2},[]," ] "],"a.1":{}}`, "a", "1")
	f.Add(`{ "a" : [ 1 , [ 2 ] , 3 ] }`, "a", "2")
	f.Fuzz(func(t *testing.T, text, first, second string) {
		if !json.Valid([]byte(text)) || !isObject([]byte(text)) || strings.ContainsRune(first+second, '.') || !sameNames(text) {
			return
		}
		var object map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &object) != nil {
			return
		}
		if _, dotted := object[first+"."+second]; dotted {
			return
		}
		inner, has := object[first]
		var want json.RawMessage
		var asObject map[string]json.RawMessage
		var asArray []json.RawMessage
		n := 0
		switch {
		case !has:
		case inner[0] == '{' && json.Unmarshal(inner, &asObject) == nil:
			want, has = asObject[second]
		case inner[0] == '[' && json.Unmarshal(inner, &asArray) == nil:
			if _, err := fmt.Sscanf(second, "%d", &n); err != nil || fmt.Sprint(n) != second || n < 0 || n >= len(asArray) {
				return // "+1" and "01" are positions too
			}
			want = asArray[n]
		default:
			has = false
		}
		got, there := lookupPath(bytes.TrimSpace([]byte(text)), first+"."+second)
		if there != has || has && string(bytes.TrimSpace(got)) != string(want) {
			t.Fatalf("%s at %q.%q: got %s, %v; want %s, %v", text, first, second, got, there, want, has)
		}
	})
}
