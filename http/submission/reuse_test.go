package submission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// jobList has the jobs of accounts, newest first. A page has two jobs.
type jobList []store.Record

func (l jobList) Get(_ context.Context, id string) (store.Record, error) {
	for _, record := range l {
		if record.Job.ID == id {
			return record, nil
		}
	}
	return store.Record{}, rowmill.ErrNotFound
}

func (l jobList) List(_ context.Context, account string, _ int, cursor string) (jobs []*rowmill.Job, next string, err error) {
	from := 0
	_, _ = fmt.Sscan(cursor, &from)
	for i := from; i < len(l); i++ {
		if len(jobs) == 2 {
			return jobs, fmt.Sprint(i), nil
		}
		if l[i].Spec.Account == account {
			jobs = append(jobs, &l[i].Job)
		}
	}
	return jobs, "", nil
}

// TestReuse finds the finished jobs from which rows can be taken over.
func TestReuse(t *testing.T) {
	t.Parallel()
	w := setup(t)
	check := func(body string) (*CheckedJob, error) {
		sub := must.Get(w.Read(t.Context(), strings.NewReader(body)))(t)
		defer sub.Close()
		return sub.Check(t.Context(), "default")
	}
	made := must.Get(check(`{"inputs":["a"]}`))(t)
	record := func(id, name string, change func(*store.Record)) store.Record {
		r := made.ToRecord(time.Now())
		r.Job.ID, r.Job.Name, r.Job.Status, r.Spec.Account = id, &name, rowmill.StatusSucceeded, "default"
		r.Artifacts = map[string]store.Artifact{layout.Full: {Key: "k"}}
		if change != nil {
			change(&r)
		}
		return r
	}
	w.Jobs = jobList{
		record("job-9", "nightly", func(r *store.Record) { r.Job.Status = rowmill.StatusRunning }),
		record("job-8", "nightly", nil),
		record("job-7", "nightly", func(r *store.Record) { r.Spec.System = "other" }),
		record("job-6", "other", nil),
		record("job-5", "nightly", func(r *store.Record) { now := time.Now(); r.DataRemoved = &now }),
		record("job-4", "nightly", func(r *store.Record) { r.Job.Status = rowmill.StatusCancelled }),
		record("job-3", "nightly", func(r *store.Record) { r.Spec.Account = "stranger" }),
		record("job-2", "nightly", nil),
		record("job-a", "", func(r *store.Record) { r.Job.Set = []string{"job-a", "job-b", "job-c"} }),
		record("job-b", "", func(r *store.Record) { r.Job.Set, r.Spec.System = []string{"job-a", "job-b", "job-c"}, "other" }),
		record("job-c", "", func(r *store.Record) {
			r.Job.Set, r.Spec.Model.ID = []string{"job-a", "job-b", "job-c"}, "llama-3.1-8b"
		}),
		record("job-1", "strict", func(r *store.Record) { r.Spec.Sampling = map[string]any{"temperature": 0.5} }),
	}
	for name, c := range map[string]struct {
		from, body string
		jobs       []string
		problem    string // of the field reuse
		warning    string
	}{
		"a name":                   {"nightly", "", []string{"job-8", "job-2"}, "", ""},
		"a name of other settings": {"strict", "", nil, "", `reuse finds no rows: job job-1 has the name "strict", but it ran with another sampling_params`},
		"a name without jobs":      {"weekly", "", nil, "", `no job with the name "weekly" has succeeded yet`},
		"a job":                    {"job-6", "", []string{"job-6"}, "", ""},
		"a job of a set":           {"job-a", "", []string{"job-a"}, "", ""},
		"the set of a job":         {"job-a", `,"system_prompt":"other"`, []string{"job-b"}, "", ""},
		"no job of a set":          {"job-a", `,"system_prompt":"another"`, nil, "another system_prompt", ""},
		"a running job":            {"job-9", "", nil, "it is running; wait until it has succeeded", ""},
		"a cancelled job":          {"job-4", "", nil, "resume it", ""},
		"a job without data":       {"job-5", "", nil, "its results were removed", ""},
		"a job of others":          {"job-3", "", nil, "does not exist", ""},
		"no job":                   {"job-0", "", nil, "does not exist", ""},
		"another system prompt":    {"job-7", "", nil, "another system_prompt", ""},
		"another model":            {"job-6", `,"model":"llama-3.1-8b"`, nil, "another model", ""},
		"another schema":           {"job-6", `,"json_schema":{"type":"object"}`, nil, "another json_schema", ""},
		"a limit":                  {"job-6", `,"limit":1`, nil, "leave limit out", ""},
		"an estimate":              {"job-6", `,"cost_estimate":true`, nil, "cannot be used with cost_estimate", ""},
		"a seed for each row":      {"job-6", `,"random_seed_per_input":true`, nil, "its own answer", ""},
		"no name":                  {"", "", nil, "needs from", ""},
	} {
		job, err := check(fmt.Sprintf(`{"inputs":["a"],"reuse":{"from":%q}%s}`, c.from, c.body))
		if c.problem != "" {
			if err == nil || !strings.Contains(err.Error(), c.problem) || !strings.Contains(err.Error(), "reuse") {
				t.Errorf("%s: got %v, want a problem with %q", name, err, c.problem)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := job.ToRecord(time.Now())
		if !slices.Equal(got.Job.Reuse.Jobs, append([]string{}, c.jobs...)) || got.Spec.Reuse.By != rowmill.ReuseByText {
			t.Errorf("%s: takes over rows of %v, want %v", name, got.Job.Reuse, c.jobs)
		}
		if text := strings.Join(got.Job.Warnings, " "); !strings.Contains(text, c.warning) || c.warning == "" && text != "" {
			t.Errorf("%s: warns %q, want %q", name, text, c.warning)
		}
	}
	w.Now = time.Now
	set := must.Get(w.Read(t.Context(), strings.NewReader(`{"inputs":["a"],"reuse":{"from":"job-a"},"variants":[{"system_prompt":"other"},{},{"system_prompt":"new"}]}`)))(t)
	defer set.Close()
	for i, job := range must.Get(set.CheckSet(t.Context(), "default"))(t) {
		want := [][]string{{"job-b"}, {"job-a"}, {}}[i]
		if warns := len(job.warnings) > 0; !slices.Equal(job.Spec.Reuse.Jobs, want) || warns != (len(want) == 0) {
			t.Errorf("job %d of a set takes over rows of %v with the warnings %v, want rows of %v", i, job.Spec.Reuse.Jobs, job.warnings, want)
		}
	}
	for body, problem := range map[string]string{
		`"reuse":"nightly"`:                  "must be an object",
		`"reuse":{"from":"n","by":"number"}`: "must be",
		`"reuse":{"from":"n","by":"id"}`:     "has no IDs",
	} {
		if _, err := check(`{"inputs":["a"],` + body + `}`); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: got %v, want %q", body, err, problem)
		}
	}
}
