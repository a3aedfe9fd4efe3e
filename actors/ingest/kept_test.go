package ingest

import (
	"slices"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// keptOf returns the names of the columns that a job keeps.
func (r *rig) keptOf(t *testing.T, rec *store.Record) []string {
	t.Helper()
	object := must.Get(r.Bucket.Open(t.Context(), layout.KeptColumnsKey(rec.Job.ID)))(t)
	defer object.Close()
	return must.Get(results.ListColumns(object))(t)
}

// A job keeps columns of a file, a download and rows that are objects. A job that continues it
// has the same columns.
func TestRun_KeepsColumns(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.Parts = r.store
	r.put(t, "file", "a;b;c\n1;x;2,3\n")
	r.put(t, "objects", `{"b":"x","a":1}`+"\n"+`"a prompt"`+"\n")
	prompt := &rowmill.FunctionPrompt{Prompt: "{{b}}", Inputs: []rowmill.FunctionInput{{Name: "b", Required: true}}}
	for name, test := range map[string]struct {
		spec rowmill.Spec
		want []string
	}{
		"all columns":    {rowmill.Spec{Spooled: "file", InputFile: rowmill.InputFile{File: "file-1"}, Function: prompt, ColumnChoice: rowmill.ColumnChoice{Keep: []string{"*"}}}, []string{"a", "b", "c"}},
		"chosen columns": {rowmill.Spec{Spooled: "file", InputFile: rowmill.InputFile{File: "file-1"}, ColumnChoice: rowmill.ColumnChoice{Column: "b", Keep: []string{"c", "a"}}}, []string{"c", "a"}},
		"a download":     {rowmill.Spec{URL: "https://example.org/rows.csv", ColumnChoice: rowmill.ColumnChoice{Column: "b", Keep: []string{"a"}}}, []string{"a"}},
		"objects":        {rowmill.Spec{Spooled: "objects", Function: prompt, ColumnChoice: rowmill.ColumnChoice{Keep: []string{"*"}}}, []string{"b", "a"}},
		"a sample":       {rowmill.Spec{Spooled: "file", InputFile: rowmill.InputFile{File: "file-1"}, ColumnChoice: rowmill.ColumnChoice{Column: "b", Keep: []string{"a"}}, RowChoice: rowmill.RowChoice{Limit: 1, Sample: rowmill.SampleFirst}}, []string{"a"}},
	} {
		r.file.file = "a,b\n1,x\n"
		rec, fence := r.job(t, test.spec)
		r.runs(t, rec, fence)
		if got := r.keptOf(t, rec); !slices.Equal(got, test.want) {
			t.Errorf("%s: kept %q, want %q", name, got, test.want)
		}
		r.cancel(t, rec.Job.ID)
		next, fence := r.job(t, rowmill.Spec{ColumnChoice: rowmill.ColumnChoice{Keep: test.spec.Keep}, Continue: &rowmill.Continuation{Job: rec.Job.ID, Rest: test.spec.Limit > 0}})
		r.runs(t, next, fence)
		if got := r.keptOf(t, next); !slices.Equal(got, test.want) {
			t.Errorf("%s: a continuation keeps %q, want %q", name, got, test.want)
		}
	}
	r.fails(t, rowmill.Spec{Spooled: "file", InputFile: rowmill.InputFile{File: "file-1"}, ColumnChoice: rowmill.ColumnChoice{Keep: []string{"d"}}}, rowmill.CodeInvalidInputFile, `no column "d", which keep_columns names`)
	r.put(t, "odd", "t,inputs\nx,y\n")
	r.fails(t, rowmill.Spec{Spooled: "odd", InputFile: rowmill.InputFile{File: "file-2"}, ColumnChoice: rowmill.ColumnChoice{Keep: []string{"*"}}}, rowmill.CodeInvalidInputFile, `"inputs", which keep_columns keeps, has the name of a column of the results`)
	r.fails(t, rowmill.Spec{Spooled: "odd", InputFile: rowmill.InputFile{File: "file-2"}, ColumnChoice: rowmill.ColumnChoice{Keep: []string{"t"}, Output: "t"}}, rowmill.CodeInvalidInputFile, `"t", which keep_columns keeps`)
	rec, fence := r.job(t, rowmill.Spec{Spooled: "file", InputFile: rowmill.InputFile{File: "file-1"}, ColumnChoice: rowmill.ColumnChoice{Column: "b"}})
	r.runs(t, rec, fence)
	if _, err := r.Bucket.Stat(t.Context(), layout.KeptColumnsKey(rec.Job.ID)); err == nil {
		t.Error("a job without keep_columns keeps columns")
	}
}
