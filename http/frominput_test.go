package http

import (
	"slices"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/internal/must"
)

// TestSubmit_FromJob submits jobs that read the stored input of other jobs.
func TestSubmit_FromJob(t *testing.T) {
	t.Parallel()
	w := setup(t)
	plain := w.submitted(`{"inputs":["a","b"]}`)
	again := w.record(w.submitted(`{"inputs":"job:` + plain + `","system_prompt":"Be brief."}`))
	if again.Spec.FromJob != plain || again.Job.InputOf == nil || *again.Job.InputOf != plain || again.Job.NumRows != nil {
		t.Errorf("the job reads %q, the record says %v", again.Spec.FromJob, again.Job.InputOf)
	}
	columns := w.running(`{"inputs":[{"title":"T","body":"B"}],"prompt":"{{title}}: {{body}}"}`, 1).JobID
	changed := w.record(w.submitted(`{"inputs":"job:` + columns + `","prompt":"Is {{body}} good?"}`))
	if f := changed.Spec.Function; f == nil || !slices.ContainsFunc(f.Inputs, func(in rowmill.FunctionInput) bool { return in.Name == "body" }) {
		t.Errorf("the job has the prompt %+v", f)
	}
	chats := w.running(`{"inputs":["[{\"role\":\"user\",\"content\":\"Hello\"}]"],"messages":true}`, 1).JobID
	if w.record(w.submitted(`{"inputs":"job:`+chats+`"}`)).Spec.Messages != true {
		t.Error("the rows are no chats any more")
	}

	ended := w.succeeded(`{"inputs":["a"]}`, answers("x"))
	must.Succeed(t, w.store.MarkInputRemoved(t.Context(), ended, time.Now()))
	w.submitted(`{"inputs":"job:` + ended + `"}`) // the results have the input

	refused := func(inputs, more, field, piece string) {
		t.Helper()
		w.post(`{"inputs":"job:`+inputs+`"`+more+`}`).wantField(field, piece)
	}
	refused("", "", "inputs", "names no job")
	refused("job-unknown", "", "inputs", "does not exist")
	refused(plain, `,"prompt":"{{title}}"`, "prompt", "texts without columns")
	refused(columns, `,"prompt":"{{title}} {{author}}"`, "prompt", `needs the column "author"`)
	refused(plain, `,"column_name":"title"`, "column_name", "is the same as in the job")
	refused(plain, `,"id_column_name":"id"`, "id_column_name", "is the same as in the job")
	refused(plain, `,"messages":true`, "messages", "is the same as in the job")
	refused(plain, `,"keep_columns":"*"`, "keep_columns", "has no other columns")
	unread := w.submitted(`{"inputs":"https://example.org/a.csv"}`)
	w.submitted(`{"inputs":"job:` + unread + `"}`) // waits until the input is read
	w.get("/v1/job-cancel/" + unread).want(200)
	refused(unread, "", "inputs", "ended before its input was read")
	gone := w.submitted(`{"inputs":["a"]}`)
	w.get("/v1/job-cancel/" + gone).want(200)
	must.Succeed(t, w.store.MarkInputRemoved(t.Context(), gone, time.Now()))
	refused(gone, "", "inputs", "its input was removed")
}

// TestSubmit_FromJobOfAnotherAccount tests that the input of another account's job cannot be read.
func TestSubmit_FromJobOfAnotherAccount(t *testing.T) {
	t.Parallel()
	w := setup(t)
	theirs := w.submitted(`{"inputs":["a"]}`)
	w.post(`{"inputs":"job:`+theirs+`"}`, "Authorization", "Key "+w.keyOf("other", caller.RoleUser)).wantField("inputs", "does not exist")
}

// TestSubmit_FromAnswers submits jobs that read the answers of other jobs.
func TestSubmit_FromAnswers(t *testing.T) {
	t.Parallel()
	w := setup(t)
	texts := w.succeeded(`{"inputs":["a"]}`, answers("x"))
	judge := w.record(w.submitted(`{"inputs":"job:` + texts + `","prompt":"Is {{answer.text}} right for {{input}}?"}`))
	if spec := judge.Spec; !spec.FromAnswers || spec.FromJob != texts || spec.IDColumn != "row" {
		t.Errorf("the job reads the answers of %q: %v, with the IDs %q", spec.FromJob, spec.FromAnswers, spec.IDColumn)
	}
	columns := w.running(`{"inputs":[{"title":"T"}],"prompt":"{{title}}"}`, 1).JobID
	again := w.record(w.submitted(`{"inputs":"job:` + columns + `","where":"answer.score < 4"}`))
	if job := again.Job; job.AnswersOf == nil || *job.AnswersOf != columns || job.Where != "answer.score < 4" || job.Truncate != nil {
		t.Errorf("the record says %+v", job)
	}
	if strict := w.record(w.submitted(`{"inputs":["a"],"truncate_rows":false}`)).Job.Truncate; strict == nil || *strict {
		t.Errorf("truncate_rows is %v, want false", strict)
	}
	if spec := again.Spec; !spec.FromAnswers || spec.Where != "answer.score < 4" || spec.Function != nil {
		t.Errorf("the job has the specification %+v", spec)
	}
	own := w.running(`{"inputs":[{"answer":"42"}],"prompt":"Is {{answer}} right?"}`, 1).JobID
	if spec := w.record(w.submitted(`{"inputs":"job:` + own + `","prompt":"Is {{answer}} wrong?"}`)).Spec; spec.FromAnswers {
		t.Error("a job with a column answer gives its answers in place of the column")
	}
	refused := func(body, field, piece string) {
		t.Helper()
		w.post(body).wantField(field, piece)
	}
	refused(`{"inputs":["a"],"where":"answer = x"}`, "where", "job:JOB")
	refused(`{"inputs":"job:`+texts+`","where":"score < 4"}`, "where", "answer.score")
	refused(`{"inputs":"job:`+columns+`","prompt":"{{answer}} {{body}}"}`, "prompt", `needs the column "body"`)
	cancelled := w.submitted(`{"inputs":["a"]}`)
	w.get("/v1/job-cancel/" + cancelled).want(200)
	refused(`{"inputs":"job:`+cancelled+`","where":"answer = x"}`, "inputs", "it is cancelled")
	vectors := w.submitted(`{"inputs":["a"],"model":"qwen-3-embedding-0.6b"}`)
	refused(`{"inputs":"job:`+vectors+`","prompt":"{{answer}}"}`, "inputs", "embeddings")
	estimate := w.submitted(`{"inputs":["a"],"cost_estimate":true}`)
	refused(`{"inputs":"job:`+estimate+`","prompt":"{{answer}}"}`, "inputs", "estimate")

	set := w.do("POST", "/v1/sets", `{"inputs":"job:`+texts+`","where":"answer = x","prompt":"{{input}}","variants":[{},{"prompt":"{{answer}}"}]}`).want(200).json()["results"].([]any)
	first, second := w.record(set[0].(string)), w.record(set[1].(string))
	if !first.Spec.FromAnswers || first.Spec.FromJob != texts || second.Spec.FromAnswers || second.Spec.FromJob != first.Job.ID || second.Spec.Where != "" {
		t.Errorf("the set has the specifications %+v and %+v", first.Spec, second.Spec)
	}
}
