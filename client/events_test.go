package client

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
)

func TestEvents_Reconnects(t *testing.T) {
	t.Parallel()
	var requested []string
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requested = append(requested, r.URL.RawQuery+" after "+r.Header.Get("Last-Event-ID"))
		switch len(requested) {
		case 1: // ends
			_, _ = io.WriteString(w, "retry: 1\n\nevent: job\nid: s-1\ndata: {\"job_id\":\"job-1\",\"status\":\"RUNNING\"}\n\n: alive\n\nevent: ready\nid: s-2\ndata: {}\n\nevent: expired\ndata: {}\n\n")
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3: // breaks
			_, _ = io.WriteString(w, "event: resync\r\nid: t-0\r\ndata: {}\r\n\r\nevent: nodes\nid: t-4\ndata: [{\"id\":\"n\"}]\n\nevent: jo")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	var got []string
	for e, err := range c.Events(t.Context(), Subscription{Topics: []string{"job:job-1", "nodes"}}) {
		var refusal *APIError
		switch {
		case errors.As(err, &refusal):
			got = append(got, fmt.Sprint(refusal.Status))
		case err != nil:
			got = append(got, "broken")
		case e.Name == EventJob:
			got = append(got, e.ID+" "+e.Job.ID+" "+string(e.Job.Status))
		case e.Name == EventNodes:
			got = append(got, e.ID+" "+e.Nodes[0].ID)
		default:
			got = append(got, e.ID+" "+e.Name)
		}
	}
	if want := []string{"s-1 job-1 running", "s-2 ready", " expired", "503", "t-0 resync", "t-4 n", "broken", "401"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	topics := "topics=job%3Ajob-1%2Cnodes after "
	if want := []string{topics, topics + "s-2", topics + "s-2", topics + "t-4"}; !slices.Equal(requested, want) {
		t.Errorf("requested %q, want %q", requested, want)
	}
}

func TestEvents_StopsWithTheIteration(t *testing.T) {
	t.Parallel()
	var requested atomic.Int32
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requested.Add(1)
		for i := range 3 {
			fmt.Fprintf(w, "event: job\nid: s-%d\ndata: {\"job_id\":\"job-1\"}\n\n", i)
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	for e, err := range c.Events(t.Context(), Subscription{}) {
		if err != nil || e.ID != "s-0" {
			t.Errorf("%v, %v", e, err)
		}
		break
	}
	if n := requested.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestEvents_Fails(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"nothing there": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"no job":        func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "event: job\ndata: {\n\n") },
		"silence":       func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := serve(t, answer)
			if name == "silence" {
				c.cfg.StallTimeout = 100 * time.Millisecond
			}
			var first error
			for _, err := range c.Events(t.Context(), Subscription{Pause: time.Hour}) {
				first = err
				break
			}
			var unreachable *UnreachableError
			if missing := errors.Is(first, rowmill.ErrNotFound); missing != (name == "nothing there") || !missing && !errors.As(first, &unreachable) {
				t.Errorf("%v", first)
			}
			if name == "silence" && !strings.Contains(first.Error(), "no event was received") {
				t.Errorf("%v", first)
			}
		})
	}
}
