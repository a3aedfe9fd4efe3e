package results

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

// fullOf returns the full file of entries.
func fullOf(tb testing.TB, s Schema, entries []entry) *bytes.Reader {
	tb.Helper()
	var full bytes.Buffer
	must.Get(ConcatParts(context.Background(), &full, s, []Source{writePart(tb, s, entries)}, Full))(tb)
	return bytes.NewReader(full.Bytes())
}

// fewEntries returns entries with each kind of cell.
func fewEntries(s Schema) []entry {
	failed := &rowmill.RowError{Code: rowmill.RowRejected, Message: "no"}
	entries := []entry{
		{rowmill.Row{Text: "a \"b\",\r\nc"}, rowmill.RowOutput{Text: "{\"x\":\t1}", Embedding: []float32{1, -0.5}, Score: 100, HasScore: true}},
		{rowmill.Row{Index: 1}, rowmill.RowOutput{Text: "", Embedding: []float32{1e-9}}},
		{rowmill.Row{Index: 2, Text: "∂"}, rowmill.RowOutput{Err: failed}},
	}
	ids := map[rowmill.IDKind]rowmill.ID{
		rowmill.IDString: {Text: "007"}, rowmill.IDInt: {Int: -7}, rowmill.IDUint: {Int: -1},
		rowmill.IDFloat: {Real: 2}, rowmill.IDBool: {Int: 1},
	}
	for i := range entries {
		if s.Embedding {
			entries[i].out.Text = ""
		} else {
			entries[i].out.Embedding = nil
		}
		if id, ok := ids[s.IDKind]; ok && i < 2 {
			id.Kind = s.IDKind
			entries[i].row.ID = id
		}
	}
	return entries
}

func IDText(k rowmill.IDKind) string {
	return map[rowmill.IDKind]string{
		rowmill.IDString: "007", rowmill.IDInt: "-7", rowmill.IDUint: "18446744073709551615",
		rowmill.IDFloat: "2.0", rowmill.IDBool: "true",
	}[k]
}

func TestWriteJSONExactly(t *testing.T) {
	t.Parallel()
	for name, s := range schemas() {
		for _, v := range variants() {
			want := `{"outputs":["{\"x\":\t1}","",null]`
			if s.Embedding {
				want = `{"outputs":[[1.0,-0.5],[1e-09],null]`
			} else {
				want = strings.Replace(want, "\t", `\t`, 1)
			}
			if v.Inputs {
				want += `,"inputs":["a \"b\",\r\nc","","∂"]`
			}
			if v.Logprobs {
				want += `,"cumulative_logprobs":[100.0,null,null]`
			}
			if id := IDText(s.IDKind); s.IDKind == rowmill.IDString {
				want += `,"my id":["` + id + `","` + id + `",null]`
			} else if id != "" {
				want += `,"my id":[` + id + `,` + id + `,null]`
			}
			want += "}"
			var got bytes.Buffer
			must.Succeed(t, WriteJSON(context.Background(), &got, fullOf(t, s, fewEntries(s)), s, v))
			if got.String() != want {
				t.Errorf("%s %s:\n got %s\nwant %s", name, v.Name(), got.String(), want)
			}
		}
	}
}

// The lines of JSON Lines have the values of JSON.
func TestWriteJSONLines(t *testing.T) {
	t.Parallel()
	for name, s := range schemas() {
		s.Output = "the \"answer\""
		for _, v := range variants() {
			var document, lines bytes.Buffer
			full := fullOf(t, s, fewEntries(s))
			must.Succeed(t, WriteJSON(t.Context(), &document, full, s, v))
			must.Succeed(t, WriteJSONLines(t.Context(), &lines, full, s, v))
			var want map[string][]json.RawMessage
			must.Succeed(t, json.Unmarshal(document.Bytes(), &want))
			got := map[string][]json.RawMessage{}
			for line := range strings.Lines(lines.String()) {
				var row map[string]json.RawMessage
				must.Succeed(t, json.Unmarshal([]byte(line), &row))
				row["outputs"] = row[s.Output]
				delete(row, s.Output)
				for column, value := range row {
					got[column] = append(got[column], value)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s %s (-JSON +JSON Lines):\n%s", name, v.Name(), diff)
			}
		}
	}
}

// An infinite ID must not be lost, although JSON has no number for it.
func TestWriteInfiniteIDs(t *testing.T) {
	t.Parallel()
	s := schemas()["float/generation"]
	var entries []entry
	for i, v := range []float64{math.Inf(1), math.Inf(-1), 0.5} {
		entries = append(entries, entry{rowmill.Row{Index: int64(i), ID: rowmill.ID{Kind: rowmill.IDFloat, Real: v}}, rowmill.RowOutput{Text: "x"}})
	}
	var got bytes.Buffer
	if err := WriteJSON(context.Background(), &got, fullOf(t, s, entries), s, FileVariant{}); err != nil || !strings.HasSuffix(got.String(), `"my id":["Infinity","-Infinity",0.5]}`) {
		t.Errorf("JSON %s, %v", got.String(), err)
	}
	if text := csvOf(t, fullOf(t, s, entries), s, FileVariant{}); !strings.HasSuffix(text, "\r\nInfinity,x\r\n-Infinity,x\r\n0.5,x\r\n") {
		t.Errorf("CSV %q", text)
	}
}

func TestWriteCSVExactly(t *testing.T) {
	t.Parallel()
	for name, s := range schemas() {
		for _, v := range variants() {
			id := IDText(s.IDKind)
			rows := [][]string{
				{"my id", "inputs", testJob, "cumulative_logprobs"},
				{id, "\"a \"\"b\"\",\r\nc\"", "\"{\"\"x\"\":\t1}\"", "100.0"},
				{id, `""`, `""`, ""},
				{"", "∂", "", ""},
			}
			if s.Embedding {
				rows[1][2], rows[2][2] = `"[1.0,-0.5]"`, `"[1e-09]"`
			}
			want := ""
			for _, row := range rows {
				var cells []string
				for i, keep := range []bool{id != "", v.Inputs, true, v.Logprobs} {
					if keep {
						cells = append(cells, row[i])
					}
				}
				want += strings.Join(cells, ",") + "\r\n"
			}
			if got := csvOf(t, fullOf(t, s, fewEntries(s)), s, v); got != want {
				t.Errorf("%s %s:\n got %q\nwant %q", name, v.Name(), got, want)
			}
		}
	}
}

// csvOf returns the CSV file in the archive that WriteCSVZip makes.
func csvOf(tb testing.TB, full Source, s Schema, v FileVariant) string {
	tb.Helper()
	var archive bytes.Buffer
	must.Succeed(tb, WriteCSVZip(context.Background(), &archive, full, s, v))
	z, err := zip.NewReader(bytes.NewReader(archive.Bytes()), int64(archive.Len()))
	if err != nil || len(z.File) != 1 || z.File[0].Name != s.JobID+".csv" {
		tb.Fatalf("archive: %v, %d files", err, len(z.File))
	}
	f, err := z.File[0].Open()
	must.Succeed(tb, err)
	text, err := io.ReadAll(f)
	must.Succeed(tb, err)
	return string(text)
}

// Readers of other programs must see the values that were written.
func TestExportsReadBack(t *testing.T) {
	t.Parallel()
	s := schemas()["int/generation"]
	all := sampleEntries(s, 0, 5000)
	full := fullOf(t, s, all)
	var text bytes.Buffer
	must.Succeed(t, WriteJSON(context.Background(), &text, full, s, Full))
	var object struct {
		Outputs []*string  `json:"outputs"`
		Inputs  []string   `json:"inputs"`
		Scores  []*float64 `json:"cumulative_logprobs"`
		IDs     []*int64   `json:"my id"`
	}
	must.Succeed(t, json.Unmarshal(text.Bytes(), &object))
	records := must.Get(csv.NewReader(strings.NewReader(csvOf(t, full, s, Full))).ReadAll())(t)
	if len(object.Outputs) != len(all) || len(records) != len(all)+1 {
		t.Fatalf("%d outputs in JSON and %d lines of CSV for %d rows", len(object.Outputs), len(records), len(all))
	}
	unix := func(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") } // encoding/csv does the same
	for i, e := range all {
		record := records[i+1]
		if object.Inputs[i] != e.row.Text || record[1] != unix(e.row.Text) {
			t.Fatalf("row %d: inputs %q and %q, want %q", i, object.Inputs[i], record[1], e.row.Text)
		}
		if (object.Outputs[i] == nil) != e.out.Failed() || !e.out.Failed() && *object.Outputs[i] != e.out.Text || record[2] != unix(e.out.Text) {
			t.Fatalf("row %d: outputs %v and %q, want %q", i, object.Outputs[i], record[2], e.out.Text)
		}
		if (object.Scores[i] != nil) != e.out.HasScore || e.out.HasScore && (*object.Scores[i] != e.out.Score || record[3] != fmt.Sprintf("%.1f", e.out.Score)) {
			t.Fatalf("row %d: scores %v and %q, want %v", i, object.Scores[i], record[3], e.out.Score)
		}
		if null := e.row.ID.Kind == rowmill.IDNull; (object.IDs[i] == nil) != null || !null && (*object.IDs[i] != e.row.ID.Int || record[0] != strconv.FormatInt(e.row.ID.Int, 10)) {
			t.Fatalf("row %d: IDs %v and %q, want %v", i, object.IDs[i], record[0], e.row.ID)
		}
	}
}

func TestExportsOfNothing(t *testing.T) {
	t.Parallel()
	s := schemas()["none/generation"]
	full := fullOf(t, s, nil)
	var text bytes.Buffer
	if err := WriteJSON(context.Background(), &text, full, s, FileVariant{}); err != nil || text.String() != `{"outputs":[]}` {
		t.Errorf("JSON %q, %v", text.String(), err)
	}
	if got := csvOf(t, full, s, FileVariant{}); got != testJob+"\r\n" {
		t.Errorf("CSV %q", got)
	}
}

func TestExportsReportTheWriter(t *testing.T) {
	t.Parallel()
	s := schemas()["none/generation"]
	full := fullOf(t, s, sampleEntries(s, 0, 20_000))
	for room := range 3 {
		if err := WriteJSON(context.Background(), &failingWriter{room * 100_000}, full, s, Full); !errors.Is(err, errDiskFull) {
			t.Errorf("JSON: error %v", err)
		}
		if err := WriteCSVZip(context.Background(), &failingWriter{room * 10_000}, full, s, Full); !errors.Is(err, errDiskFull) {
			t.Errorf("CSV: error %v", err)
		}
		if err := WriteSubset(context.Background(), &failingWriter{room * 10_000}, full, s, Full); !errors.Is(err, errDiskFull) {
			t.Errorf("Parquet: error %v", err)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	if got := Filename("job-1", FileVariant{Inputs: true}, "parquet"); got != "service-results~job-1~inputs=1~logprobs=0.parquet" {
		t.Error(got)
	}
	var names []string
	for _, v := range variants() {
		names = append(names, v.Name())
	}
	if want := []string{"inputs=0~logprobs=0", "inputs=1~logprobs=0", "inputs=0~logprobs=1", "inputs=1~logprobs=1"}; !slices.Equal(names, want) {
		t.Error(names)
	}
}

func FuzzCell(f *testing.F) {
	f.Add("a\"\\\x00\x1f\u2028é")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return
		}
		line := append(appendCSVCell(nil, []byte(s)), "\r\n"...)
		record, err := csv.NewReader(bytes.NewReader(line)).Read()
		if want := strings.ReplaceAll(s, "\r\n", "\n"); err != nil || len(record) != 1 || record[0] != want {
			t.Errorf("%q reads back as %q, %v", s, record, err)
		}
	})
}

func FuzzFloat(f *testing.F) {
	for _, v := range []float64{0, 1, -1, 0.1, 1e21, 1e20, 1e-7, math.MaxFloat64, math.SmallestNonzeroFloat64, math.Inf(1)} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v float64) {
		text := string(appendFloat(nil, v, 64, true))
		if math.IsNaN(v) || math.IsInf(v, 0) {
			if text != "null" {
				t.Errorf("%v is %s", v, text)
			}
			return
		}
		var back float64
		if err := json.Unmarshal([]byte(text), &back); err != nil || back != v || !strings.ContainsAny(text, ".e") {
			t.Errorf("%v is %s, which reads back as %v, %v", v, text, back, err)
		}
	})
}
