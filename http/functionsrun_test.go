package http

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// A pipeline calls run for each submitted job.
type pipeline struct {
	*fakeService
	run func(id string)
}

func (p pipeline) NotifySubmitted(record store.Record) {
	p.fakeService.NotifySubmitted(record)
	p.run(record.Job.ID)
}

// setupRun starts a world in which run is called for each submitted job.
func setupRun(t *testing.T, run func(w *world, id string), change ...func(*Config)) *world {
	t.Helper()
	var w *world
	change = append(change, func(c *Config) {
		c.Service = pipeline{c.Service.(*fakeService), func(id string) { run(w, id) }}
	})
	w = setup(t, change...)
	w.publish(grade)
	return w
}

func (w *world) runGrade(input string) *answered {
	w.Helper()
	return w.do("POST", "/v1/functions/grade/run", `{"input":`+input+`}`)
}

// lastJob returns the newest job of the account.
func (w *world) lastJob() store.Record {
	w.Helper()
	jobs, _, err := w.store.List(w.Context(), caller.DefaultAccount, 1, "")
	if err != nil || len(jobs) != 1 {
		w.Fatalf("jobs %v, %v", jobs, err)
	}
	return w.record(jobs[0].ID)
}

func TestRunFunction_AnswersTheOutput(t *testing.T) {
	t.Parallel()
	w := setupRun(t, func(w *world, id string) { w.succeed(w.start(id, 1), answers("B+")) })
	answer := w.runGrade(`{"essay":"E","extra":1}`).want(200)
	record := w.lastJob()
	answer.wantBody(`{"request_id":"` + answer.header.Get(headerRequestID) + `","job_id":"` + record.Job.ID + `",
		"function":{"name":"grade","revision":1,"model":"llama-3.1-8b"},"output":"B+","usage":{"input_tokens":10,"output_tokens":20},"cost_usd":null}`)
	spec := record.Spec
	if spec.Priority != 0 || spec.Estimate || spec.TruncateRows || len(spec.Inline) != 1 || spec.Inline[0] != "Grade E at level ." || spec.RowQuota != 1000 {
		t.Errorf("the job is %+v", spec)
	}
	w.runGrade(`"ready"`).want(200)
	if got := w.lastJob().Spec.Inline; len(got) != 1 || got[0] != "ready" {
		t.Errorf("a rendered prompt became %q", got)
	}
	w.runGrade(`{"essay":"` + strings.Repeat("x", 70_000) + `"}`).want(200)
	if spec := w.lastJob().Spec; spec.Spooled == "" || spec.Function == nil {
		t.Errorf("a large input is kept as %q, %v", spec.Spooled, spec.Function)
	}
}

func TestRunFunction_AnswersAVector(t *testing.T) {
	t.Parallel()
	w := setupRun(t, func(w *world, id string) {
		vector := make([]float32, 1024)
		w.succeed(w.start(id, 1), []done{{out: rowmill.RowOutput{Embedding: vector, InputTokens: 3, Engine: "sim", Attempts: 1}}})
	})
	w.publish(`{"name":"embed","inputs":[{"name":"x"}],"prompt":"query: {{x}}","model":"qwen-3-embedding-0.6b"}`)
	output := w.do("POST", "/v1/functions/embed/run", `{"input":{"x":"y"}}`).want(200).json()["output"].([]any)
	if len(output) != 1024 {
		t.Errorf("%d numbers", len(output))
	}
}

// An invalid input is a 422 and creates no job.
func TestRunFunction_RefusesInputs(t *testing.T) {
	t.Parallel()
	w := setupRun(t, func(*world, string) { t.Error("a job was submitted") }, func(c *Config) { c.MaxRowBytes = 100 })
	long := `"` + strings.Repeat("x", 101) + `"`
	for _, test := range []struct{ input, field, message string }{
		{`{}`, "input.essay", "is missing"},
		{`{"level":1}`, "input.essay", "is missing"},
		{`{"essay":` + long + `}`, "input", "makes a prompt of"},
		{long, "input", "has 101 bytes"},
		{`null`, "input", "is missing"},
		{`7`, "input", "must be an object"},
		{`["x"]`, "input", "must be an object"},
	} {
		body := w.runGrade(test.input).wantError(422, "invalid_input", test.message).json()
		if errors, _ := body["errors"].([]any); len(errors) != 1 || errors[0].(map[string]any)["field"] != test.field {
			t.Errorf("%.40s: errors %v", test.input, body["errors"])
		}
	}
	w.do("POST", "/v1/functions/grade/run", `x`).wantError(400, "invalid_json", "object")
	w.do("POST", "/v1/functions/none/run", `{"input":"x"}`).wantError(404, "unknown_function", "none")
	w.do("POST", "/v1/functions/llama-3.1-8b/run", `{"input":"x"}`).wantError(404, "unknown_function", "llama")
	w.service.draining = true
	w.runGrade(`"x"`).wantError(503, "draining", "try again")
	w.noJobs()
}

// A draft runs exactly like a published Function. It is not stored; only a job of its
// model stays.
func TestRunFunction_OfADraft(t *testing.T) {
	t.Parallel()
	w := setupRun(t, func(w *world, id string) { w.succeed(w.start(id, 1), answers(`{"grade":1}`)) })
	draft := `{"name":"NAME","prompt":"From 1 to 6: {{essay}}","inputs":[{"name":"essay"}],"model":"llama-3.1-8b",
		"system_prompt":"Be kind.","json_schema":{"type":"object"},"sampling_params":{"temperature":0.5}}`
	for _, name := range []string{"grade", "new"} {
		body := `{"input":{"essay":"E"},"definition":` + strings.ReplaceAll(draft, "NAME", name) + `}`
		answer := w.do("POST", "/v1/functions/"+name+"/run", body).want(200).json()
		if answer["function"] != nil || answer["output"] != `{"grade":1}` {
			t.Errorf("%v", answer)
		}
		record := w.lastJob()
		job, spec := record.Job, record.Spec
		if job.Function != nil || job.Model != "llama-3.1-8b" || *job.Name != "draft of "+name {
			t.Errorf("the job is %+v", job)
		}
		if spec.Inline[0] != "From 1 to 6: E" || spec.System != "Be kind." || string(spec.Schema) != `{"type":"object"}` || fmt.Sprint(spec.Sampling["temperature"]) != "0.5" {
			t.Errorf("it runs %+v", spec)
		}
	}
	w.get("/v1/functions/new").wantError(404, "unknown_function", "new")
	if revisions := w.get("/v1/functions/grade/revisions").want(200).json()["revisions"].([]any); len(revisions) != 1 {
		t.Errorf("there are %d revisions", len(revisions))
	}
	// Users may run a draft, and readers may not.
	body := `{"input":{"essay":"E"},"definition":` + strings.ReplaceAll(draft, "NAME", "new") + `}`
	user, reader := "Key "+w.keyOf("acme", caller.RoleUser), "Key "+w.keyOf("acme", caller.RoleReader)
	w.do("POST", "/v1/functions/new/run", body, "Authorization", reader).wantError(403, "forbidden", "reader")
	w.do("POST", "/v1/functions/new/run", body, "Authorization", user).want(200)
}

func TestRunFunction_OfARevision(t *testing.T) {
	t.Parallel()
	w := setupRun(t, func(w *world, id string) { w.succeed(w.start(id, 1), answers("B+")) })
	w.publish(`{"name":"grade","publish":false,"inputs":[{"name":"essay"}],"prompt":"Draft {{essay}}","model":"llama-3.1-8b"}`)
	run := func(more string) *answered {
		return w.do("POST", "/v1/functions/grade/run", `{"input":{"essay":"E"}`+more+`}`)
	}
	for more, prompt := range map[string]string{``: "Grade E at level .", `,"revision":1`: "Grade E at level .", `,"revision":2`: "Draft E", `,"revision":null`: "Grade E at level ."} {
		run(more).want(200)
		want := 1
		if prompt == "Draft E" {
			want = 2
		}
		if record := w.lastJob(); record.Spec.Inline[0] != prompt || record.Job.Function.Revision != want {
			t.Errorf("%s: %q of %+v", more, record.Spec.Inline, record.Job.Function)
		}
	}
	run(`,"revision":3`).wantError(404, "unknown_revision", "no revision 3")
	for _, revision := range []string{"0", "-1"} {
		run(`,"revision":`+revision).wantField("revision", "from 1")
	}
	run(`,"revision":"1"`).wantField("revision", "whole number")
	w.do("POST", "/v1/functions/none/run", `{"input":"x","revision":1}`).wantError(404, "unknown_revision", "none")
}

// The problems of a draft name its fields.
func TestRunFunction_RefusesDrafts(t *testing.T) {
	t.Parallel()
	w := setupRun(t, func(*world, string) { t.Error("a job was submitted") })
	run := func(definition, more string) *answered {
		return w.do("POST", "/v1/functions/grade/run", `{"input":{"essay":"E"},"definition":`+definition+more+`}`)
	}
	draft := func(change string) string {
		return `{"name":"grade","prompt":"{{essay}}","inputs":[{"name":"essay"}],"model":"llama-3.1-8b"` + change + `}`
	}
	run(`7`, "").wantField("definition", "must be an object")
	run(`{"name":"grade","prompt":"{{essay}}","inputs":[{"name":"essay"}],"model":"none"}`, "").wantField("definition.model", "none")
	run(`{"name":"grade","prompt":"{{other}}","inputs":[{"name":"essay"}],"model":"llama-3.1-8b"}`, "").wantField("definition.prompt", "other")
	run(draft(`,"sampling_params":{"temperature":-1}`), "").wantField("definition.sampling_params.temperature", "at least 0")
	run(draft(`,"json_schema":{"type":7}`), "").wantField("definition.json_schema", "type")
	run(draft(`,"publish":true`), "").wantField("definition.publish", "unknown")
	run(draft(``), `,"revision":1`).wantField("revision", "one of the two")
	w.do("POST", "/v1/functions/other/run", `{"input":{"essay":"E"},"definition":`+draft("")+`}`).wantField("definition.name", `"other" in the path`)
	w.do("POST", "/v1/functions/grade/run", `{"input":{},"definition":`+draft("")+`}`).wantError(422, "invalid_input", "essay")
	w.noJobs()
}

func TestRunFunction_ErrorOfFailedRun(t *testing.T) {
	t.Parallel()
	fail := func(code string) func(w *world, id string) {
		return func(w *world, id string) {
			w.fail(w.start(id, 1), rowmill.Failf(code, "because"))
		}
	}
	for name, test := range map[string]struct {
		run    func(w *world, id string)
		status int
		code   string
	}{
		"TooLong":     {fail(rowmill.CodeRowTooLong), 422, "row_too_long"},
		"TokenQuota":  {fail(rowmill.CodeTokenQuota), 422, "token_quota_exceeded"},
		"CostQuota":   {fail(rowmill.CodeCostQuota), 403, "cost_quota_exceeded"},
		"NoEngine":    {fail(rowmill.CodeModelUnavailable), 503, "model_unavailable"},
		"EngineError": {fail(rowmill.CodeEngineError), 502, "engine_error"},
		"Internal":    {fail(rowmill.CodeInternalError), 502, "internal_error"},
		"RowFailed": {func(w *world, id string) {
			f := w.start(id, 1)
			schema := schemaOf(w.record(id), rowmill.IDNull)
			w.commit(f, w.part(f, schema, 0, 0, answers(""), "0.parquet"))
			w.fail(f, rowmill.Failf(rowmill.CodeTooManyFailedRows, "all failed"))
		}, 502, "schema_violation"},
		"Cancelled": {func(w *world, id string) { w.get("/v1/job-cancel/" + id).want(200) }, 409, "cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setupRun(t, test.run)
			answer := w.runGrade(`"x"`).wantError(test.status, test.code, "")
			if id := w.lastJob().Job.ID; answer.json()["job_id"] != id {
				t.Errorf("the answer names job %v, not %s", answer.json()["job_id"], id)
			}
		})
	}
}

// A run is cancelled when its deadline passes or its client leaves.
func TestRunFunction_IsCancelledAtTheDeadline(t *testing.T) {
	t.Parallel()
	w := setupRun(t, func(w *world, id string) { w.start(id, 1) }, func(c *Config) { c.JobWait = 30 * time.Millisecond })
	answer := w.runGrade(`"x"`).wantError(504, "deadline_exceeded", "within 30ms")
	job := w.lastJob().Job
	if job.Status != rowmill.StatusCancelled || answer.json()["job_id"] != job.ID || len(w.service.cancelled) != 1 {
		t.Errorf("job %s is %s, cancelled %q", job.ID, job.Status, w.service.cancelled)
	}
}

func TestRunFunction_IsCancelledWhenTheClientLeaves(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	w := setupRun(t, func(w *world, id string) {
		w.start(id, 1)
		leave()
	})
	r := w.request("POST", "/v1/functions/grade/run", `{"input":"x"}`).WithContext(ctx)
	if response, err := w.client.Do(r); err == nil {
		response.Body.Close()
		t.Fatal("answered")
	}
	id := w.lastJob().Job.ID
	deadline := time.After(10 * time.Second)
	for w.record(id).Job.Status != rowmill.StatusCancelled {
		select {
		case <-deadline:
			t.Fatalf("the job is %s", w.record(id).Job.Status)
		case <-time.After(time.Millisecond):
		}
	}
}

// A job continues when its Function is unpublished.
func TestRunFunction_OutlivesItsFunction(t *testing.T) {
	t.Parallel()
	w := setupRun(t, func(w *world, id string) {
		w.do("DELETE", "/v1/functions/grade", "").want(200)
		w.succeed(w.start(id, 1), answers("A"))
	})
	if got := w.runGrade(`"x"`).want(200).json()["output"]; got != "A" {
		t.Errorf("output %v", got)
	}
}

func (w *world) fail(f store.Fence, reason *rowmill.Failure) {
	w.Helper()
	must.Get(w.store.Finish(w.Context(), f, func(r *store.Record) error {
		r.Job.FailureReason = reason
		return r.Job.Become(rowmill.StatusFailed, time.Now())
	}))(w)
}
