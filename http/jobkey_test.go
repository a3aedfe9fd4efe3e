package http

import (
	"testing"

	"github.com/rowmill/rowmill"
)

// TestJobs_NameTheKeyThatSubmittedThem creates jobs in every possible way.
func TestJobs_NameTheKeyThatSubmittedThem(t *testing.T) {
	t.Parallel()
	w := setupRun(t, func(*world, string) {}, func(c *Config) { c.JobWait = 1 })
	one, other := w.newKey(`{"name":"one"}`), w.newKey(`{"name":"other"}`)
	sdk := w.newKey(`{"dialect":"sdk"}`)
	as := func(k madeKey) *world {
		w := *w
		w.key = k.text
		return &w
	}
	file := as(one).uploaded("in.jsonl", requestLine("a", "llama-3.1-8b"))
	cancelled := w.ended(rowmill.StatusCancelled)
	for name, submit := range map[string]func(w *world) (job string){
		"submission": func(w *world) string { return w.submitted(`{"inputs":["a"]}`) },
		"file":       func(w *world) string { return w.submitted(`{"inputs":"file:` + file + `","model":"llama-3.1-8b"}`) },
		"estimate":   func(w *world) string { return w.submitted(`{"inputs":["a"],"cost_estimate":true}`) },
		"resume": func(w *world) string {
			return w.resume(cancelled, `{"again":true}`).want(200).json()["results"].(string)
		},
		"batch":    func(w *world) string { return jobOf(w.batched(file)) },
		"messages": func(w *world) string { return jobOf(w.messaged("a")) },
		"run": func(w *world) string {
			w.runGrade(`{"essay":"E"}`).want(504)
			return w.lastJob().Job.ID
		},
	} {
		for _, k := range []madeKey{one, other} {
			id := submit(as(k))
			if got := w.record(id).Job.KeyID; got == nil || *got != k.id {
				t.Errorf("%s: the record names the key %v, want %s", name, got, k.id)
			}
			for _, reader := range []madeKey{one, other, sdk} {
				if got := as(reader).get("/v1/jobs/" + id).want(200).json()["job"].(map[string]any)["key_id"]; got != k.id {
					t.Errorf("%s: shown is the key %v, want %s", name, got, k.id)
				}
			}
		}
	}

	id := w.submitted(`{"inputs":["a"]}`, w.signIn(one.text)...)
	if got := w.record(id).Job.KeyID; got == nil || *got != one.id {
		t.Errorf("a session submitted with the key %v, its own is %s", got, one.id)
	}
	id = w.submitted(`{"inputs":["a"]}`) // with the configured key
	if job := w.get("/v1/jobs/" + id).want(200).json()["job"].(map[string]any); job["key_id"] != nil {
		t.Errorf("the key of the configuration is shown as %v", job["key_id"])
	}
	if job := as(sdk).get("/v1/list-jobs?limit=1").want(200).json()["jobs"].([]any)[0].(map[string]any); job["job_id"] != id {
		t.Errorf("the newest is %v", job)
	} else if _, there := job["key_id"]; there { // clients take it for a column, and null has no type
		t.Errorf("listed with %v", job)
	}

	// A submission that is repeated with another key returns the job of the first key.
	first := as(one).submitted(`{"inputs":["a"]}`, "Idempotency-Key", "k")
	again := as(other).submitted(`{"inputs":["a"]}`, "Idempotency-Key", "k")
	if got := w.record(first).Job.KeyID; again != first || *got != one.id {
		t.Errorf("the repetition made %s of the key %s", again, *got)
	}
}
