package input_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input"
)

// All callers must detect the format of a file in the same way, and no first
// line may be lost. Other programs had these faults: harvard-lil/binoc#55 and
// liquidaty/zsv#620 (.tsv and .tab read with commas), SheetJS/sheetjs#732 (a
// tab in a field of a CSV), apache/superset#9874, langchain-ai/langchain#6460
// and pytorch/tutorials#1708 (the first row lost as a header),
// pkiraly/metadata-qa-api#184 (one array), nvidia-cosmos/cosmos-transfer1#206
// (one object over several lines), farling42/obsidian-import-json#39 (no error
// for bad lines), headroomlabs-ai/headroom#2316 (a line that is valid JSON but
// not an object).
func TestFormatOfAFile(t *testing.T) {
	t.Parallel()
	const csv, tsv = "id,text\n1,a\n2,b\n", "id\ttext\n1\tsays \"hi\"\n2\tb\n"
	column := input.Options{Column: "text"}
	named := func(name string, opts input.Options) input.Options { opts.Name = name; return opts }
	format := func(format input.Format, opts input.Options) input.Options { opts.Format = format; return opts }
	lines := input.Options{Lines: true} // as for standard input of the command line
	for _, test := range []struct {
		about, file string
		opts        input.Options
		want        []string // the rows
		refused     string   // a part of the message
	}{
		{"a table without a name", csv, input.Options{}, []string{"1", "2"}, ""},
		{"a table without a name, by column", csv, column, []string{"a", "b"}, ""},
		{"a table on standard input, by column", csv, input.Options{Lines: true, Column: "text"}, []string{"a", "b"}, ""},
		{"a table on standard input, by id", csv, input.Options{Lines: true, Column: "text", IDColumn: "id"}, []string{"a", "b"}, ""},
		{"a table called .txt, by column", csv, named("a.txt", column), []string{"a", "b"}, ""},
		{"tabs, by ending", tsv, named("a.TSV", column), []string{"says \"hi\"", "b"}, ""},
		{"tabs, by content", tsv, column, []string{"says \"hi\"", "b"}, ""},
		{"tabs, asked for", tsv, format(input.FormatTSV, column), []string{"says \"hi\"", "b"}, ""},
		{"tabs, the first column", tsv, named("a.tsv.gz", input.Options{}), []string{"1", "2"}, ""},
		{"tabs, .tab", tsv, named("a.tab", column), []string{"says \"hi\"", "b"}, ""},
		{"a tab in a field", "id,text\n1,\"a\tb\"\n2,c\td\n", column, []string{"a\tb", "c\td"}, ""},
		{"a line that is not an object", "{\"text\":\"b\"}\nnull\n", column, nil, "Line 2 of the JSON Lines input is not a JSON object"},
		{"a prompt over lines", "{\n\t\"visual_input\": \"a.mp4\",\n\t\"prompt\": \"The video\"\n}", named("batch.json", input.Options{Column: "prompt"}), nil, "one JSON object that spans several lines"},
		{"semicolons", "id;text\n1;\"a;b\"\n", column, []string{"a;b"}, ""},
		{"semicolons, quoted header", "\"id\";\"text\"\n1;\"a\"\n", column, []string{"a"}, ""},
		{"semicolons with commas in the header", "id;\"x, y\";text\n1;2;a\n", column, []string{"a"}, ""},
		{"bars", "id|text\r\n1|a\r\n", column, []string{"a"}, ""},
		{"separators in the name of the only column", "a;b|c\n0;1|2\n", input.Options{Column: "a;b|c"}, []string{"0;1|2"}, ""},
		{"commas win over bars", "id,kind (a|b|c)\n1,a\n", input.Options{}, []string{"1"}, ""},
		{"plain text, by ending", "one\ntwo, three\n", named("a.txt", input.Options{}), []string{"one", "two, three"}, ""},
		{"plain text, asked for", "id,text\n1,a", format(input.FormatLines, named("a.csv", input.Options{})), []string{"id,text", "1,a"}, ""},
		{"plain text on standard input", "Hello, you\n\nx", lines, []string{"Hello, you", "", "x"}, ""},
		{"plain text that begins as an array", "[INST] hello\n", lines, []string{"[INST] hello"}, ""},
		{"footnotes", "[1] A first line\n[2] B\n", lines, []string{"[1] A first line", "[2] B"}, ""},
		{"a mark, then plain text", "\xEF\xBB\xBFone\ntwo", lines, []string{"one", "two"}, ""},
		{"one column, by ending", "text\na\n", named("a.csv", input.Options{}), []string{"a"}, ""},
		{"one column, asked for", "text\na\n", format(input.FormatCSV, input.Options{}), []string{"a"}, ""},
		{"one column, by name", "text\na\n", column, []string{"a"}, ""},
		{"one column or plain text", "text\na\n", input.Options{}, []string{"a"}, ""},
		{"a column of plain text", "a\n", format(input.FormatLines, column), nil, "plain text, which has no columns"},
		{"an absent column", csv, named("a.txt", input.Options{Column: "x"}), nil, "plain text: its first line does not name"},
		{"strings", "\"a,b\"\n\n\"c\\n\"\n", input.Options{}, []string{"a,b", "c\n"}, ""},
		{"strings, by ending", "\"a\"\n", named("a.jsonl", input.Options{}), []string{"a"}, ""},
		{"a quoted header", "\"text\"\n\"a\"\n", named("a.csv", input.Options{}), []string{"a"}, ""},
		{"a column of strings", "\"a\"\n", named("a.jsonl", column), nil, "strings, which have no columns"},
		{"strings and objects", "\"a\"\n{\"text\":\"b\"}\n", input.Options{}, nil, "Line 2 of the JSON Lines input is not a JSON string"},
		{"objects and strings", "{\"text\":\"b\"}\n\"a\"\n", column, nil, "Line 2 of the JSON Lines input is not a JSON object"},
		{"objects called .csv", "{\"text\":\"b\"}\n", named("a.csv", column), []string{"b"}, ""},
		{"objects called .json", "{\"text\":\"b\"}\n{\"text\":1}\n", named("a.json", column), []string{"b", "1"}, ""},
		{"objects called .txt", "{\"text\":\"b\"}\n", named("a.txt", input.Options{}), []string{`{"text":"b"}`}, ""},
		{"one array", "[{\"text\":\"a\"},{\"text\":\"b\"}]", column, nil, "a JSON array"},
		{"one array over lines", "[\n  {\n    \"text\": \"a\"\n  }\n]", named("a.json", input.Options{}), nil, "a JSON array"},
		{"one array, asked for as lines of JSON", "[\"a\"]", format(input.FormatJSONL, input.Options{}), nil, "a JSON array"},
		{"one array on standard input", "[\"a\", \"b\"]\n", lines, nil, "jq -c '.[]'"},
		{"one array, asked for as plain text", "[\"a\"]\n", format(input.FormatLines, input.Options{}), []string{`["a"]`}, ""},
		{"arrays on lines", "[\"a\"]\n[\"b\"]\n", column, nil, "a JSON array"},
		{"one object over lines", "{\n  \"data\": [\n    {\"text\": \"a\"}\n  ]\n}\n", column, nil, "one JSON object that spans several lines"},
		{"a broken object", "{\"text\": x\n{\"text\":\"a\"}\n", column, nil, "Line 1 of the JSON Lines input"},
		{"only blanks", " \n\n", named("a.jsonl", input.Options{}), nil, "no rows"},
		{"not Parquet", csv, named("a.parquet", input.Options{}), nil, "not a Parquet file"},
		{"not Parquet, but requested", csv, format(input.FormatParquet, input.Options{}), nil, "not a Parquet file"},
		{"a column of plain text on standard input", "Hello, you\nx\n", input.Options{Lines: true, Column: "text"}, nil, "plain text: its first line does not name"},
		{"an absent column of a table", csv, input.Options{Column: "x"}, nil, `no column "x"`},
		{"UTF-16 as plain text", "a\x00b\x00", format(input.FormatLines, input.Options{}), nil, "UTF-16"},
	} {
		t.Run(test.about, func(t *testing.T) {
			t.Parallel()
			for what, file := range map[string][]byte{"plain": []byte(test.file), "gzip": zip(t, []byte(test.file))} {
				rows, _, err := read(t, file, test.opts)
				var got []string
				for _, row := range rows {
					got = append(got, row.Text)
				}
				var failure *rowmill.Failure
				switch {
				case test.refused != "":
					if !errors.As(err, &failure) || failure.Code != rowmill.CodeInvalidInputFile || !strings.Contains(failure.Message, test.refused) {
						t.Errorf("%s: rows %q, error %v", what, got, err)
					}
				case err != nil || !slices.Equal(got, test.want):
					t.Errorf("%s: rows %q, error %v; want %q", what, got, err, test.want)
				}
				if _, err := input.Detect(bytes.NewReader(file), int64(len(file)), test.opts); err != nil && !errors.As(err, &failure) {
					t.Errorf("%s: Tell: %v", what, err)
				}
			}
		})
	}
}

// An explicit format must never be ignored.
func TestParquetWithAnotherFormat(t *testing.T) {
	t.Parallel()
	file := parquetFile(t, record{Text: "a"})
	for _, format := range input.Formats() {
		rows, _, err := read(t, file, input.Options{Format: input.Format(format)})
		if want := format == "parquet"; (err == nil && len(rows) == 1) != want {
			t.Errorf("%s: %v, %v", format, rows, err)
		}
	}
}
