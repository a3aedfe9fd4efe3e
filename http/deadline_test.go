package http

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

const farDeadline = `"deadline":"2999-11-27T06:00Z"`

// setupForecast starts a world in which each estimate succeeds at once, with a forecast of so many
// seconds; nil for none.
func setupForecast(t *testing.T, seconds *float64, change ...func(*Config)) *world {
	t.Helper()
	return setupRun(t, func(w *world, id string) {
		if w.record(id).Spec.Estimate {
			w.endEstimate(id, seconds)
		}
	}, change...)
}

// endEstimate ends an estimate with a forecast of so many seconds; nil for none.
func (w *world) endEstimate(id string, seconds *float64) {
	w.Helper()
	rows := *w.record(id).Job.NumRows
	f := w.start(id, rows)
	w.update(f, func(r *store.Record) error {
		r.Job.Estimate = &rowmill.Estimate{Method: rowmill.EstimateSampled, Seconds: seconds, SecondsLow: seconds, SecondsHigh: seconds}
		return nil
	})
	w.succeed(f, answers(slices.Repeat([]string{"A"}, int(rows))...))
}

// allJobs returns the jobs of the account, newest first.
func (w *world) allJobs() []*rowmill.Job {
	w.Helper()
	jobs, _, err := w.store.List(w.Context(), caller.DefaultAccount, 10, "")
	must.Succeed(w, err)
	return jobs
}

// A submission with a deadline is answered with the forecast. The job takes over the rows of the
// estimate and keeps all other settings.
func TestDeadline_Forecast(t *testing.T) {
	t.Parallel()
	w := setupForecast(t, new(90.5))
	body := w.post(`{"inputs":["a","b"],"name":"nightly","truncate_rows":false,"x":1,` + farDeadline + `}`).want(200).json()
	record := w.lastJob()
	job, spec := record.Job, record.Spec
	if all := w.allJobs(); len(all) != 2 || body["results"] != job.ID || all[1].RunType != rowmill.RunEstimate || all[1].Deadline != nil {
		t.Fatalf("%v made %d jobs", body, len(all))
	}
	estimate := w.record(w.allJobs()[1].ID)
	if c := spec.Continue; c == nil || *c != (rowmill.Continuation{Job: estimate.Job.ID, Failed: true, Rest: true}) || spec.Inline != nil || spec.Spooled != "" || spec.Estimate {
		t.Errorf("the job is %+v, continues %+v", spec, spec.Continue)
	}
	if job.RunType != rowmill.RunFull || *job.NumRows != 2 || *job.Name != "nightly" || job.Truncate == nil || *job.Continues != estimate.Job.ID || len(job.Warnings) != 1 || spec.Seed != estimate.Spec.Seed {
		t.Errorf("the job is %+v", job)
	}
	ends := estimate.Job.Completed.Add(90500 * time.Millisecond).Truncate(time.Millisecond).Format(time.RFC3339Nano)
	want := map[string]any{"seconds": 90.5, "seconds_low": 90.5, "seconds_high": 90.5, "finishes_at": ends, "deadline": "2999-11-27T06:00:00Z", "met": true}
	shown := w.get("/v1/jobs/" + job.ID).want(200).json()["job"].(map[string]any)
	for name, got := range map[string]any{"answer": body["forecast"], "job": shown["forecast"]} {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the forecast of the %s is %v, want %v", name, got, want)
		}
	}
	if shown["deadline"] != "2999-11-27T06:00:00Z" || len(w.service.submitted) != 2 {
		t.Errorf("the deadline is %v, hints %v", shown["deadline"], w.service.submitted)
	}
	if _, has := w.post(`{"inputs":["a"]}`).want(200).json()["forecast"]; has {
		t.Error("a submission without a deadline has a forecast")
	}
}

// With admit, a forecast that misses the deadline refuses the submission. The estimate stays, and a
// repeated submission runs no sample again.
func TestDeadline_OnlyIfMet(t *testing.T) {
	t.Parallel()
	clock := &clock{at: time.Now()}
	w := setupForecast(t, new(3600.0), func(c *Config) { c.Now = clock.now })
	send := func(in time.Duration, admit, key string) *answered {
		return w.post(fmt.Sprintf(`{"inputs":["a"],"deadline":%q%s}`, clock.now().Add(in).Format(time.RFC3339), admit), "Idempotency-Key", key)
	}
	const only = `,"admit":"only_if_met"`
	for range 2 {
		refused := send(30*time.Minute, only, "late").wantError(409, "deadline_not_met", `send a later deadline`).json()
		forecast := refused["forecast"].(map[string]any)
		if all := w.allJobs(); len(all) != 1 || refused["estimate_job_id"] != all[0].ID || forecast["met"] != false || forecast["seconds"] != 3600.0 {
			t.Fatalf("refused %v, %d jobs", refused, len(all))
		}
	}
	first := send(2*time.Hour, only, "early").want(200).json()
	again := send(2*time.Hour, only, "early").want(200).json()
	if fmt.Sprint(first["forecast"]) != fmt.Sprint(again["forecast"]) || first["results"] != again["results"] || len(w.allJobs()) != 3 {
		t.Errorf("first %v, again %v, %d jobs", first, again, len(w.allJobs()))
	}
	if late := send(30*time.Minute, "", "anyway").want(200).json()["forecast"].(map[string]any); late["met"] != false {
		t.Errorf("the forecast of a job that is created anyway is %v", late)
	}
	send(3*time.Hour, only, "early").wantError(409, "idempotency_conflict", "")
	send(3*time.Hour, only, "late").wantError(409, "idempotency_conflict", "")
}

// Without a forecast the job is created with a warning, or refused if it needs the forecast.
func TestDeadline_NoForecast(t *testing.T) {
	t.Parallel()
	w := setupForecast(t, nil)
	body := w.post(`{"inputs":["a"],` + farDeadline + `}`).want(200).json()
	const reason = "no server of the model answered a sample of the rows"
	if forecast, has := body["forecast"]; !has || forecast != nil || fmt.Sprint(body["warnings"]) != "[deadline: no forecast was possible: "+reason+"]" {
		t.Errorf("answered %v", body)
	}
	if job := w.lastJob().Job; job.Deadline == nil || job.Forecast != nil || job.Continues == nil {
		t.Errorf("the job is %+v", job)
	}
	w.post(`{"inputs":["a"],"admit":"only_if_met",`+farDeadline+`}`).wantError(409, "no_forecast", reason)
	if all := w.allJobs(); len(all) != 3 {
		t.Errorf("%d jobs, want a job and two estimates", len(all))
	}
}

func TestDeadline_NoForecastOfEmbeddings(t *testing.T) {
	t.Parallel()
	w := setupRun(t, func(w *world, id string) {
		vector := done{out: rowmill.RowOutput{Embedding: make([]float32, 1024), InputTokens: 3, Engine: "sim", Attempts: 1}}
		w.succeed(w.start(id, 1), []done{vector})
	})
	w.post(`{"inputs":["a"],"model":"qwen-3-embedding-0.6b","admit":"only_if_met",`+farDeadline+`}`).wantError(409, "no_forecast", "qwen-3-embedding-0.6b is an embedding model")
}

// If the estimate takes too long, the job runs its own rows, and the estimate is cancelled.
func TestDeadline_SlowEstimate(t *testing.T) {
	t.Parallel()
	w := setupRun(t, func(w *world, id string) {
		if w.record(id).Spec.Estimate {
			w.start(id, 2)
		}
	}, func(c *Config) { c.JobWait = 30 * time.Millisecond })
	body := w.post(`{"inputs":["a","b"],` + farDeadline + `}`).want(200).json()
	record, estimate := w.lastJob(), w.record(w.allJobs()[1].ID)
	if body["forecast"] != nil || !strings.Contains(fmt.Sprint(body["warnings"]), "did not end within 30ms") {
		t.Errorf("answered %v", body)
	}
	if record.Spec.Continue != nil || record.Spec.Spooled == "" || record.Spec.Spooled == estimate.Spec.Spooled || *record.Job.NumRows != 2 || record.Job.Continues != nil {
		t.Errorf("the job is %+v", record.Spec)
	}
	if got := string(w.object(record.Spec.Spooled)); got != "\"a\"\n\"b\"\n" {
		t.Errorf("the rows are %q", got)
	}
	if estimate.Job.Status != rowmill.StatusCancelled || len(w.service.cancelled) != 1 {
		t.Errorf("the estimate is %s: %s", estimate.Job.Status, estimate.Job.Message)
	}
	w.post(`{"inputs":["a","b"],"admit":"only_if_met",`+farDeadline+`}`).wantError(409, "no_forecast", "did not end within 30ms")
	if all := w.allJobs(); len(all) != 3 || all[0].RunType != rowmill.RunEstimate || all[0].Status != rowmill.StatusCancelled {
		t.Errorf("%d jobs, the last is %s", len(all), all[0].Status)
	}
}

// A failed estimate refuses the submission: the job would fail, too.
func TestDeadline_FailedEstimate(t *testing.T) {
	t.Parallel()
	w := setupRun(t, func(w *world, id string) {
		_, err := w.store.Finish(w.Context(), w.start(id, 1), func(r *store.Record) error {
			r.Job.FailureReason = rowmill.Failf(rowmill.CodeRowQuota, "The input has 2 rows.")
			return r.Job.Become(rowmill.StatusFailed, time.Now())
		})
		must.Succeed(w, err)
	})
	w.post(`{"inputs":["a"],`+farDeadline+`}`).wantError(409, "no_forecast", "is failed: The input has 2 rows.")
	if all := w.allJobs(); len(all) != 1 {
		t.Errorf("%d jobs", len(all))
	}
}

// A client that disconnects and sends the submission again gets the forecast of the first estimate.
func TestDeadline_ClientThatDisconnects(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	w := setupRun(t, func(w *world, id string) {
		if w.record(id).Spec.Estimate {
			leave()
		}
	})
	body := `{"inputs":["a"],` + farDeadline + `}`
	r := w.request("POST", "/v1/batch-inference", body, "Idempotency-Key", "k").WithContext(ctx)
	if response, err := w.client.Do(r); err == nil {
		response.Body.Close()
		t.Fatal("answered")
	}
	id := w.lastJob().Job.ID
	w.endEstimate(id, new(1.0))
	if got := w.post(body, "Idempotency-Key", "k").want(200).json(); got["forecast"] == nil || len(w.allJobs()) != 2 || *w.lastJob().Job.Continues != id {
		t.Errorf("answered %v, %d jobs", got, len(w.allJobs()))
	}
}
