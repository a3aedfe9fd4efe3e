package jobs

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill/cmd/rowmill/exit"
)

// tell writes records as events.
func tell(w http.ResponseWriter, records ...string) {
	for i, record := range records {
		fmt.Fprintf(w, "event: job\nid: s-%d\ndata: %s\n\n", i+1, record)
	}
	w.(http.Flusher).Flush()
}

func running(rows int) string {
	return record("running", fmt.Sprintf(`,"num_rows":3,"rows_done":%d`, rows))
}

func TestAttach_ByEvents(t *testing.T) {
	t.Parallel()
	s := newService(t, running(0))
	s.events = func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query().Get("topics"); got != "job:"+jobID {
			t.Errorf("topics %q", got)
		}
		tell(w, running(0), running(2), done)
		<-r.Context().Done()
	}
	c := newCall(t, s)
	c.run("attach", jobID, "--output", "DIR/o.parquet").want(t, 0, "2/3", "succeeded: 3 rows")
	if s.looks != 1 {
		t.Errorf("%d looks beside the stream", s.looks)
	}
}

func TestAttach_EventsBreakAndGoOn(t *testing.T) {
	t.Parallel()
	s := newService(t, running(0))
	var after []string
	s.events = func(w http.ResponseWriter, r *http.Request) {
		after = append(after, r.Header.Get("Last-Event-ID"))
		switch len(after) {
		case 1: // the node drains
			tell(w, running(1))
		case 2, 3: // it is away
			w.WriteHeader(http.StatusServiceUnavailable)
		case 4: // it dies
			tell(w, running(2))
			panic(http.ErrAbortHandler)
		default:
			tell(w, done)
			<-r.Context().Done() // else the client may ask again before it leaves
		}
	}
	c := newCall(t, s)
	c.run("attach", jobID, "--output", "DIR/o.parquet").want(t, 0, "trying again for 1m0s, the job goes on", "succeeded: 3 rows")
	if got := strings.Join(after, " "); got != " s-1 s-1 s-1 s-1" || s.looks != 1 {
		t.Errorf("after %q, %d looks", got, s.looks)
	}
}

func TestAttach_WithoutEvents(t *testing.T) {
	t.Parallel()
	for name, events := range map[string]http.HandlerFunc{
		"older": nil,
		"full":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"gathered by what is between": func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
		"of another kind": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "event: job\ndata: <html>\n\n") },
		"of a lost key": func(w http.ResponseWriter, _ *http.Request) {
			tell(w, running(1))
			fmt.Fprint(w, "event: expired\ndata: {}\n\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, running(0), running(1), running(2), done)
			code := 0
			if s.events = events; name == "of a lost key" {
				s.events, code = func(w http.ResponseWriter, r *http.Request) {
					s.mu.Lock()
					s.refuse = http.StatusUnauthorized
					s.mu.Unlock()
					events(w, r)
				}, exit.Auth
			}
			c := newCall(t, s)
			c.patience = 500 * time.Millisecond
			c.run("attach", jobID, "--output", "DIR/o.parquet").want(t, code)
			if code == 0 && s.looks != 4 {
				t.Errorf("%d looks", s.looks)
			}
		})
	}
}

func TestAttach_EventsThatComeToAnEnd(t *testing.T) {
	t.Parallel()
	s := newService(t, running(0))
	ctx, cancel := context.WithCancelCause(t.Context())
	s.events = func(w http.ResponseWriter, r *http.Request) {
		tell(w, running(1))
		cancel(exit.Signal{Signal: syscall.SIGINT})
		<-r.Context().Done()
	}
	c := newCall(t, s)
	c.ctx = ctx
	c.run("attach", jobID, "--output", "DIR/o.parquet").want(t, exit.Interrupted, "detached", "rowmill jobs attach "+jobID)
	s.events = func(w http.ResponseWriter, _ *http.Request) {
		tell(w, record("failed", `,"failure_reason":{"code":"model_unavailable","message":"no server"}`))
	}
	newCall(t, s).run("attach", jobID, "--output", "DIR/o.parquet").want(t, exit.JobFailed, "no server (model_unavailable)")
}
