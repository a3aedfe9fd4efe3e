package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// set posts a set, which must be accepted, and returns the records of its jobs.
func (w *world) set(body string, headers ...string) (records []store.Record) {
	w.Helper()
	answer := w.do("POST", "/v1/sets", body, headers...).want(200).json()
	for _, id := range answer["results"].([]any) {
		records = append(records, w.record(id.(string)))
	}
	return records
}

// TestSets creates jobs on one input. The first job has the rows and stores all columns that a
// prompt needs, and the other jobs read them.
func TestSets(t *testing.T) {
	t.Parallel()
	w := setup(t)
	jobs := w.set(`{"inputs":[{"title":"T","body":"B","sku":1}],"prompt":"{{title}}","keep_columns":"*","name":"shared","sampling_params":{"max_tokens":9},"limit":1,"sample":"random",
		"variants":[{"output_name":"short"},{"prompt":"{{title}}: {{body}}","model":"qwen-3-4b","name":"long"},{"sampling_params":{"temperature":1}}]}`)
	var ids []string
	for _, r := range jobs {
		ids = append(ids, r.Job.ID)
	}
	first := jobs[0].Spec
	if first.FromJob != "" || first.Spooled == "" || first.Output != "short" || !slices.Equal(results.FieldColumns(first.Function), []string{"title", "body"}) || len(first.Keep) != 1 {
		t.Errorf("the first job is %+v with the columns %v", first, results.FieldColumns(first.Function))
	}
	for i, r := range jobs[1:] {
		if r.Spec.FromJob != ids[0] || *r.Job.InputOf != ids[0] || len(r.Spec.Keep) > 0 || r.Spec.Seed != first.Seed || r.Spec.Limit != 1 {
			t.Errorf("job %d is %+v", i+1, r.Spec)
		}
	}
	for i, r := range jobs {
		if !slices.Equal(r.Job.Set, ids) {
			t.Errorf("job %d has the set %v, want %v", i, r.Job.Set, ids)
		}
	}
	got := []any{jobs[1].Job.Model, *jobs[1].Job.Name, *jobs[1].Job.Prompt, *jobs[2].Job.Name, *jobs[2].Job.Prompt, jobs[1].Spec.MaxTokens(), fmt.Sprint(jobs[2].Spec.Sampling["temperature"])}
	if diff := cmp.Diff([]any{"qwen-3-4b", "long", "{{title}}: {{body}}", "shared", "{{title}}", int64(9), "1"}, got); diff != "" {
		t.Errorf("the variants (-want +got):\n%s", diff)
	}
	if shown := w.get("/v1/jobs/" + ids[1]).want(200).json()["job"].(map[string]any)["set"].([]any); len(shown) != 3 || shown[0] != ids[0] {
		t.Errorf("the job shows the set %v", shown)
	}
	if file := w.set(`{"inputs":"https://example.org/a.csv","column_name":"text","id_column_name":"id","variants":[{},{}]}`); file[0].Spec.Column != "text" || file[1].Spec.IDColumn != "id" || file[1].Spec.Column != "" {
		t.Errorf("the jobs of a file are %+v and %+v", file[0].Spec, file[1].Spec)
	}
}

// TestSets_Refused tests that every problem of a set names its variant.
func TestSets_Refused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	refused := func(body, field, piece string) {
		t.Helper()
		w.do("POST", "/v1/sets", body).wantField(field, piece)
	}
	refused(`{"inputs":["a"]}`, "variants", "is missing")
	refused(`{"inputs":["a"],"variants":{}}`, "variants", "an array of objects")
	refused(`{"inputs":["a"],"variants":[{}]}`, "variants", "has 1 variants")
	refused(`{"inputs":["a"],"variants":[{},{},{},{},{}]}`, "variants", "has 5 variants")
	refused(`{"inputs":["a"],"variants":[{},{"limit":3}]}`, "variants[1].limit", "is not a field of a variant")
	refused(`{"inputs":["a"],"cost_estimate":true,"variants":[{},{}]}`, "cost_estimate", "cannot be used in a set")
	refused(`{"inputs":["a"],"variants":[{},{"model":"unknown"}]}`, "variants[1].model", "neither a model")
	refused(`{"inputs":["a"],"variants":[{"model":"unknown"},{}]}`, "variants[0].model", "neither a model")
	refused(`{"inputs":["a"],"variants":[{},{"sampling_params":{"top_p":7}}]}`, "variants[1].sampling_params.top_p", "at most 1")
	refused(`{"inputs":["a"],"variants":[{},{"prompt":"{{title}}"}]}`, "variants[1].prompt", "give the first variant a prompt")
	refused(`{"inputs":[{"a":1}],"prompt":"{{a}}","variants":[{},{"prompt":"{{b}}"}]}`, "inputs[0]", `has no field "b"`)
	refused(`{"variants":[{},{}]}`, "inputs", "is missing")
	refused(`{"inputs":["a"],"sampling_params":{"top_p":7},"variants":[{},{}]}`, "sampling_params.top_p", "at most 1")
	w.noJobs()
	w.post(`{"inputs":["a"],"variants":[{},{}]}`).wantField("variants", "only for POST /v1/sets")
}

// A failingStore fails some creations of jobs.
type failingStore struct {
	store.Store
	mu    sync.Mutex
	calls int
	fails func(call int) bool
}

func (s *failingStore) Create(ctx context.Context, rec store.Record, idem *store.Idempotency) (store.Record, bool, error) {
	s.mu.Lock()
	s.calls++
	fails := s.fails(s.calls)
	s.mu.Unlock()
	if fails {
		return store.Record{}, false, errors.New("an unexpected fault")
	}
	return s.Store.Create(ctx, rec, idem)
}

// TestSets_Repeated tests that a repeated request with the same Idempotency-Key creates no second
// set, and creates the jobs that the first request could not create.
func TestSets_Repeated(t *testing.T) {
	t.Parallel()
	failing := &failingStore{fails: func(call int) bool { return call == 3 }}
	w := setup(t, func(c *Config) { failing.Store, c.Store = c.Store, failing })
	const body = `{"inputs":["a","b"],"variants":[{},{"name":"two"},{"name":"three"}]}`
	key := []string{"Idempotency-Key", "once"}
	broken := w.do("POST", "/v1/sets", body, key...).want(500).json()
	some := broken["job_ids"].([]any)
	if len(some) != 2 || w.do("POST", "/v1/sets", body).want(200).json()["metadata"] == nil {
		t.Fatalf("after two of three jobs the answer is %v", broken)
	}
	var answers [40]string
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			var ids []string
			for _, r := range w.set(body, key...) {
				ids = append(ids, r.Job.ID)
			}
			answers[i] = strings.Join(ids, " ")
		})
	}
	all.Wait()
	if slices.ContainsFunc(answers[:], func(a string) bool { return a != answers[0] }) || !strings.HasPrefix(answers[0], some[0].(string)+" "+some[1].(string)) {
		t.Errorf("40 requests with one key made %q, the first request made %v", answers, some)
	}
	made, _, err := w.store.List(t.Context(), caller.DefaultAccount, 100, "")
	if err != nil || len(made) != 6 {
		t.Errorf("%d jobs exist, want 6: %v", len(made), err)
	}
	w.do("POST", "/v1/sets", strings.Replace(body, "two", "2", 1), key...).want(409)
}

// TestJointResults downloads the results of a set as one file.
func TestJointResults(t *testing.T) {
	t.Parallel()
	w := setup(t)
	jobs := w.set(`{"inputs":["q0","q1"],"variants":[{"output_name":"small"},{"output_name":"large"},{"output_name":"large"}]}`)
	var ids []string
	for i, r := range jobs {
		ids = append(ids, r.Job.ID)
		f := w.start(r.Job.ID, 2)
		w.succeed(f, answers(fmt.Sprint("a", i), ""))
	}
	file := w.get("/v1/jobs/compare/results?jobs=" + strings.Join(ids, ",")).want(200)
	columns, err := results.ListColumns(bytes.NewReader(file.text))
	must.Succeed(t, err)
	if diff := cmp.Diff([]string{"inputs", "small", ids[1], ids[2]}, columns); diff != "" {
		t.Errorf("the columns of the file (-want +got):\n%s", diff)
	}
	running := w.running(`{"inputs":["a"]}`, 2).JobID
	w.get("/v1/jobs/compare/results?jobs="+ids[0]+","+running).wantError(409, "job_not_succeeded", "is running")
	w.get("/v1/jobs/compare/results?jobs="+ids[0]).wantField("jobs", "has 1 ids")
}
