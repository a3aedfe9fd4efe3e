package actors_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// greeting is a Function as a job keeps it.
var greeting = &rowmill.FunctionPrompt{
	Prompt: "Greet {{name}} {{title}}!",
	Inputs: []rowmill.FunctionInput{{Name: "name", Required: true}, {Name: "title"}},
}

// spoolLines stores rows as JSON, one in a line.
func (b *rig) spoolLines(lines ...string) string {
	b.t.Helper()
	w := must.Get(b.cfg.Blob.Create(b.t.Context(), "spooled/"+rowmill.NewJobID(), "application/x-ndjson"))(b.t)
	buffered := bufio.NewWriter(w)
	for _, line := range lines {
		_, _ = buffered.WriteString(line + "\n") // Flush returns its first error
	}
	must.Succeed(b.t, buffered.Flush())
	info := must.Get(w.Commit())(b.t)
	return info.Key
}

// The inputs in the results are the rendered prompts.
func TestFunction_SpooledRowsBecomePrompts(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo})
		var lines, prompts []string
		for i := range 250 {
			lines = append(lines, fmt.Sprintf(`{"x":1,"name":"n%d","title":null}`, i))
			prompts = append(prompts, fmt.Sprintf("Greet n%d !", i))
		}
		lines, prompts = append(lines, `"ready {{name}}"`), append(prompts, "ready {{name}}")
		rec := b.end(b.submit(rowmill.Spec{Spooled: b.spoolLines(lines...), Function: greeting}))
		b.checkEcho(rec, prompts)
		columns := b.columns(rec)
		if len(columns["name"]) != 251 || columns["name"][249] != "n249" || columns["title"][0] != "" || columns["name"][250] != nil {
			t.Errorf("the fields have the columns %v", columns)
		}
	})
}

// columns returns the members of the JSON results with the inputs.
func (b *rig) columns(rec store.Record) (columns map[string][]any) {
	b.t.Helper()
	full := must.Get(b.cfg.Blob.Open(b.t.Context(), rec.Artifacts[layout.Full].Key))(b.t)
	defer full.Close()
	schema := must.Get(results.ReadSchema(full))(b.t)
	var text bytes.Buffer
	must.Succeed(b.t, results.WriteJSON(b.t.Context(), &text, full, schema, results.FileVariant{Inputs: true}))
	must.Succeed(b.t, json.Unmarshal(text.Bytes(), &columns))
	return columns
}

func TestFunction_ColumnsOfAURLBecomeFields(t *testing.T) {
	t.Parallel()
	b := setup(t, &scripted{answer: echo})
	file := "title,key,name\nDr,1,Ann\n,2,\"Bob\nJr\"\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, file) }))
	defer server.Close()
	rec := b.end(b.submit(rowmill.Spec{URL: server.URL, ColumnChoice: rowmill.ColumnChoice{IDColumn: "key"}, Function: greeting}))
	b.checkEcho(rec, []string{"Greet Ann Dr!", "Greet Bob\nJr !"})
	if columns := b.columns(rec); fmt.Sprint(columns["key"], columns["name"], columns["title"]) != "[1 2] [Ann Bob\nJr] [Dr ]" {
		t.Errorf("the fields have the columns %v", columns)
	}
}

func TestFunction_URLWithoutARequiredColumnFailsTheJob(t *testing.T) {
	t.Parallel()
	b := setup(t, &scripted{answer: echo})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "title\nDr\n") }))
	defer server.Close()
	f := failure(t, b.end(b.submit(rowmill.Spec{URL: server.URL, Function: greeting})), rowmill.CodeInvalidInputFile)
	if !strings.Contains(f.Message, `"name"`) {
		t.Errorf("message %q", f.Message)
	}
}

func TestFunction_APromptTooLongFailsTheJob(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo}, func(c *actors.Config) { c.Inputs.Limits.MaxRowBytes = 12 })
		spool := b.spoolLines(`{"name":"Ann"}`, `{"name":"Robert the Great"}`)
		f := failure(t, b.end(b.submit(rowmill.Spec{Spooled: spool, Function: greeting})), rowmill.CodeInvalidInputFile)
		if !strings.Contains(f.Message, "row 1 has 24 bytes, more than 12") {
			t.Errorf("message %q", f.Message)
		}
	})
}

// A job that continues another takes over the fields of the other's rows, beside
// the fields of its own rows.
func TestFunction_FieldsAreTakenOver(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		var fixed atomic.Bool
		e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			if row == "Greet n7 !" && !fixed.Load() {
				return engine.Reply{}, &engine.Error{Class: engine.RowFault, Status: 400, Message: "no"}
			}
			return echo(ctx, row, try)
		}}
		b := setup(t, e, func(c *actors.Config) { c.Inputs.Retention = week })
		var lines []string
		for i := range 150 {
			lines = append(lines, fmt.Sprintf(`{"name":"n%d"}`, i))
		}
		id := b.submit(rowmill.Spec{Spooled: b.spoolLines(lines...), Function: greeting})
		old := b.await(id, func(r store.Record) bool { return r.InputUntil != nil })
		fixed.Store(true)
		made := b.end(b.resume(old, true))
		if made.Job.RowsTakenOver != 149 || made.Job.FailedRows != 0 {
			t.Fatalf("%d rows were taken over, %d failed", made.Job.RowsTakenOver, made.Job.FailedRows)
		}
		for row, name := range b.columns(made)["name"] {
			if name != fmt.Sprint("n", row) {
				t.Errorf("row %d has the name %v", row, name)
			}
		}
	})
}
