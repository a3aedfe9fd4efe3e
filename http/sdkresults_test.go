package http

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/store"
)

func TestJobResults_WrapsTheColumns(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a"]}`, answers("x", ""))
	for body, want := range map[string]string{
		`{"job_id":"` + id + `"}`: `{"results":{"outputs":["x",null]}}`,
		`{"job_id":"` + id + `","include_inputs":true,"include_cumulative_logprobs":null,"later":1}`: `{"results":{"outputs":["x",null],"inputs":["input 0","input 1"]}}`,
		`{"job_id":"` + id + `","include_inputs":null,"include_cumulative_logprobs":false}`:          `{"results":{"outputs":["x",null]}}`,
	} {
		if got := strings.TrimSpace(string(w.do("POST", "/v1/job-results", body).want(200).text)); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	scores := w.do("POST", "/v1/job-results", `{"job_id":"`+id+`","include_cumulative_logprobs":true}`).want(200)
	if _, has := scores.json()["results"].(map[string]any)["cumulative_logprobs"]; !has {
		t.Errorf("no scores: %s", scores.text)
	}
}

func TestJobResults_Refuses(t *testing.T) {
	t.Parallel()
	w := setup(t)
	post := func(body string) *answered { t.Helper(); return w.do("POST", "/v1/job-results", body) }
	id := w.submitted(`{"inputs":["a"]}`)
	post(`{}`).wantField("job_id", "missing")
	post(`{"job_id":7}`).wantField("job_id", "must be a string")
	post(`{"job_id":"`+id+`","include_inputs":"yes"}`).wantField("include_inputs", "true or false")
	post(`[]`).wantError(400, "invalid_json", "object")
	post(`{"job_id":"`+rowmill.NewJobID()+`"}`).wantError(404, "job_not_found", "no job")
	post(`{"job_id":"`+id+`"}`).wantError(409, "job_not_succeeded", "pending")
	done := w.succeeded(`{"inputs":["a"]}`, answers("x"))
	w.do("POST", "/v1/job-results", `{"job_id":"`+done+`"}`, "Authorization", "Key "+w.keyOf("other", caller.RoleUser)).wantError(404, "job_not_found", done)
}

// lines reads a stream to its end.
func (w *world) lines(id string) (progress []int64, tokens []map[string]json.Number) {
	w.Helper()
	a := w.get("/v1/stream-job-progress/" + id).want(200)
	if got := a.header.Get("Content-Type"); got != "application/x-ndjson" {
		w.Errorf("content type %q", got)
	}
	for line := range strings.Lines(string(a.text)) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var update struct {
			Type   string          `json:"update_type"`
			Result json.RawMessage `json:"result"`
		}
		err := json.Unmarshal([]byte(line), &update)
		switch {
		case err != nil:
		case update.Type == "progress":
			var rows int64
			err = json.Unmarshal(update.Result, &rows)
			progress = append(progress, rows)
		case update.Type == "tokens":
			var t map[string]json.Number
			err = json.Unmarshal(update.Result, &t)
			tokens = append(tokens, t)
		}
		if err != nil {
			w.Errorf("line %q: %v", line, err)
		}
	}
	return progress, tokens
}

func TestStreamProgress_OfAnEndedJob(t *testing.T) {
	t.Parallel()
	w := setup(t)
	done := w.succeeded(`{"inputs":["a"]}`, answers("x", "y", "z"))
	progress, tokens := w.lines(done)
	if len(progress) != 1 || len(tokens) != 1 || len(tokens[0]) != 3 {
		t.Errorf("progress %v, tokens %v", progress, tokens)
	}
	if got := tokens[0]["total_tokens_processed_per_second"].String(); !strings.Contains(got, ".") {
		t.Errorf("tokens per second %s look like an integer", got)
	}
	w.get("/v1/stream-job-progress/"+rowmill.NewJobID()).wantError(404, "job_not_found", "no job")
	w.get("/v1/stream-job-progress/"+done, "Authorization", "Key "+w.keyOf("other", caller.RoleUser)).wantError(404, "job_not_found", done)
}

// readStore signals each read of a record.
type readStore struct {
	store.Store
	reads chan struct{}
}

func (r readStore) Get(ctx context.Context, jobID string) (store.Record, error) {
	record, err := r.Store.Get(ctx, jobID)
	select {
	case r.reads <- struct{}{}:
	default:
	}
	return record, err
}

func TestStreamProgress_FollowsAJobToItsEnd(t *testing.T) {
	t.Parallel()
	reads := make(chan struct{})
	w := setup(t, func(c *Config) { c.Store = readStore{c.Store, reads} })
	f := w.running(`{"inputs":["a"]}`, 2)
	schema := schemaOf(w.record(f.JobID), rowmill.IDNull)
	go func() {
		part := w.part(f, schema, 0, 0, answers("x"), "a.parquet")
		part.Totals.InputTokens, part.Totals.OutputTokens = 3, 4
		if err := w.store.CommitParts(t.Context(), f, []store.Part{part}); err != nil {
			t.Error(err)
		}
		<-reads // this read may have begun before the commit
		<-reads
		if _, err := w.store.Cancel(t.Context(), f.JobID, time.Now(), nil); err != nil {
			t.Error(err)
		}
	}()
	progress, tokens := w.lines(f.JobID)
	if len(progress) == 0 || progress[len(progress)-1] != 1 {
		t.Errorf("progress %v, want 1 at the end", progress)
	}
	last := map[string]string{}
	for name, n := range tokens[len(tokens)-1] {
		last[name] = n.String()
	}
	delete(last, "total_tokens_processed_per_second")
	if diff := cmp.Diff(map[string]string{"input_tokens": "3", "output_tokens": "4"}, last); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
}

func TestStreamProgress_EndsWhenTheNodeDrains(t *testing.T) {
	t.Parallel()
	w := setup(t)
	f := w.running(`{"inputs":["a"]}`, 2)
	w.service.draining = true
	if progress, _ := w.lines(f.JobID); !cmp.Equal(progress, []int64{0}) {
		t.Errorf("progress %v", progress)
	}
}
