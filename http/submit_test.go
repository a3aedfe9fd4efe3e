package http

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/http/nodes"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

func (w *world) record(id string) store.Record {
	w.Helper()
	record, err := w.store.Get(w.Context(), id)
	must.Succeed(w, err)
	return record
}

func TestSubmit_AnswersTheSubmissionResponse(t *testing.T) {
	t.Parallel()
	w := setup(t)
	answer := w.post(`{"inputs":["a"]}`).want(200)
	body := answer.json()
	metadata := body["metadata"].(map[string]any)
	id := body["results"].(string)
	if metadata["job_id"] != id || metadata["message"] == "" || len(body) != 2 {
		t.Errorf("body %v", body)
	}
	if len(w.service.submitted) != 1 || w.service.submitted[0] != id {
		t.Errorf("the pipeline got the hint %v, want %s", w.service.submitted, id)
	}
}

func TestSubmit_JobIsDurableBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	w := setup(t)
	record := w.record(w.submitted(`{"inputs":["a","b\nc"],"model":"qwen-3-30b-a3b","system_prompt":"s","json_schema":{"type":"object"},
		"sampling_params":{"temperature":0.9,"max_tokens":512},"job_priority":1,"random_seed_per_input":true,"truncate_rows":false,
		"name":"n","description":"d"}`))
	job, spec := record.Job, record.Spec
	if job.Status != rowmill.StatusPending || job.RunType != rowmill.RunFull || job.Model != "qwen-3-30b-a3b" || job.Priority != 1 ||
		*job.Name != "n" || *job.Description != "d" || *job.System != "s" || string(job.Schema) != `{"type":"object"}` {
		t.Errorf("job %+v", job)
	}
	if spec.Account != "default" || spec.Model.ContextLength == 0 || !spec.SeedPerRow || spec.TruncateRows || spec.System != "s" ||
		spec.Priority != 1 || spec.RowQuota != 1_000_000 || record.SchemaVersion != store.SchemaVersion {
		t.Errorf("spec %+v", spec)
	}
	if diff := cmp.Diff([]string{"a", "b\nc"}, spec.Inline); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if job.NumRows == nil || *job.NumRows != 2 || job.Started != nil || job.Completed != nil || job.JobCost != nil || job.InputTokens != nil {
		t.Errorf("fields that are known are not set, or others are: %+v", job)
	}
}

func TestSubmit_Defaults(t *testing.T) {
	t.Parallel()
	w := setup(t)
	// Null means absent for every optional field.
	nulls := `{"inputs":["a"],"model":null,"column_name":null,"id_column_name":null,"system_prompt":null,"json_schema":null,
		"sampling_params":null,"job_priority":null,"cost_estimate":null,"random_seed_per_input":null,"truncate_rows":null,"dedup":null,"name":null,"description":null}`
	for _, body := range []string{`{"inputs":["a"]}`, nulls} {
		record := w.record(w.submitted(body))
		job, spec := record.Job, record.Spec
		if job.Model != "gpt-oss-20b" || job.Priority != 0 || job.Name != nil || job.Description != nil || job.System != nil || job.Schema != nil {
			t.Errorf("job %+v", job)
		}
		if !spec.TruncateRows || spec.SeedPerRow || spec.Dedup || spec.Estimate || spec.RowQuota != 1000 || len(job.Warnings) != 0 {
			t.Errorf("spec %+v, warnings %q", spec, job.Warnings)
		}
	}
}

func TestSubmit_SamplingIsMergedOverTheModels(t *testing.T) {
	t.Parallel()
	w := setup(t)
	record := w.record(w.submitted(`{"inputs":["a"],"model":"qwen-3-30b-a3b-thinking","sampling_params":{"temperature":0.9,"max_tokens":512}}`))
	const want = `{"max_tokens":512,"repetition_penalty":1,"temperature":0.9,"top_k":20,"top_p":0.95}`
	for _, sampling := range []map[string]any{record.Job.Sampling, record.Spec.Sampling} {
		if got, _ := json.Marshal(sampling); string(got) != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestSubmit_URL(t *testing.T) {
	t.Parallel()
	w := setup(t)
	record := w.record(w.submitted(`{"inputs":"https://example.org/a.csv?X-Amz-Signature=secret","column_name":"text","id_column_name":"id"}`))
	spec := record.Spec
	if spec.URL != "https://example.org/a.csv?X-Amz-Signature=secret" || spec.Column != "text" || spec.IDColumn != "id" || spec.Inline != nil || spec.Spooled != "" {
		t.Errorf("spec %+v", spec)
	}
	if logs := w.logs.String(); strings.Contains(logs, "secret") {
		t.Errorf("the signed query was logged:\n%s", logs)
	}
	if spec := w.record(w.submitted(`{"inputs":"https://example.org/a","input_format":"lines"}`)).Spec; spec.Format != "lines" {
		t.Errorf("the format that was asked for is lost: %+v", spec)
	}
	if record := w.record(w.submitted(`{"inputs":"https://example.org/a.csv"}`)); record.Spec.Column != "" {
		t.Errorf("without column_name the first is used: %+v", record.Spec)
	}
}

func TestSubmit_Warnings(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for name, c := range map[string]struct{ body, piece string }{
		"UnknownFields":            {`{"inputs":["a"],"colour":"red","n":{"a":[1,"]}"]}}`, "ignored unknown fields: colour, n"},
		"EmbeddingSamplingParams":  {`{"inputs":["a"],"model":"qwen-3-embedding-0.6b","sampling_params":{"top_p":1}}`, "top_p ignored"},
		"EmbeddingSystemPrompt":    {`{"inputs":["a"],"model":"qwen-3-embedding-0.6b","system_prompt":"s"}`, "system_prompt was ignored"},
		"EmbeddingSeeds":           {`{"inputs":["a"],"model":"qwen-3-embedding-0.6b","random_seed_per_input":true}`, "random_seed_per_input was ignored"},
		"ManyUnknownFields":        {`{"inputs":["a"]` + strings.Repeat(`,"x":1`, 30) + `}`, "and 10 more"},
		"FormatIsGuessed":          {`{"inputs":"https://example.org/rows?name=a.csv"}`, "The first line is read as a header"},
		"UnknownFieldOfLongName":   {`{"inputs":["a"],"` + strings.Repeat("x", 1000) + `":1}`, "a name of more than 256 bytes"},
		"UnknownFieldOfLargeValue": {`{"inputs":["a"],"x":"` + strings.Repeat("x", 7<<20) + `"}`, "ignored unknown fields: x"},
	} {
		t.Run(name, func(t *testing.T) {
			w := *w
			w.TB = t
			body := w.post(c.body).want(200).json()
			warnings := fmt.Sprint(body["warnings"])
			if !strings.Contains(warnings, c.piece) {
				t.Errorf("warnings %s, want %q", warnings, c.piece)
			}
			// The job has the same warning.
			job := w.get("/v1/jobs/" + body["results"].(string)).want(200).json()["job"].(map[string]any)
			if fmt.Sprint(job["warnings"]) != warnings {
				t.Errorf("job has %v, the answer %v", job["warnings"], warnings)
			}
		})
	}
}

func TestSubmit_DefaultMaxTokensIsLoweredToHalfTheContext(t *testing.T) {
	t.Parallel()
	small, err := catalog.Load(strings.NewReader("models:\n  - {id: gpt-oss-20b, kind: generation, context_length: 1000, sampling: {max_tokens: 4096}}\n"))
	must.Succeed(t, err)
	w := setup(t, func(c *Config) { c.Catalog = small })
	answer := w.post(`{"inputs":["a"]}`).want(200).json()
	record := w.record(answer["results"].(string))
	if fmt.Sprint(record.Spec.Sampling["max_tokens"]) != "500" || !strings.Contains(fmt.Sprint(answer["warnings"]), "lowered to 500") {
		t.Errorf("sampling %v, warnings %v", record.Spec.Sampling, answer["warnings"])
	}
}

func TestSubmit_FullDisk(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.MaxInlineBytes = 10 })
	w.bucket.fail = fmt.Errorf("write: %w", syscall.ENOSPC)
	w.post(`{"inputs":["aaaaaaaaaaaaaaaaaaa"]}`).wantError(507, "storage_full", "disk is full")
	w.bucket.fail = nil
	w.noJobs()
	w.submitted(`{"inputs":["aaaaaaaaaaaaaaaaaaa"]}`)
}

func TestSubmit_DrainingNodeTakesNoJobs(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.service.draining = true
	if answer := w.post(`{"inputs":["a"]}`).wantError(503, "draining", "about to stop"); answer.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	w.noJobs()
}

// A draining node still stores a job if another node can own it.
func TestSubmit_DrainingNodeTakesJobsForOthers(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.service.draining = true
	w.service.nodes = []client.Node{{ID: "self", Self: true, Role: nodes.NodeBoth, State: nodes.NodeDraining}, {ID: "gpu", Role: nodes.NodeEngines, State: nodes.NodeRunning}}
	w.post(`{"inputs":["a"]}`).wantError(503, "draining", "about to stop")
	w.service.nodes = append(w.service.nodes, client.Node{ID: "other", Role: nodes.NodeBoth, State: nodes.NodeRunning})
	w.submitted(`{"inputs":["a"]}`)
}

// The configuration applies if the submission does not set dedup. Rows with their own
// seeds are never equal.
func TestSubmit_EqualRowsByDefault(t *testing.T) {
	t.Parallel()
	for _, byDefault := range []bool{false, true} {
		w := setup(t, func(c *Config) { c.Dedup = byDefault })
		for body, want := range map[string]bool{
			`{"inputs":["a"]}`:                                                                           byDefault,
			`{"inputs":["a"],"dedup":null}`:                                                              byDefault,
			`{"inputs":["a"],"dedup":true}`:                                                              true,
			`{"inputs":["a"],"dedup":false}`:                                                             false,
			`{"inputs":["a"],"random_seed_per_input":true}`:                                              false,
			`{"inputs":["a"],"random_seed_per_input":true,"dedup":false}`:                                false,
			`{"inputs":["a"],"random_seed_per_input":true,"model":"qwen-3-embedding-0.6b"}`:              byDefault,
			`{"inputs":["a"],"random_seed_per_input":true,"model":"qwen-3-embedding-0.6b","dedup":true}`: true,
		} {
			if got := w.record(w.submitted(body)).Spec.Dedup; got != want {
				t.Errorf("by default %v: %s makes it %v, want %v", byDefault, body, got, want)
			}
		}
	}
}

// Chats are stored as an object, where the job checks them. They make no prompt, and no embedding.
func TestSubmit_Messages(t *testing.T) {
	t.Parallel()
	w := setup(t)
	record := w.record(w.submitted(`{"inputs":["[{\"role\":\"user\",\"content\":\"a\"}]"],"messages":true}`))
	if !record.Spec.Messages || record.Spec.Spooled == "" {
		t.Errorf("specification %+v", record.Spec)
	}
	w.post(`{"inputs":[{"a":"b"}],"messages":true,"prompt":"{{a}}"}`).wantError(400, "invalid_request", "").wantField("messages", "cannot be used with a prompt")
	w.post(`{"inputs":["a"],"messages":true,"model":"qwen-3-embedding-0.6b"}`).wantError(400, "invalid_request", "").wantField("messages", "embedding model")
}
