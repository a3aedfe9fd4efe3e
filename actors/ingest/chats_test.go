package ingest

import (
	"bytes"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

// Chats come as JSON texts and as lists, in all formats. A row that is no chat fails the job.
func TestRun_Messages(t *testing.T) {
	t.Parallel()
	r := setup(t)
	type message struct {
		Role    string `parquet:"role"`
		Content string `parquet:"content"`
	}
	type chat struct {
		Messages []message `parquet:"messages,list"`
	}
	var table bytes.Buffer
	must.Succeed(t, parquet.Write(&table, []chat{{[]message{{"user", "a"}}}, {[]message{{"system", "s"}, {"user", "b"}}}}))
	r.put(t, "parquet", table.String())
	r.put(t, "csv", "id,messages\n1,\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": \"\"a\"\"}]\"\n2,\"[{\"\"role\"\":\"\"system\"\",\"\"content\"\":\"\"s\"\"}, {\"\"role\"\":\"\"user\"\",\"\"content\"\":\"\"b\"\"}]\"\n")
	r.put(t, "lines", `{"messages": [{"role": "user", "content": "a"}]}`+"\n"+`{"messages": "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"b\"}]"}`+"\n")
	want := []string{`[{"role":"user","content":"a"}]`, `[{"role":"system","content":"s"},{"role":"user","content":"b"}]`}
	for name, spec := range map[string]rowmill.Spec{
		"CSV":        {Spooled: "csv", InputFile: rowmill.InputFile{File: "file-1"}},
		"JSON Lines": {Spooled: "lines", InputFile: rowmill.InputFile{File: "file-2"}},
		"Parquet":    {Spooled: "parquet", InputFile: rowmill.InputFile{File: "file-3"}},
		"a sample":   {Spooled: "lines", InputFile: rowmill.InputFile{File: "file-2"}, RowChoice: rowmill.RowChoice{Limit: 2, Sample: rowmill.SampleFirst}},
		"spooled":    {Spooled: r.spool(t, ` [{"role":"user", "content":"a"}]`, want[1])},
	} {
		spec.Messages = true
		if spec.File != "" {
			spec.Column = "messages"
		}
		rec, fence := r.job(t, spec)
		if got := r.texts(t, rec, r.runs(t, rec, fence)); !slices.Equal(got, want) {
			t.Errorf("%s: rows %q", name, got)
		}
	}
	r.fails(t, rowmill.Spec{Spooled: r.spool(t, want[0], "Hello"), Messages: true}, rowmill.CodeInvalidInputFile, "Row 1 is no chat: it is not a list of messages")
	r.fails(t, rowmill.Spec{Spooled: "csv", InputFile: rowmill.InputFile{File: "file-1"}, ColumnChoice: rowmill.ColumnChoice{Column: "id"}, Messages: true}, rowmill.CodeInvalidInputFile, "Row 0 is no chat")
}
