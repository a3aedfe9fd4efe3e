package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestAJobThatEndsItsNodeIsParked kills a node each time after it has started a job, before
// the job makes progress. The fifth process parks the job and runs the others. Once
// released, the job runs.
func TestAJobThatEndsItsNodeIsParked(t *testing.T) {
	t.Parallel()
	w := newWitness(t, 3, 0)
	var answers atomic.Bool
	begun := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/v1/chat/completions" || answers.Load() {
			w.ServeHTTP(out, request)
			return
		}
		_, _ = io.Copy(io.Discard, request.Body) // otherwise its context does not end
		begun <- struct{}{}
		<-request.Context().Done()
	}))
	t.Cleanup(server.Close)
	n := newNode(t, server.URL, "")
	t.Cleanup(n.kill) // before the server waits for the node's requests
	n.start(t)
	id := n.submit(t, submission{Inputs: []string{rowText(0)}, Model: model})
	const deaths = 4
	for life := range deaths {
		select {
		case <-begun:
		case <-time.After(patience):
			t.Fatalf("owner %d does not begin the row", life+1)
		}
		n.kill()
		answers.Store(life == deaths-1)
		n.start(t)
	}
	job := n.until(t, id, "parked", func(r record) bool { return r.ParkedUntil != nil })
	if !strings.Contains(job.Message, "4 processes in a row ended while they owned it") || job.FailureReason != nil {
		t.Errorf("%s: %s, %+v", job.Status, job.Message, job.FailureReason)
	}
	other := n.submit(t, submission{Inputs: []string{rowText(1)}, Model: model})
	if job := n.finish(t, other); job.Status != "succeeded" {
		t.Errorf("another job is %s: %+v", job.Status, job.FailureReason)
	}
	n.want(t, "jobs", "release", id)
	if job := n.finish(t, id); job.Status != "succeeded" || job.ParkedUntil != nil {
		t.Errorf("the released job is %s, parked until %v", job.Status, job.ParkedUntil)
	}
}

// TestCrashLoops kills a node with 24 jobs again and again, each time after the inference
// server has got a few more rows. No job is at fault, so none fails.
func TestCrashLoops(t *testing.T) {
	t.Parallel()
	const jobs, rows, lives = 24, 20, 12
	w := newWitness(t, rows, 5*time.Millisecond)
	n := newNode(t, w.url, "jobs: {park_time: 5s}")
	n.start(t)
	var ids []string
	var inputs []string
	for row := range rows {
		inputs = append(inputs, rowText(row))
	}
	for range jobs {
		ids = append(ids, n.submit(t, submission{Inputs: inputs, Model: model}))
	}
	for life := range lives {
		for until := w.calls.Load() + int64(1+life*2); w.calls.Load() < until; time.Sleep(time.Millisecond) {
		}
		n.kill()
		n.start(t)
	}
	for _, id := range ids {
		if job := n.finish(t, id); job.Status != "succeeded" {
			t.Errorf("%s: %+v", job.Status, job.FailureReason)
		}
		n.checkRows(t, id, rows)
	}
}
