package http

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	nethttp "net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/events"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// A streamEvent is an event that a client received.
type streamEvent struct{ name, id, data string }

// A listener reads a stream.
type listener struct {
	*world
	lines *bufio.Scanner
	leave context.CancelFunc
}

// listening opens a stream. It must succeed.
func (w *world) listening(path string, headers ...string) *listener {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	w.Cleanup(cancel)
	raw := &nethttp.Client{Transport: w.client.Transport.(*contract).next} // not through the contract, which reads answers to their end
	response, err := raw.Do(w.request("GET", path, "", headers...).WithContext(ctx))
	must.Succeed(w, err)
	w.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != 200 || response.Header.Get("Content-Type") != "text/event-stream" {
		w.Fatalf("%s: status %d, %s", path, response.StatusCode, response.Header.Get("Content-Type"))
	}
	l := &listener{world: w, lines: bufio.NewScanner(response.Body), leave: cancel}
	l.lines.Buffer(nil, 1<<20)
	return l
}

// next returns the next event; more is false at the end of the stream.
func (l *listener) next() (e streamEvent, more bool) {
	for l.lines.Scan() {
		field, value, _ := strings.Cut(l.lines.Text(), ": ")
		switch field {
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			e.data = value
		}
		if field == "" && l.lines.Text() == "" && e.name != "" {
			return e, true
		}
	}
	return streamEvent{}, false
}

// ready reads events up to EventReady.
func (l *listener) ready() (all []streamEvent) {
	l.Helper()
	for {
		e, more := l.next()
		if !more {
			l.Fatalf("the stream ended before it was ready: %v, %v", all, l.lines.Err())
		}
		all = append(all, e)
		if e.name == events.EventReady {
			return all
		}
	}
}

// job returns the next event, which must be about a job.
func (l *listener) job() (view map[string]any, id string) {
	l.Helper()
	e, more := l.next()
	if !more || e.name != events.EventJob {
		l.Fatalf("event %v, want a job", e)
	}
	if err := json.Unmarshal([]byte(e.data), &view); err != nil {
		l.Fatalf("%s: %v", e.data, err)
	}
	return view, e.id
}

// upToReady opens a stream and reads events up to EventReady.
func (w *world) upToReady(method, path, _ string, headers ...string) *answered {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	raw := &nethttp.Client{Transport: w.client.Transport.(*contract).next}
	response, err := raw.Do(w.request(method, path, "", headers...).WithContext(ctx))
	must.Succeed(w, err)
	defer response.Body.Close()
	a := &answered{TB: w.TB, status: response.StatusCode, header: response.Header}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() && lines.Text() != "event: "+events.EventReady {
		a.text = append(append(a.text, lines.Bytes()...), '\n')
	}
	return a
}

// jobsOf returns the ids of the jobs in events.
func jobsOf(t testing.TB, all []streamEvent) (ids []string) {
	t.Helper()
	for _, e := range all {
		if e.name != events.EventJob {
			continue
		}
		var view struct {
			ID string `json:"job_id"`
		}
		must.Succeed(t, json.Unmarshal([]byte(e.data), &view))
		ids = append(ids, view.ID)
	}
	return ids
}

func TestEvents_BeginWithCurrentStates(t *testing.T) {
	t.Parallel()
	w := setup(t)
	done, failed := w.succeeded(`{"inputs":["a"]}`, answers("x")), w.failed(`{"inputs":["a"]}`, nil)
	running := w.running(`{"inputs":["a","b"]}`, 2).JobID
	w.service.draining = true // so that the stream ends and the contract can check it
	a := w.get("/v1/events").want(200)
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if !bytes.HasPrefix(a.text, []byte("retry: 3000\n\nevent: job\nid: ")) {
		t.Errorf("it begins with %.100s", a.text)
	}
	l := &listener{world: w, lines: bufio.NewScanner(bytes.NewReader(a.text))}
	all := l.ready()
	if got := jobsOf(t, all); !slices.Equal(got, []string{running, failed, done}) {
		t.Errorf("jobs %v, want %v", got, []string{running, failed, done})
	}
	if e, more := l.next(); more {
		t.Errorf("event %v of a node that drains", e)
	}
	var shown struct{ Job json.RawMessage }
	if err := json.Unmarshal(w.get("/v1/jobs/"+running).text, &shown); err != nil || string(shown.Job) != all[0].data {
		t.Errorf("%v: an event shows a job as\n%s\nand the job itself as\n%s", err, all[0].data, shown.Job)
	}
}

func TestEvents_ReportChanges(t *testing.T) {
	t.Parallel()
	w := setup(t)
	f := w.running(`{"inputs":["a","b"]}`, 2)
	other := w.submitted(`{"inputs":["a"]}`)
	all, one := w.listening("/v1/events"), w.listening("/v1/events?topics=job:"+other)
	if got := jobsOf(t, all.ready()); !slices.Equal(got, []string{other, f.JobID}) {
		t.Errorf("all: %v", got)
	}
	if got := jobsOf(t, one.ready()); !slices.Equal(got, []string{other}) {
		t.Errorf("one: %v", got)
	}
	must.Succeed(t, w.store.CommitParts(t.Context(), f, []store.Part{{Key: "0", Rows: 1, Totals: store.RowTotals{Rows: 1}}}))
	if view, _ := all.job(); view["job_id"] != f.JobID || view["rows_done"] != 1.0 {
		t.Errorf("after a commit: %v", view)
	}
	fresh := w.submitted(`{"inputs":["a"],"name":"fresh"}`)
	if view, _ := all.job(); view["job_id"] != fresh || view["name"] != "fresh" {
		t.Errorf("after a submission: %v", view)
	}
	w.get("/v1/job-cancel/" + other).want(200)
	for what, l := range map[string]*listener{"all": all, "one": one} {
		if view, _ := l.job(); view["job_id"] != other || view["status"] != "cancelled" {
			t.Errorf("%s: after the end: %v", what, view)
		}
	}
}

func TestEvents_ContinueAfterTheLast(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.submitted(`{"inputs":["a"]}`), w.submitted(`{"inputs":["b"]}`)
	l := w.listening("/v1/events")
	begun := l.ready()
	w.get("/v1/job-cancel/" + a).want(200)
	_, last := l.job()
	l.leave()
	w.get("/v1/job-cancel/" + b).want(200)

	l = w.listening("/v1/events", "Last-Event-ID", last)
	if again := l.ready(); !slices.Equal(jobsOf(t, again), []string{b}) { // the change may come with the next poll
		if view, _ := l.job(); view["job_id"] != b || len(again) != 1 {
			t.Errorf("after the first change: %v, %v", again, view)
		}
	}
	again := w.listening("/v1/events", "Last-Event-ID", begun[len(begun)-1].id).ready()
	if got := jobsOf(t, again); !slices.Equal(got, []string{a, b}) {
		t.Errorf("after what there was: %v", again)
	}
	for _, id := range []string{"000000000000-3", begun[0].id, "nonsense"} {
		again = w.listening("/v1/events", "Last-Event-ID", id).ready()
		if got := jobsOf(t, again); again[0].name != events.EventResync || !slices.Equal(got, []string{b, a}) {
			t.Errorf("after %s: %v", id, again)
		}
	}
}

func TestEvents_Refuse(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.MaxStreams = 1 })
	id := w.submitted(`{"inputs":["a"]}`)
	user := w.keyOf("other", caller.RoleUser)
	as, administrator := []string{"Authorization", "Key " + user}, w.keyOf("other", caller.RoleAdmin)
	w.get("/v1/events?topics=jobs,engines").wantField("topics", `"engines"; the topics are jobs, job:<job id> and nodes`)
	w.get("/v1/events?topics=").wantField("topics", `""`)
	w.get("/v1/events?topics="+manyTopics()).wantField("topics", "at most 32")
	w.get("/v1/events?topics=jobs,job:"+rowmill.NewJobID()).wantError(404, "job_not_found", "no job")
	w.get("/v1/events?topics=job:", as...).wantError(404, "job_not_found", "no job")
	w.get("/v1/events?topics=job:"+id, as...).wantError(404, "job_not_found", id)
	w.get("/v1/events?topics=nodes", as...).wantError(403, "forbidden", "administrator")
	w.get("/v1/events?topics=nodes", "Authorization", "Key "+administrator).wantError(403, "forbidden", "default")
	w.get("/v1/events", "Authorization", "").wantError(401, "missing_key", "key")
	w.listening("/v1/events").ready()
	full := w.get("/v1/events").wantError(503, "too_many_streams", "http.max_streams")
	if full.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

// manyTopics returns more topics than a stream may have.
func manyTopics() string {
	names := make([]string, 33)
	for i := range names {
		names[i] = fmt.Sprint("t", i)
	}
	return strings.Join(names, ",")
}

func TestEvents_Nodes(t *testing.T) {
	t.Parallel()
	w := setup(t)
	twoNodes(w)
	l := w.listening("/v1/events?topics=nodes")
	all := l.ready()
	var listed struct{ Nodes json.RawMessage }
	if err := json.Unmarshal(w.get("/v1/nodes").text, &listed); err != nil || len(all) != 2 || all[0].name != events.EventNodes || all[0].data != string(listed.Nodes) {
		t.Errorf("%v: %v, want %s", err, all, listed.Nodes)
	}
}

func TestEvents_InTheDialectOfTheKey(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.submitted(`{"inputs":["a"]}`)
	k := w.newKey(`{"name":"python","dialect":"sdk"}`)
	all := w.listening("/v1/events?topics=job:"+id, "Authorization", "Key "+k.text).ready()
	if !strings.Contains(all[0].data, `"status":"STARTING"`) {
		t.Errorf("%v", all[0])
	}
}

func TestEvents_EndWithTheirKey(t *testing.T) {
	t.Parallel()
	w := setup(t)
	k := w.newKey(`{"name":"short","account":"other"}`)
	l := w.listening("/v1/events", "Authorization", "Key "+k.text)
	l.ready()
	w.do("DELETE", "/v1/keys/"+k.id, "").want(200)
	if e, more := l.next(); !more || e.name != events.EventExpired || e.id != "" {
		t.Errorf("after the key was revoked: %v", e)
	}
	if e, more := l.next(); more {
		t.Errorf("after that: %v", e)
	}
}

// A pipe is a listener for connections in memory, which tests with virtual time can use.
type pipe struct{ conns chan net.Conn }

func (p pipe) Accept() (net.Conn, error) {
	conn, open := <-p.conns
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (p pipe) Close() error   { close(p.conns); return nil }
func (p pipe) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// quietStore is a store in memory with one job, which changes only when a test changes
// it.
type quietStore struct {
	store.Store
	version atomic.Int64
}

const quietJob = "job-0198c0de-0000-7000-8000-000000000001"

func (*quietStore) ListActiveJobs(_ context.Context, accounts []string, _ time.Time, _ int) ([][]string, error) {
	return [][]string{{quietJob}}, nil
}

func (q *quietStore) Revisions(_ context.Context, ids []string, _ string) ([]store.Revision, error) {
	return []store.Revision{{Version: q.version.Load() + 1, Status: rowmill.StatusRunning}}, nil
}

func (q *quietStore) Get(context.Context, string) (store.Record, error) {
	return store.Record{
		Job:  rowmill.Job{ID: quietJob, Status: rowmill.StatusRunning, RowCounts: rowmill.RowCounts{RowsDone: q.version.Load()}},
		Spec: rowmill.Spec{Account: caller.DefaultAccount},
	}, nil
}

func (*quietStore) List(context.Context, string, int, string) ([]*rowmill.Job, string, error) {
	return nil, "", nil
}

// serveQuiet serves a store through connections in memory, within a synctest bubble.
func serveQuiet(t *testing.T, w *world, change func(*Config)) (dial func() net.Conn, q *quietStore) {
	t.Helper()
	q = &quietStore{Store: w.store}
	config := w.Config
	config.Store, config.Registerer = q, nil
	change(&config)
	s, err := New(config)
	must.Succeed(t, err)
	listener := pipe{make(chan net.Conn)}
	server := &nethttp.Server{Handler: s.Handler(), ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-served; !errors.Is(err, nethttp.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	return func() net.Conn {
		client, far := net.Pipe()
		listener.conns <- far
		t.Cleanup(func() { client.Close() })
		return client
	}, q
}

const askForEvents = "GET /v1/events HTTP/1.0\r\nHost: h\r\nAuthorization: Key " + adminKey + "\r\n\r\n"

func TestEvents_AliveAndAtMostTwoASecond(t *testing.T) {
	t.Parallel()
	w := setup(t)
	synctest.Test(t, func(t *testing.T) {
		dial, q := serveQuiet(t, w, func(*Config) {})
		conn := dial()
		must.Get(conn.Write([]byte(askForEvents)))(t)
		began := time.Now()
		var at, alive []time.Time
		lines := bufio.NewScanner(conn)
		for lines.Scan() && time.Since(began) < 100*time.Second {
			switch {
			case lines.Text() == "event: job":
				at = append(at, time.Now())
				if len(at) == 1 {
					go func() { // changes the job all the time, for ten seconds
						for range 1000 {
							time.Sleep(10 * time.Millisecond)
							q.version.Add(1)
						}
					}()
				}
			case strings.HasPrefix(lines.Text(), ":"):
				alive = append(alive, time.Now())
			}
		}
		if len(at) < 9 || len(at) > 14 {
			t.Errorf("%d events of a job that changed for 10 s", len(at))
		}
		for i := 2; i < len(at); i++ {
			if at[i].Sub(at[i-2]) < time.Second {
				t.Errorf("three events of a job in %v", at[i].Sub(at[i-2]))
			}
		}
		if len(alive) < 5 || len(alive) > 6 {
			t.Errorf("%d comments in 90 s of silence", len(alive))
		}
		conn.Close()
	})
}

func TestEvents_CloseClientsThatDoNotRead(t *testing.T) {
	t.Parallel()
	w := setup(t)
	synctest.Test(t, func(t *testing.T) {
		dial, q := serveQuiet(t, w, func(c *Config) { c.StallTimeout, c.MaxStreams = time.Minute, 1 })
		slow := dial()
		must.Get(slow.Write([]byte(askForEvents)))(t)
		lines := bufio.NewReader(slow)
		for text := ""; text != "event: ready\n"; {
			var err error
			if text, err = lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		q.version.Add(1) // a change that the client does not read
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		next := dial() // another stream is possible now
		must.Get(next.Write([]byte(askForEvents)))(t)
		if status, err := bufio.NewReader(next).ReadString('\n'); err != nil || !strings.Contains(status, "200") {
			t.Errorf("%q, %v", status, err)
		}
		next.Close()
		slow.Close()
	})
}
