package actors_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/store"
)

// A slowSource sends the first half of a file, and the rest after let.
type slowSource struct {
	*httptest.Server
	asked atomic.Int64
	rest  chan struct{}
	let   func()
	ended chan struct{} // closed when a request is over
}

func newSlowSource(t *testing.T, texts []string) *slowSource {
	t.Helper()
	s := &slowSource{rest: make(chan struct{}), ended: make(chan struct{})}
	s.let = sync.OnceFunc(func() { close(s.rest) })
	over := sync.OnceFunc(func() { close(s.ended) })
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		defer over()
		w.Header().Set("Content-Length", strconv.Itoa(len(strings.Join(texts, "\n"))+len("text\n\n")))
		fmt.Fprintln(w, "text")
		for i, text := range texts {
			if i == len(texts)/2 {
				_ = http.NewResponseController(w).Flush() // an error shows in the job
				select {
				case <-s.rest:
				case <-r.Context().Done():
					return
				}
			}
			fmt.Fprintln(w, text)
		}
	}))
	t.Cleanup(func() {
		s.let()
		s.Close()
	})
	return s
}

// loseDownload submits a job whose owner loses it during the download of the input,
// and returns the job when it has an owner again.
func (b *rig) loseDownload(source *slowSource) string {
	b.t.Helper()
	id := b.submit(rowmill.Spec{URL: source.URL, ColumnChoice: rowmill.ColumnChoice{Column: "text"}})
	// Once the source has the request: if no job wants the input before that, the
	// node sends none.
	first := b.await(id, func(r store.Record) bool { return r.DownloadStarted != nil && source.asked.Load() > 0 })
	must.Succeed(b.t, b.store.CloseSession(b.t.Context(), first.Session))
	b.await(id, func(r store.Record) bool { return r.Epoch > first.Epoch })
	return id
}

// An owner that loses its job during a download finishes the download, and the next
// owner waits for it, on the same node or on another.
func TestADownloadOutlivesTheLease(t *testing.T) {
	t.Parallel()
	for name, nodes := range map[string]int{"alone": 0, "two nodes": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, net := setup(t, nil), newNetwork()
			for n := range nodes {
				b.system = b.join(net, fmt.Sprint("node", n), &scripted{answer: echo}).system
			}
			if nodes == 0 {
				b = setup(t, &scripted{answer: echo})
			}
			texts := numbered(200)
			source := newSlowSource(t, texts)
			id := b.loseDownload(source)
			b.outlast(id)
			source.let()
			b.checkEcho(b.end(id), texts)
			if n := source.asked.Load(); n != 1 {
				t.Errorf("the input was asked for %d times, want once", n)
			}
		})
	}
}

// A node that stops gives a job back at once while another node downloads the job's input.
func TestANodeStopsWhileAnotherDownloads(t *testing.T) {
	t.Parallel()
	b, net := setup(t, nil), newNetwork()
	one := b.join(net, "one", &scripted{answer: echo})
	b.system = one.system
	texts := numbered(200)
	source := newSlowSource(t, texts)
	id := b.submit(rowmill.Spec{URL: source.URL, ColumnChoice: rowmill.ColumnChoice{Column: "text"}})
	first := b.await(id, func(r store.Record) bool { return r.DownloadStarted != nil && source.asked.Load() > 0 })
	two := b.join(net, "two", &scripted{answer: echo})
	one.cut.Store(true)
	must.Succeed(t, b.store.CloseSession(t.Context(), first.Session))
	b.await(id, func(r store.Record) bool { return r.Epoch > first.Epoch })
	if err := two.system.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	one.cut.Store(false)
	source.let()
	b.checkEcho(b.end(id), texts)
	if n := source.asked.Load(); n != 1 {
		t.Errorf("the input was asked for %d times, want once", n)
	}
}

// A download stops when no job wants it any more.
func TestADownloadForACancelledJobEnds(t *testing.T) {
	t.Parallel()
	b, net := setup(t, nil), newNetwork()
	one := b.join(net, "one", &scripted{answer: echo})
	b.join(net, "two", &scripted{answer: echo})
	source := newSlowSource(t, numbered(200))
	b.system = one.system
	id := b.loseDownload(source)
	must.Get(b.store.Cancel(t.Context(), id, time.Now(), func(*store.Record) {}))(t)
	b.system.NotifyCancelled(id)
	select {
	case <-source.ended:
	case <-time.After(time.Minute):
		t.Error("the input of a cancelled job is still being downloaded")
	}
}

// A job shows that its input is being downloaded, and how far the download is. It
// counts as started when its rows run.
func TestAJobIsStartingWhileItsInputIsFetched(t *testing.T) {
	t.Parallel()
	e := &scripted{answer: echo, models: []engine.ServedModel{{Name: "another"}}}
	b := setup(t, e)
	texts := numbered(200)
	source := newSlowSource(t, texts)
	id := b.submit(rowmill.Spec{URL: source.URL, ColumnChoice: rowmill.ColumnChoice{Column: "text"}})
	begun := b.await(id, func(r store.Record) bool { return r.DownloadStarted != nil })
	if begun.Job.Status != rowmill.StatusStarting || begun.Job.Message != "Downloading the input." {
		t.Errorf("the job is %s as its download begins: %q", begun.Job.Status, begun.Job.Message)
	}
	half := len(strings.Join(texts[:100], "\n")) + len("text\n\n")
	whole := len(strings.Join(texts, "\n")) + len("text\n\n")
	says := fmt.Sprintf("Downloading the input: %s of %s.", textfmt.FormatSize(int64(half)), textfmt.FormatSize(int64(whole)))
	b.await(id, func(r store.Record) bool { return r.Job.Message == says })
	source.let()
	waits := b.await(id, func(r store.Record) bool {
		return r.Job.Message == "Waiting for an engine that serves writer. Served now: another."
	})
	if waits.Job.Status != rowmill.StatusStarting || waits.Job.Started != nil {
		t.Errorf("the job is %s, and started at %v, while it waits for an engine", waits.Job.Status, waits.Job.Started)
	}
	b.system.Attach(&scripted{name: "second", answer: echo, models: served()})
	rec := b.end(id)
	b.checkEcho(rec, texts)
	if rec.Job.Started == nil || rec.Job.Started.Before(waits.Job.Created) || rec.Job.Completed.Before(*rec.Job.Started) {
		t.Errorf("created %v, started %v, completed %v", rec.Job.Created, rec.Job.Started, rec.Job.Completed)
	}
}
