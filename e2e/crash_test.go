package e2e

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A holder is an inference server that answers no row until answer.
type holder struct {
	*witness
	begun atomic.Int64 // rows
	held  chan struct{}
}

// answer answers the rows that were asked for, and each later one.
func (h *holder) answer() { close(h.held) }

func (h *holder) ServeHTTP(out http.ResponseWriter, request *http.Request) {
	if request.URL.Path == "/v1/chat/completions" {
		body, err := io.ReadAll(request.Body) // otherwise the context of the request does not end
		if err != nil {
			return // the node was killed during the request
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		h.begun.Add(1)
		select {
		case <-h.held:
		case <-request.Context().Done():
			return
		}
	}
	h.witness.ServeHTTP(out, request)
}

// newHeldNode starts a node with a holder.
func newHeldNode(t *testing.T, rows int, delay time.Duration) (*node, *holder) {
	t.Helper()
	h := &holder{witness: newWitness(t, rows, delay), held: make(chan struct{})}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	n := newNode(t, server.URL, "")
	t.Cleanup(n.kill) // before the server waits for the node's requests
	n.start(t)
	return n, h
}

// killAfter kills a node after that many rows have begun, and starts it again.
func (h *holder) killAfter(t *testing.T, n *node, rows int64) {
	t.Helper()
	for h.begun.Load() < rows {
		time.Sleep(time.Millisecond)
	}
	n.kill()
	h.begun.Store(0)
	n.start(t)
}

// TestAJobThatEndsItsNodeIsParked kills a node each time after it has started a job, before
// the job makes progress. The fifth process parks the job and runs the others. Once
// released, the job runs.
func TestAJobThatEndsItsNodeIsParked(t *testing.T) {
	t.Parallel()
	n, server := newHeldNode(t, 3, 0)
	id := n.submit(t, submission{Inputs: []string{rowText(0)}, Model: model})
	for range 4 {
		server.killAfter(t, n, 1)
	}
	job := n.until(t, id, "parked", func(r record) bool { return r.ParkedUntil != nil })
	if !strings.Contains(job.Message, "4 processes in a row ended while they owned it") || job.FailureReason != nil {
		t.Errorf("%s: %s, %+v", job.Status, job.Message, job.FailureReason)
	}
	server.answer()
	other := n.submit(t, submission{Inputs: []string{rowText(1)}, Model: model})
	if job := n.finish(t, other); job.Status != "succeeded" {
		t.Errorf("another job is %s: %+v", job.Status, job.FailureReason)
	}
	n.want(t, "jobs", "release", id)
	if job := n.finish(t, id); job.Status != "succeeded" || job.ParkedUntil != nil {
		t.Errorf("the released job is %s, parked until %v", job.Status, job.ParkedUntil)
	}
}

// TestCrashLoops kills a node with 24 jobs again and again, each time after some rows have
// begun. No job is at fault, so none is parked, even if no process lives long enough for a
// row.
func TestCrashLoops(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rows  int
		held  bool
		begun int64
	}{
		"rows are quick": {rows: 20, begun: 8},
		"rows are slow":  {rows: 2, held: true, begun: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, server := newHeldNode(t, test.rows, 5*time.Millisecond)
			if !test.held {
				server.answer()
			}
			var inputs, ids []string
			for row := range test.rows {
				inputs = append(inputs, rowText(row))
			}
			for range 24 {
				ids = append(ids, n.submit(t, submission{Inputs: inputs, Model: model}))
			}
			for range 12 {
				server.killAfter(t, n, test.begun)
			}
			if test.held {
				server.answer()
			}
			for _, id := range ids {
				if job := n.finish(t, id); job.Status != "succeeded" {
					t.Errorf("%s: %+v", job.Status, job.FailureReason)
				}
				n.checkRows(t, id, test.rows)
			}
		})
	}
}
