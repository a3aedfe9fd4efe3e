package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

// webhookSettings retry events soon, and often enough to start a node in between. The
// next process also finds ended jobs soon.
func webhookSettings() string {
	return "retention: {interval: 1s}\nwebhooks: {retries: [" + strings.TrimSuffix(strings.Repeat("300ms, ", 100), ", ") + "]}\n"
}

// received is an event as the receiver got it.
type received struct {
	header http.Header
	body   string
	event  struct {
		Type string
		Data struct {
			ID    string
			JobID string `json:"job_id"`
		}
	}
}

// A receiver accepts events.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	got    []received
	answer int // status of its answers; 0 means 200
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		one := received{header: request.Header, body: string(body)}
		if err != nil || json.Unmarshal(body, &one.event) != nil {
			t.Errorf("the body %q, %v", body, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got = append(r.got, one)
		if r.answer != 0 {
			w.WriteHeader(r.answer)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answers(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = status
}

// until waits for events.
func (r *receiver) until(t *testing.T, what string, enough func([]received) bool) []received {
	t.Helper()
	var got []received
	wait.For(t, what, func() bool {
		r.mu.Lock()
		got = slices.Clone(r.got)
		r.mu.Unlock()
		return enough(got)
	})
	return got
}

func some(n int) func([]received) bool { return func(got []received) bool { return len(got) >= n } }

// A hook holds the fields of a webhook that tests read.
type hook struct{ ID, Secret string }

func (n *node) hook(t *testing.T, r *receiver, events ...string) (h hook) {
	t.Helper()
	n.call(t, http.MethodPost, "/v1/webhooks", map[string]any{"url": r.URL + "/hook", "events": events}, &h)
	return h
}

// logged is a delivery in the API's answer.
type logged struct {
	ID, Event, State string
	Job              string `json:"job_id"`
	Attempts         []struct{ Status *int }
}

func (n *node) deliveries(t *testing.T, h hook) []logged {
	t.Helper()
	var page struct{ Deliveries []logged }
	n.call(t, http.MethodGet, "/v1/webhooks/"+h.ID+"/deliveries", nil, &page)
	return page.Deliveries
}

// OpenAI's clients accept the exact bytes of batch events that a receiver got.
func TestWebhooks_OpenAIClients(t *testing.T) {
	t.Parallel()
	needPython(t)
	clients := nodeClients(t)
	n := on(t, batchSettings+webhookSettings(), startSimulated(t, "--ttft", "1ms", "--per-token", "0s")).start(t)
	r, native := newReceiver(t), newReceiver(t)
	h := n.hook(t, r)
	n.hook(t, native, "job.succeeded", "job.cancelled")
	done := n.startBatch(t, 3, 2)
	n.batch(t, done.ID, func(b batchState) bool { return b.Status == "completed" })
	cancelled := n.startBatch(t, 2000, 100_000)
	n.call(t, http.MethodPost, "/v1/batches/"+cancelled.ID+"/cancel", nil, nil)
	got := r.until(t, "both ends", some(2))
	type delivery struct {
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body"`
		Type    string            `json:"type"`
		Batch   string            `json:"batch"`
	}
	file := struct {
		Secret     string     `json:"secret"`
		Deliveries []delivery `json:"deliveries"`
	}{Secret: h.Secret}
	for i, one := range got[:2] {
		d := delivery{Headers: map[string]string{}, Body: one.body, Type: []string{"batch.completed", "batch.cancelled"}[i], Batch: []string{done.ID, cancelled.ID}[i]}
		for name := range one.header {
			d.Headers[strings.ToLower(name)] = one.header.Get(name)
		}
		file.Deliveries = append(file.Deliveries, d)
	}
	text := must.Get(json.Marshal(file))(t)
	path := filepath.Join(t.TempDir(), "got.json")
	must.Succeed(t, os.WriteFile(path, text, 0o600))
	runClient(t, "python3", "testdata/webhooks_openai.py", path)
	runClient(t, "node", "testdata/webhooks_openai.mjs", clients, path)
	// An endpoint with native events also gets native events about batches.
	for _, one := range native.until(t, "both ends", some(2)) {
		if !strings.HasPrefix(one.event.Type, "job.") || !strings.HasPrefix(one.event.Data.JobID, "job-") {
			t.Errorf("%s", one.body)
		}
	}
	if log := n.deliveries(t, h); len(log) != 2 || log[0].Event != "batch.cancelled" || log[1].State != "delivered" {
		t.Errorf("%+v", log)
	}
	var test struct{ Delivered bool }
	if n.call(t, http.MethodPost, "/v1/webhooks/"+h.ID+"/test?event=batch.failed", nil, &test); !test.Delivered {
		t.Error("a test was not delivered")
	}
}

// If a receiver fails twice, it gets the event a third time under the same id. A single
// node never sends events to itself.
func TestWebhooks_TriedAgain(t *testing.T) {
	t.Parallel()
	n := on(t, webhookSettings(), startSimulated(t, "--ttft", "1ms", "--per-token", "0s")).start(t)
	r := newReceiver(t)
	r.answers(http.StatusServiceUnavailable)
	h := n.hook(t, r)
	job := n.submit(t, submission{Model: "llama-3.1-8b", Inputs: []string{"a"}})
	r.until(t, "two attempts", some(2))
	r.answers(http.StatusNoContent)
	got := r.until(t, "three attempts", some(3))
	ids := map[string]bool{}
	for _, one := range got {
		ids[one.header.Get("Webhook-Id")] = true
		if one.event.Type != "job.succeeded" || one.event.Data.JobID != job {
			t.Errorf("%s", one.body)
		}
	}
	var log []logged
	wait.For(t, "the event is delivered", func() bool {
		log = n.deliveries(t, h)
		return len(log) > 0 && log[0].State == "delivered"
	})
	if len(ids) != 1 || len(log) != 1 || !ids[log[0].ID] || len(log[0].Attempts) < 3 || *log[0].Attempts[0].Status != http.StatusServiceUnavailable {
		t.Errorf("ids %v, log %+v", ids, log)
	}
	n.call(t, http.MethodPost, "/v1/webhooks/"+h.ID+"/deliveries/"+log[0].ID+"/redeliver", nil, nil)
	if again := r.until(t, "another attempt", some(len(got)+1)); again[len(got)].header.Get("Webhook-Id") != log[0].ID {
		t.Errorf("%v", again[len(got)].header)
	}
	for _, own := range []string{n.base, n.engines[0]} {
		var made hook
		n.call(t, http.MethodPost, "/v1/webhooks", map[string]any{"url": own + "/v1/jobs"}, &made)
		var test struct {
			Delivered bool
			Attempt   struct{ Error *string }
		}
		n.call(t, http.MethodPost, "/v1/webhooks/"+made.ID+"/test", nil, &test)
		if test.Delivered || test.Attempt.Error == nil || !strings.Contains(*test.Attempt.Error, "this service itself") {
			t.Errorf("a test to %s: %+v", own, test)
		}
	}
}

// A node is killed when jobs end, before the receiver accepts an event. After its
// restart it sends an event for each job.
func TestWebhooks_Killed(t *testing.T) {
	t.Parallel()
	const jobs = 40
	n := on(t, webhookSettings(), startSimulated(t, "--ttft", "1ms", "--per-token", "0s")).start(t)
	r := newReceiver(t)
	r.answers(http.StatusServiceUnavailable)
	h := n.hook(t, r)
	want := map[string]bool{}
	for i := range jobs {
		want[n.submit(t, submission{Model: "llama-3.1-8b", Inputs: []string{fmt.Sprint(i)}})] = true
	}
	r.until(t, "a first attempt", some(1))
	n.kill()
	n.start(t)
	time.Sleep(300 * time.Millisecond)
	n.kill()
	r.answers(0)
	r.mu.Lock()
	before := len(r.got)
	r.mu.Unlock()
	n.start(t)
	taken := map[string]int{}
	r.until(t, "the ends of all jobs", func(got []received) bool {
		clear(taken)
		for _, one := range got[before:] {
			taken[one.event.Data.JobID]++
		}
		return len(taken) == jobs
	})
	for job := range taken {
		if !want[job] {
			t.Errorf("an event of %s", job)
		}
	}
	ids := map[string]string{}
	for _, d := range n.deliveries(t, h) {
		if other, twice := ids[d.Job]; twice {
			t.Errorf("job %s has the deliveries %s and %s", d.Job, other, d.ID)
		}
		ids[d.Job] = d.ID
	}
	if len(ids) != jobs {
		t.Errorf("%d deliveries of %d jobs", len(ids), jobs)
	}
}
