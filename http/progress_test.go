package http

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/http/jobs"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

func TestProgress_RatesAndTimeLeft(t *testing.T) {
	t.Parallel()
	w, clock := setupClock(t)
	w.service.waiting = "" // no reason
	f := w.running(`{"inputs":["a"],"model":"llama-3.1-8b"}`, 1000)
	path := "/v1/jobs/" + f.JobID + "/progress"
	started := *w.record(f.JobID).Job.Started
	var before int64
	at := func(seconds float64, rows int64) map[string]any {
		t.Helper()
		clock.set(started.Add(time.Duration(seconds * float64(time.Second))))
		more := rows - before
		before = rows
		part := store.Part{Key: fmt.Sprint(rows), Rows: more, Totals: store.RowTotals{Rows: more, OutputTokens: 10 * more}}
		must.Succeed(t, w.store.CommitParts(t.Context(), f, []store.Part{part}))
		return w.get(path).want(200).json()
	}
	body := at(10, 0)
	if body["rows_per_second"] != 0.0 || body["eta_seconds"] != nil || body["num_rows"] != 1000.0 || body["waits_for"] != nil {
		t.Errorf("%v", body)
	}
	// The first sample is taken at the first request.
	if body = at(20, 100); body["rows_per_second"] != 10.0 || body["tokens_per_second"] != 100.0 || body["eta_seconds"] != 90.0 {
		t.Errorf("%v", body)
	}
	if body["eta_low"] != 81.0 || body["eta_high"] != 198.0 { // at 10 and at 5 rows per second
		t.Errorf("%v", body)
	}
	if cost, is := body["cost_so_far"].(float64); !is || cost <= 0 {
		t.Errorf("%v", body)
	}
	// After a long time without requests, the rate is the rate since the start.
	if body = at(20+400, 420); body["rows_per_second"] != 1.0 || body["eta_seconds"] != 580.0 {
		t.Errorf("%v", body)
	}
}

func TestProgress_BeforeAndAfter(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.service.waiting = "waits for a server"
	pending := w.get("/v1/jobs/" + w.submitted(`{"inputs":["a"]}`) + "/progress").want(200).json()
	if pending["rows_per_second"] != nil || pending["eta_seconds"] != nil || pending["waits_for"] != "waits for a server" || pending["message"] != "waits for a server" {
		t.Errorf("%v", pending)
	}
	over := w.get("/v1/jobs/" + w.succeeded(`{"inputs":["a"]}`, answers("x", "")) + "/progress").want(200).json()
	if over["rows_per_second"] == nil || over["eta_seconds"] != nil || over["waits_for"] != nil || over["message"] != "Job completed; 1 of 2 rows failed" {
		t.Errorf("%v", over)
	}
	w.get("/v1/jobs/"+unknownIDs[0]+"/progress").wantError(404, "job_not_found", "")
}

// The answer has the shards and nodes that the owner reports. Ended jobs have neither.
func TestProgress_ShardsAndNodes(t *testing.T) {
	t.Parallel()
	w := setup(t)
	path := "/v1/jobs/" + w.running(`{"inputs":["a"]}`, 1000).JobID + "/progress"
	for _, test := range []struct {
		where *jobs.RowDistribution
		want  string
	}{
		{nil, "<nil> <nil>"},
		{&jobs.RowDistribution{Shards: client.ShardCounts{Total: 2, Complete: 0}}, "map[complete:0 total:2] []"},
		{
			&jobs.RowDistribution{Shards: client.ShardCounts{Total: 2, Complete: 1}, Nodes: []client.NodeRows{{Node: "gpu1", RowsAssigned: 5, RowsDone: 7}, {Node: "gpu2", RowsDone: 1, RowsPerSecond: new(0.5)}}},
			"map[complete:1 total:2] [map[node:gpu1 rows_assigned:5 rows_done:7 rows_per_second:<nil>] map[node:gpu2 rows_assigned:0 rows_done:1 rows_per_second:0.5]]",
		},
	} {
		w.service.where = test.where
		if body := w.get(path).want(200).json(); fmt.Sprint(body["shards"], " ", body["nodes"]) != test.want {
			t.Errorf("%v %v, want %s", body["shards"], body["nodes"], test.want)
		}
	}
	over := w.get("/v1/jobs/" + w.succeeded(`{"inputs":["a"]}`, answers("x", "")) + "/progress").want(200).json()
	if over["shards"] != nil || over["nodes"] != nil {
		t.Errorf("%v", over)
	}
}

func TestTimeline(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a"]}`, answers("x", ""))
	whats := func(id string) (all []string) {
		t.Helper()
		last := int64(0)
		for _, e := range w.get("/v1/jobs/" + id + "/timeline").want(200).json()["events"].([]any) {
			event := e.(map[string]any)
			at, err := time.Parse(time.RFC3339Nano, event["at"].(string))
			if err != nil || at.UnixMilli() < last {
				t.Errorf("%v is out of order, %v", event, err)
			}
			last = at.UnixMilli()
			detail, _, _ := strings.Cut(event["detail"].(string), ", epoch ")
			all = append(all, fmt.Sprintf("%v %v", event["what"], detail))
		}
		return all
	}
	if got := fmt.Sprintf("%q", whats(id)); got != `["created " "claimed node gpu1" "started " "completed Job completed; 1 of 2 rows failed"]` {
		t.Error(got)
	}
	cancelled := w.submitted(`{"inputs":["a"]}`)
	w.get("/v1/job-cancel/" + cancelled).want(200)
	next := w.do("POST", "/v1/jobs/"+cancelled+"/resume", "").want(200).json()["results"].(string)
	w.do("DELETE", "/v1/jobs/"+id+"/data", "").want(200)
	if got := fmt.Sprintf("%q", whats(id)); got != `["created " "claimed node gpu1" "started " "completed Job completed; 1 of 2 rows failed" "input_removed " "data_removed "]` {
		t.Error(got)
	}
	if got := fmt.Sprintf("%q", whats(cancelled)); got != fmt.Sprintf(`["created " "completed Job was cancelled" "continued %s"]`, next) {
		t.Error(got)
	}
	if got := fmt.Sprintf("%q", whats(next)); got != fmt.Sprintf(`["created continues %s"]`, cancelled) {
		t.Error(got)
	}
}

// The timeline describes the events of the record. The end of the job ends a wait.
func TestTimeline_OfOwnersAndWaits(t *testing.T) {
	t.Parallel()
	w := setup(t)
	f := w.running(`{"inputs":["a"]}`, 1)
	at := func(s int64) int64 { return f.Epoch + 1000*s }
	must.Get(w.store.Update(t.Context(), f, func(r *store.Record) error {
		r.Events = append(r.Events,
			store.JobEvent{At: at(1), What: store.EventWaits, Reason: "Waiting for a server.", Until: at(2)},
			store.JobEvent{At: at(3), What: store.EventClaimed, Node: "gpu2", Lost: true},
			store.JobEvent{At: at(4), What: store.EventReleased},
			store.JobEvent{At: at(5), What: store.EventClaimed},
			store.JobEvent{At: at(6), What: "of a newer version"},
			store.JobEvent{At: at(7), What: store.EventWaits, Reason: "Waiting for storage."},
			store.JobEvent{At: at(8), What: store.EventPaused},
			store.JobEvent{At: at(9), What: store.EventPriorityChanged, Reason: "from 1 to 0"})
		return nil
	}))(t)
	const utc = "2006-01-02T15:04:05.999Z"
	stamp := func(s int64) string { return time.UnixMilli(at(s)).UTC().Format(utc) }
	want := fmt.Sprintf(`[%s waits Waiting for a server. %s][%s owner_lost node gpu1 <nil>][%s claimed node gpu2, epoch %d <nil>][%s released node gpu2 <nil>]`+
		`[%s claimed a node (its name was not recorded), epoch %d <nil>][%s waits Waiting for storage. <nil>][%s paused  <nil>][%s priority_changed from 1 to 0 <nil>]`,
		stamp(1), stamp(2), stamp(3), stamp(3), at(3), stamp(4), stamp(5), at(5), stamp(7), stamp(8), stamp(9))
	told := func() (all string, body map[string]any) {
		t.Helper()
		body = w.get("/v1/jobs/" + f.JobID + "/timeline").want(200).json()
		for _, e := range body["events"].([]any) {
			event := e.(map[string]any)
			all += fmt.Sprintf("[%v %v %v %v]", event["at"], event["what"], event["detail"], event["until"])
		}
		return all, body
	}
	if all, body := told(); !strings.HasSuffix(all, want) || body["shortened"] != false {
		t.Errorf("%s, want %s at the end", all, want)
	}
	w.get("/v1/job-cancel/" + f.JobID).want(200)
	if all, _ := told(); strings.Contains(all, "storage. <nil>") {
		t.Error(all)
	}
	f = w.running(`{"inputs":["a"]}`, 1)
	must.Get(w.store.Update(t.Context(), f, func(r *store.Record) error {
		for range store.MaxEvents {
			r.AddEvent(store.JobEvent{At: f.Epoch, What: store.EventReleased})
		}
		return nil
	}))(t)
	if _, body := told(); body["shortened"] != true {
		t.Error("nothing says that earlier events are missing")
	}
}

func TestErrors_CountedByCode(t *testing.T) {
	t.Parallel()
	w := setup(t)
	rows := answers("x", "", "", "y", "")
	rows[1].out.Err.Code, rows[1].out.Err.Message = "rare", "once"
	want := fmt.Sprintf(`{"counts":[{"code":%q,"rows":2,"first_row":2,"message":%q},{"code":"rare","rows":1,"first_row":1,"message":"once"}],"counted":3,"failed_rows":3}`,
		rows[2].out.Err.Code, rows[2].out.Err.Message)
	id := w.succeeded(`{"inputs":["a"]}`, rows)
	w.get("/v1/jobs/" + id + "/errors/counts").wantBody(want)

	f := w.running(`{"inputs":["a"]}`, 5)
	w.get("/v1/jobs/" + f.JobID + "/errors/counts").wantBody(`{"counts":[],"counted":0,"failed_rows":0}`)
	w.commit(f, w.part(f, schemaOf(w.record(f.JobID), rowmill.IDNull), 0, 0, rows, "0.parquet"))
	w.get("/v1/jobs/" + f.JobID + "/errors/counts").wantBody(want)

	w.do("DELETE", "/v1/jobs/"+id+"/data", "").want(200)
	w.get("/v1/jobs/"+id+"/errors/counts").wantError(410, "results_expired", "")
}
