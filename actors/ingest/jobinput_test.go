package ingest

import (
	"slices"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
)

// templateOf returns a prompt with these columns, all required.
func templateOf(prompt string, columns ...string) *rowmill.FunctionPrompt {
	f := &rowmill.FunctionPrompt{Prompt: prompt}
	for _, name := range columns {
		f.Inputs = append(f.Inputs, rowmill.FunctionInput{Name: name, Required: true})
	}
	return f
}

// TestJobInput reads the stored inputs of other jobs: rows in the record, stored rows, rows of a
// prompt with another prompt, and the whole input of a job with a limit.
func TestJobInput(t *testing.T) {
	t.Parallel()
	r := setup(t)
	read := func(what string, old *rowmill.Spec, function *rowmill.FunctionPrompt, end bool, want ...string) *rowmill.Spec {
		t.Helper()
		first, fence := r.job(t, *old)
		r.runs(t, first, fence)
		if end {
			ended := r.cancel(t, first.Job.ID)
			must.Succeed(t, KeepInputForResume(t.Context(), r.Bucket, &ended))
		}
		again, fence := r.job(t, rowmill.Spec{FromJob: first.Job.ID, Function: function, ColumnChoice: rowmill.ColumnChoice{IDColumn: old.IDColumn}})
		m := r.runs(t, again, fence)
		if got := r.texts(t, again, m); !slices.Equal(got, want) {
			t.Errorf("%s: read %q, want %q", what, got, want)
		}
		return &again.Spec
	}
	read("rows in the record", &rowmill.Spec{Inline: []string{"a", "b"}}, nil, false, "a", "b")
	read("rows of an ended job", &rowmill.Spec{Inline: []string{"a", "b"}}, nil, true, "a", "b")
	read("stored rows", &rowmill.Spec{Spooled: r.spool(t, "x", "y", "z")}, nil, true, "x", "y", "z")

	r.put(t, "objects", `{"title":"T1","body":"B1"}`+"\n"+`"a prompt"`+"\n"+`{"title":"T2","body":"B2"}`+"\n")
	old := &rowmill.Spec{Spooled: "objects", Function: templateOf("{{title}}: {{body}}", "title", "body")}
	read("prompts", old, nil, true, "T1: B1", "a prompt", "T2: B2")
	read("another prompt", old, templateOf("Is {{body}} good?", "body"), true, "Is B1 good?", "a prompt", "Is B2 good?")
	read("the whole input", &rowmill.Spec{Spooled: r.spool(t, "1", "2", "3"), RowChoice: rowmill.RowChoice{Limit: 1, Sample: rowmill.SampleFirst}}, nil, true, "1", "2", "3")
}

// TestJobInput_ThatIsGone tests that a job fails if the stored input is removed before it is read.
func TestJobInput_ThatIsGone(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.fails(t, rowmill.Spec{FromJob: "job-unknown"}, rowmill.CodeDownloadFailed, "is not kept any more. Send the rows again.")
	first, fence := r.job(t, rowmill.Spec{Spooled: r.spool(t, "x", "y")})
	r.runs(t, first, fence)
	must.Succeed(t, r.Bucket.Delete(t.Context(), layout.ShardKey(first.Job.ID, 0)))
	r.fails(t, rowmill.Spec{FromJob: first.Job.ID}, rowmill.CodeDownloadFailed, "is not kept any more")
	must.Succeed(t, r.Bucket.Delete(t.Context(), layout.ManifestKey(first.Job.ID)))
	r.fails(t, rowmill.Spec{FromJob: first.Job.ID}, rowmill.CodeDownloadFailed, "is not kept any more")
}
