package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/hostile"
	"github.com/rowmill/rowmill/internal/must"
)

// A job with a schema runs on a hostile engine and a good one. The hostile engine must
// not stop or block the node: the job ends, accepted outputs conform, memory stays
// small, and other requests are answered.
func TestHostileEngine(t *testing.T) {
	soaks(t)
	rows := size(200, 300, 20_000)
	const answer = `{"n":5}`
	start := func(c hostile.Config) *hostile.Server {
		c.Model, c.Answer = model, answer
		s := must.Get(hostile.Start(t.Context(), c))(t)
		t.Cleanup(s.Stop)
		return s
	}
	// The node must use the server for a test, so its probes rarely get a bad answer.
	often, rarely := hostile.NewShareChooser(0.5, 1), hostile.NewShareChooser(0.05, 2)
	var honest atomic.Bool
	bad, good := start(hostile.Config{Choose: func(r hostile.Request, n uint64) *hostile.AnswerKind {
		if honest.Load() {
			return nil
		}
		switch r.Path {
		case hostile.Chat, hostile.Metrics:
			return often(r, n)
		}
		return rarely(r, n)
	}}), start(hostile.Config{})
	n := newNode(t, bad.URL(), "jobs: {row_patience: 2s, part_interval: 1s}\nquotas: [{priority: 1, row_quota: 1000000, token_quota: 1000000000}]")
	n.engines = append(n.engines, good.URL())
	n.start(t)

	texts := rowTexts(rows)
	id := n.submit(t, submission{
		Inputs: texts, Model: model, Priority: 1, Sampling: map[string]any{"max_tokens": 1000},
		Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"number","minimum":0,"multipleOf":0.5}},"required":["n"]}`),
	})
	peak, asked, slowest := int64(0), 0, time.Duration(0)
	job := n.until(t, id, "over", func(r record) bool {
		began := time.Now()
		n.call(t, http.MethodGet, "/v1/auth/check", nil, nil) // another user's request meanwhile
		peak, asked, slowest = max(peak, n.anonymous(t)), asked+1, max(slowest, time.Since(began))
		return r.over()
	})
	t.Logf("%s: %d rows, %d failed, %d bad answers; %d MiB at most; %d other requests, the slowest took %v",
		job.Status, rows, job.FailedRows, bad.BadAnswers(), peak>>20, asked, slowest)
	if job.Status != "succeeded" && (job.FailureReason == nil || job.FailureReason.Code != "too_many_failed_rows") {
		t.Fatalf("%+v (%+v)", job, job.FailureReason)
	}
	if bad.BadAnswers() < 20 {
		t.Error("the hostile engine was hardly asked; nothing was tested")
	}
	if limit := int64(400 << 20); peak > limit {
		t.Errorf("%d MiB of memory, want at most %d", peak>>20, limit>>20)
	}
	if job.InputTokens > int64(rows)*1000 || job.OutputTokens > int64(rows)*3000 {
		t.Errorf("%d and %d tokens are charged for", job.InputTokens, job.OutputTokens)
	}
	if job.Status == "succeeded" {
		outputs, _ := n.results(t, id)
		accepted := 0
		for i, text := range outputs {
			if text == nil {
				continue
			}
			accepted++
			var got struct{ N *float64 }
			if err := json.Unmarshal([]byte(*text), &got); err != nil || got.N == nil || *got.N < 0 || math.Mod(*got.N, 0.5) != 0 {
				t.Errorf("row %d has %.200q, which the schema does not allow", i, *text)
			}
		}
		if accepted != rows-int(job.FailedRows) {
			t.Errorf("%d rows have an answer, and %d of %d failed", accepted, job.FailedRows, rows)
		}
	}
	// The next job is not affected.
	honest.Store(true)
	next := n.finish(t, n.submit(t, submission{Inputs: texts[:10], Model: model}))
	outputs, _ := n.results(t, next.ID)
	if next.Status != "succeeded" || next.FailedRows != 0 || len(outputs) != 10 || slices.ContainsFunc(outputs, func(text *string) bool { return text == nil || *text != answer }) {
		t.Errorf("the next job: %+v", next)
	}
	n.drains(t)
}

// stopWithin is how long a process may take to end: jobs.drain_timeout, here 1 s, and
// 10 s.
const stopWithin = 11 * time.Second

const stopSettings = "jobs: {drain_timeout: 1s}\nquotas: [{priority: 1, row_quota: 1000000, token_quota: 1000000000}]\n"

// A stopping process ends in time, even if clients or servers hang.
func TestStopsWhateverRuns(t *testing.T) {
	t.Parallel()
	silent := silence(t)
	large := strings.Repeat(`"x",`, 1<<20)
	for name, c := range map[string]struct {
		choose func(hostile.Request, uint64) *hostile.AnswerKind
		answer string
		begin  func(t *testing.T, n *node)
	}{
		"an engine that is silent": {
			choose: kindOf(t, "silence in the body"),
			begin: func(t *testing.T, n *node) {
				n.submit(t, submission{Inputs: []string{"a", "b"}, Model: model})
			},
		},
		"an answer without end": {
			choose: kindOf(t, "endless list"),
			begin: func(t *testing.T, n *node) {
				n.submit(t, submission{Inputs: slices.Repeat([]string{"a"}, 200), Model: model})
			},
		},
		"answers that are long to validate": {
			answer: "[" + strings.Repeat("[0,1],", 100_000) + "[0,1]]",
			begin: func(t *testing.T, n *node) {
				branches := strings.Repeat(`{"items":{"minimum":0}},`, 50)
				n.submit(t, submission{
					Inputs: slices.Repeat([]string{"a"}, 200), Model: model,
					Schema: json.RawMessage(`{"items":{"allOf":[` + branches + `{}]}}`),
				})
			},
		},
		"an input that does not come": {
			begin: func(t *testing.T, n *node) {
				n.submit(t, submission{Inputs: silent + "/input.csv", Model: model, Column: "text"})
			},
		},
		"a submission that does not end": {
			begin: func(t *testing.T, n *node) { n.halfSent(t, large) },
		},
		"results that no client reads": {
			answer: strings.Repeat("a long answer ", 1<<14),
			begin: func(t *testing.T, n *node) {
				id := n.submit(t, submission{Inputs: slices.Repeat([]string{"a"}, 400), Model: model})
				n.finish(t, id)
				n.request(t, "GET /v1/jobs/"+id+"/results HTTP/1.1\r\n")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			s := must.Get(hostile.Start(t.Context(), hostile.Config{Model: model, Answer: c.answer, Choose: func(r hostile.Request, i uint64) *hostile.AnswerKind {
				if r.Path != hostile.Chat {
					return nil
				}
				asked.Add(1)
				if c.choose == nil {
					return nil
				}
				return c.choose(r, i)
			}}))(t)
			t.Cleanup(s.Stop)
			n := newNode(t, s.URL(), stopSettings).start(t)
			c.begin(t, n)
			time.Sleep(500 * time.Millisecond) // the work is in progress
			n.stopsInTime(t, 0, 1)             // 1: rows or requests were given up
		})
	}
}

// A node with silent records or a silent bucket cannot start, but it can be stopped. A
// node with a blocked log ends too.
func TestStopsWhateverIsSilent(t *testing.T) {
	t.Parallel()
	at := strings.TrimPrefix(silence(t), "http://")
	for name, settings := range map[string]string{
		"Redis": "store: {url: 'redis://" + at + "/0'}\nobjects: {shared: true}\n",
		"S3":    "objects: {url: 's3://rowmill', endpoint: 'http://" + at + "', access_key: x, secret_key: y}\n",
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, newWitness(t, 1, 0).url, stopSettings+settings)
			n.launch(t)
			time.Sleep(time.Second)
			if n.gone() {
				t.Fatal("it has ended by itself; nothing was tested")
			}
			n.stopsInTime(t, 0, 1, 143)
		})
	}
	t.Run("log", func(t *testing.T) {
		n := newNode(t, newWitness(t, 1, 0).url, stopSettings)
		reader, writer, err := os.Pipe()
		must.Succeed(t, err)
		t.Cleanup(func() { _ = reader.Close(); _ = writer.Close() })
		n.logs = writer
		n.start(t)
		// From here on the log is blocked.
		pipe := int(writer.Fd()) // Fd also makes the pipe block
		must.Succeed(t, syscall.SetNonblock(pipe, true))
		for size := 4096; size > 0; size /= 2 {
			for err = nil; err == nil; {
				_, err = syscall.Write(pipe, make([]byte, size))
			}
		}
		must.Succeed(t, syscall.SetNonblock(pipe, false))
		n.stopsInTime(t, 9)
	})
}

// stopsInTime stops the process and checks that it ends in time with one of the codes.
func (n *node) stopsInTime(t *testing.T, codes ...int) {
	t.Helper()
	began := time.Now()
	code := n.terminate(t)
	took := time.Since(began)
	t.Logf("ended with code %d after %v", code, took.Round(time.Millisecond))
	if took > stopWithin+2*time.Second && soaking() {
		t.Errorf("the process took %v to end, want %v at most", took, stopWithin)
	}
	if !slices.Contains(codes, code) {
		t.Errorf("the process ended with code %d, want one of %v", code, codes)
	}
}

// kindOf answers all rows by one kind.
func kindOf(t *testing.T, name string) func(hostile.Request, uint64) *hostile.AnswerKind {
	t.Helper()
	kinds := hostile.Kinds(hostile.Chat)
	i := slices.IndexFunc(kinds, func(k hostile.AnswerKind) bool { return k.Name == name })
	if i < 0 {
		t.Fatalf("there is no kind %q", name)
	}
	return func(hostile.Request, uint64) *hostile.AnswerKind { return &kinds[i] }
}

// silence accepts connections and sends nothing.
func silence(t *testing.T) (url string) {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go io.Copy(io.Discard, conn)
		}
	}()
	return "http://" + listener.Addr().String()
}

// request sends the header of a request, and reads no answer.
func (n *node) request(t *testing.T, head string) net.Conn {
	t.Helper()
	conn := must.Get(net.Dial("tcp", strings.TrimPrefix(n.base, "http://")))(t)
	t.Cleanup(func() { conn.Close() })
	must.Get(fmt.Fprintf(conn, "%sHost: x\r\nAuthorization: Key %s\r\n\r\n", head, apiKey))(t)
	return conn
}

// halfSent starts a submission that does not end.
func (n *node) halfSent(t *testing.T, text string) {
	t.Helper()
	conn := n.request(t, "POST /v1/batch-inference HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n")
	must.Get(io.Copy(conn, bytes.NewReader([]byte(`{"model":"`+model+`","inputs":[`+text))))(t)
}
