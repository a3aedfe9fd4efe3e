package submission

import (
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/served"
	"github.com/rowmill/rowmill/http/request"
)

func serving(w *world, models ...engine.ServedModel) {
	w.servers = []served.Server{{Node: "n", Name: "e", Kind: "vllm", Models: models}}
}

// The record has the whole model, so that every node uses the same settings.
func TestServedModel_IsPinnedInTheRecord(t *testing.T) {
	t.Parallel()
	w := setup(t)
	serving(w, engine.ServedModel{Name: "own", Origin: "acme/Own", Kind: rowmill.KindReasoning, ContextLength: 2048})
	for _, name := range []string{"own", "acme/Own"} {
		record := w.submitted(`{"inputs":["a"],"model":"` + name + `"}`)
		m := record.Spec.Model
		if m.ID != name || m.Kind != rowmill.KindReasoning || m.ContextLength != 2048 || !m.NoPrice || record.Job.Model != name {
			t.Errorf("%s: the record has %+v, the job %s", name, m, record.Job.Model)
		}
	}
	w.wantField(`{"inputs":["a"],"model":"own","sampling_params":{"max_tokens":2048}}`, "sampling_params.max_tokens", "no room")
	w.wantField(`{"inputs":["a"],"model":"owm"}`, "model", `did you mean "own"?`)
	w.wantField(`{"inputs":["a"],"model":"something-else"}`, "model", "there are own, gpt-oss-20b")
	serving(w)
	w.wantField(`{"inputs":["a"],"model":"acme/Own"}`, "model", "neither a model of this service nor a published Function")
}

// While the capabilities of a model are being tested, the request is not invalid; it can
// be retried.
func TestServedModel_NotReady(t *testing.T) {
	t.Parallel()
	w := setup(t)
	serving(w, engine.ServedModel{Name: "own"}, engine.ServedModel{Name: "dumb", Unusable: "no template"})
	_, err := w.take(`{"inputs":["a"],"model":"own"}`)
	if e := request.FromError(err); e.Status != 503 || e.Code != "model_not_ready" || e.Header["Retry-After"] == "" {
		t.Errorf("%v", err)
	}
	// Other problems are reported at once, because they do not depend on the model.
	w.wantField(`{"inputs":["a"],"model":"own","job_priority":5}`, "job_priority", "must be 0")
	w.wantField(`{"inputs":["a"],"model":"dumb"}`, "model", "no template")
}

// A model goes before a Function of the same name, so no Function may have the name of a
// served model.
func TestServedModel_BeforeFunction(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.publish(grade)
	if record := w.submitted(`{"inputs":["a"],"model":"grade"}`); record.Job.Function == nil {
		t.Error("the Function does not run")
	}
	serving(w, engine.ServedModel{Name: "grade", Kind: rowmill.KindGeneration})
	if record := w.submitted(`{"inputs":["a"],"model":"grade"}`); record.Job.Function != nil || record.Spec.Model.ID != "grade" {
		t.Error("the Function runs instead of the model")
	}
	if _, problems := w.define(grade); !problems.Has("name") || !strings.Contains(problems.Err().Error(), "name of a model") {
		t.Errorf("%v", problems.Err())
	}
}
