package http

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
)

// The Function sets prompt, model, schema and defaults, and the job's record pins them
// all.
func TestSubmitFunction_TheFunctionDecides(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.publish(grade)
	record := w.record(w.submitted(`{"model":"grade","inputs":[{"essay":"A"}],"sampling_params":{"temperature":1,"top_p":null}}`))
	spec, job := record.Spec, record.Job
	if spec.Model.ID != "llama-3.1-8b" || spec.System != "You are a teacher." || string(spec.Schema) != `{"type":"object"}` {
		t.Errorf("model %s, system %q, schema %s", spec.Model.ID, spec.System, spec.Schema)
	}
	ref := &rowmill.FunctionRef{Name: "grade", Revision: 1, Model: "llama-3.1-8b"}
	if job.Model != "grade" || !cmp.Equal(job.Function, ref) || *job.System != "You are a teacher." {
		t.Errorf("job %+v", job)
	}
	// The caller's parameters replace the Function's, and these replace the model's.
	want := map[string]any{"temperature": json.Number("1"), "max_tokens": json.Number("100"), "top_p": json.Number("1"), "repetition_penalty": json.Number("1")}
	if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(spec.Sampling)); diff != "" {
		t.Errorf("sampling (-want +got):\n%s", diff)
	}
	if shown := w.get("/v1/jobs/" + job.ID).want(200).json()["job"].(map[string]any); shown["model"] != "grade" ||
		!cmp.Equal(shown["function"], map[string]any{"name": "grade", "revision": 1.0, "model": "llama-3.1-8b"}) {
		t.Errorf("shown %v", shown)
	}
}

// A catalog model goes before the account's Functions. A name alone, without a revision,
// always means the published revision.
func TestSubmitFunction_NameResolution(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.publish(numbered("f", 1))
	w.publish(numbered("f", 2))
	first := w.submitted(`{"model":"f","inputs":["x"]}`)
	w.do("POST", "/v1/functions/f/rollback", `{"revision":1}`).want(200)
	second := w.submitted(`{"model":"f","inputs":["x"]}`)
	w.do("DELETE", "/v1/functions/f", "").want(200)
	for id, want := range map[string]int{first: 2, second: 1} {
		if got := w.record(id).Job.Function.Revision; got != want {
			t.Errorf("revision %d, want %d", got, want)
		}
	}
	for _, name := range []string{"f", "f@1", "f:2", "default/f", ""} {
		w.post(fmt.Sprintf(`{"model":%q,"inputs":["x"]}`, name)).wantError(400, "unknown_model", "neither a model")
	}
	if record := w.record(w.submitted(`{"model":"llama-3.1-8b","inputs":["x"]}`)); record.Job.Function != nil {
		t.Errorf("a model of the catalog runs %v", record.Job.Function)
	}
}
