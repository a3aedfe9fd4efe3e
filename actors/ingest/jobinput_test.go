package ingest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
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

// TestJobInput_OfResults reads the rows of a job that succeeded from its result file, with their
// IDs and columns.
func TestJobInput_OfResults(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.put(t, "objects", `{"title":"T1","body":"B1"}`+"\n")
	prompt := templateOf("{{title}}: {{body}}", "title", "body")
	first, fence := r.job(t, rowmill.Spec{Spooled: "objects", Function: prompt})
	r.runs(t, first, fence)
	id := first.Job.ID
	schema := results.Schema{JobID: id, Model: "m", IDColumn: "sku", IDType: rowmill.IDType{IDKind: rowmill.IDInt}, Fields: []string{"title", "body"}}
	key := layout.NewPartKey(id, 0, 1)
	size := must.Get(archive.WritePart(t.Context(), r.Bucket, key, schema, func(file *results.PartWriter) error {
		for i, fields := range []string{`["T1","B1"]`, ``, `["T3","B3"]`} {
			row := rowmill.Row{Index: int64(i), Text: fmt.Sprint("prompt ", i), Fields: fields, ID: rowmill.ID{Kind: rowmill.IDInt, Int: int64(70 + i)}}
			if err := file.Add(&row, &rowmill.RowOutput{Text: "answer"}); err != nil {
				return err
			}
		}
		return nil
	}))(t)
	r.cancel(t, id)
	must.Get(r.store.AddArtifact(t.Context(), id, layout.Full, store.Artifact{Key: key, Size: size}))(t)
	must.Succeed(t, r.Bucket.Delete(t.Context(), layout.ManifestKey(id)))

	again, fence := r.job(t, rowmill.Spec{FromJob: id, Function: templateOf("{{body}}?", "body"), ColumnChoice: rowmill.ColumnChoice{IDColumn: "sku"}})
	m := r.runs(t, again, fence)
	if got, want := r.texts(t, again, m), []string{"B1?", "prompt 1", "B3?"}; !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
	if m.IDType.IDKind != rowmill.IDInt || !slices.Equal(m.Fields, []string{"body"}) {
		t.Errorf("the rows have IDs of type %v and the columns %v", m.IDType, m.Fields)
	}
}

// countShards records that the input of a job is cut into shards.
func (r *rig) countShards(t *testing.T, fence store.Fence) {
	t.Helper()
	must.Get(r.store.Update(t.Context(), fence, func(r *store.Record) error {
		r.Shards = 1
		return nil
	}))(t)
}

// TestJobInput_ThatIsNotRead tests that a job waits a while for another job to read its input, and
// then returns ErrInputNotReady. If the other job ends first, the job fails.
func TestJobInput_ThatIsNotRead(t *testing.T) {
	t.Parallel()
	r := setup(t)
	first, fence := r.job(t, rowmill.Spec{Spooled: r.spool(t, "x", "y")})
	began, looks := time.Now(), 0
	r.Clock = func() time.Time {
		looks++
		return began.Add(time.Duration(looks) * inputPatience / 10)
	}
	waits, waitsFence := r.job(t, rowmill.Spec{FromJob: first.Job.ID})
	if _, err := r.run(t, waits, waitsFence); !errors.Is(err, ErrInputNotReady) || looks < 10 {
		t.Errorf("the job got %v after %d looks", err, looks)
	}
	r.Clock = time.Now
	read := make(chan struct{})
	go func() {
		defer close(read)
		r.runs(t, first, fence)
		r.countShards(t, fence)
	}()
	if got := r.texts(t, waits, r.runs(t, waits, waitsFence)); !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("read %q", got)
	}
	<-read

	ended, _ := r.job(t, rowmill.Spec{Spooled: r.spool(t, "x", "y")})
	r.cancel(t, ended.Job.ID)
	r.fails(t, rowmill.Spec{FromJob: ended.Job.ID}, rowmill.CodeDownloadFailed, "ended before it had read its input")
}

// TestJobInput_ThatIsGone tests that a job fails if the stored input is removed before it is read.
func TestJobInput_ThatIsGone(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.fails(t, rowmill.Spec{FromJob: "job-unknown"}, rowmill.CodeDownloadFailed, "is not kept any more. Send the rows again.")
	first, fence := r.job(t, rowmill.Spec{Spooled: r.spool(t, "x", "y")})
	r.runs(t, first, fence)
	r.countShards(t, fence)
	must.Succeed(t, r.Bucket.Delete(t.Context(), layout.ShardKey(first.Job.ID, 0)))
	r.fails(t, rowmill.Spec{FromJob: first.Job.ID}, rowmill.CodeDownloadFailed, "is not kept any more")
	must.Succeed(t, r.Bucket.Delete(t.Context(), layout.ManifestKey(first.Job.ID)))
	r.fails(t, rowmill.Spec{FromJob: first.Job.ID}, rowmill.CodeDownloadFailed, "is not kept any more")
}
