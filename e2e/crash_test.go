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

// TestAJobThatEndsItsNodeTwiceFails kills a node twice after it has started a job,
// before the job makes progress. The third process fails the job, and runs the other
// jobs.
func TestAJobThatEndsItsNodeTwiceFails(t *testing.T) {
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
	for life := range 2 {
		select {
		case <-begun:
		case <-time.After(patience):
			t.Fatalf("owner %d does not begin the row", life+1)
		}
		n.kill()
		answers.Store(life == 1)
		n.start(t)
	}
	job := n.finish(t, id)
	if job.Status != "failed" || job.FailureReason == nil || !strings.Contains(job.FailureReason.Message, "2 processes in a row ended while they owned the job") {
		t.Errorf("%s: %+v", job.Status, job.FailureReason)
	}
	other := n.submit(t, submission{Inputs: []string{rowText(1)}, Model: model})
	if job := n.finish(t, other); job.Status != "succeeded" {
		t.Errorf("another job is %s: %+v", job.Status, job.FailureReason)
	}
}
