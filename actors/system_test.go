package actors_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/internal/disktest"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	writer   = rowmill.Model{ID: "writer", Kind: rowmill.KindGeneration, ContextLength: 4096, InputPrice: 1, OutputPrice: 2}
	embedder = rowmill.Model{ID: "embedder", Kind: rowmill.KindEmbedding, ContextLength: 512, Dimension: 2}
)

// A rig is a System on a real store and a real bucket.
type rig struct {
	t      testing.TB
	cfg    actors.Config
	store  *bolt.Store
	system *actors.System
}

func setup(t testing.TB, e *scripted, change ...func(*actors.Config)) *rig {
	t.Helper()
	st, bucket := disktest.Open(t)
	download := must.Get(input.New(input.Config{AllowLoopback: true, Logger: slog.New(slog.DiscardHandler)}))(t)
	b := &rig{t: t, store: st, cfg: actors.Config{
		Store: st, Blob: bucket, Inputs: actors.InputConfig{Downloader: download},
		Parts: actors.PartConfig{Interval: 50 * time.Millisecond}, Shards: actors.ShardConfig{Rows: 100},
		Servers:   actors.ServerConfig{ProbeInterval: 500 * time.Millisecond},
		Ownership: actors.OwnershipConfig{ScanInterval: 500 * time.Millisecond}, DrainTimeout: 5 * time.Second,
	}}
	if e == nil { // the test starts its own systems
		return b
	}
	if e.models == nil {
		e.models = []engine.ServedModel{{Name: "writer"}, {Name: "embedder"}}
	}
	e.name = "scripted"
	b.cfg.Engines = []engine.Engine{e}
	for _, f := range change {
		f(&b.cfg)
	}
	b.start()
	return b
}

// inVirtualTime runs a test in which waiting takes no time, so a slow machine
// changes nothing.
func inVirtualTime(t *testing.T, test func(*testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Second) }) // the dead-letter throttle of the actor library ends by itself
		test(t)
	})
}

func (b *rig) start() {
	b.t.Helper()
	var err error
	if b.system, err = actors.New(b.cfg); err != nil {
		b.t.Fatal(err)
	}
	must.Succeed(b.t, b.system.Start(b.t.Context()))
	b.t.Cleanup(func() { _ = b.system.Stop(context.Background()) })
}

// submit creates a job and returns its id.
func (b *rig) submit(spec rowmill.Spec) string {
	b.t.Helper()
	if spec.Model.ID == "" {
		spec.Model = writer
	}
	if spec.Account == "" {
		spec.Account = "default"
	}
	job := rowmill.Job{ID: rowmill.NewJobID(), Status: rowmill.StatusPending, RunType: rowmill.RunFull, Model: spec.Model.ID, Priority: spec.Priority, JobTimes: rowmill.JobTimes{Created: time.Now().UTC()}}
	if spec.Estimate {
		job.RunType = rowmill.RunEstimate
	}
	rec := store.Record{Job: job, Spec: spec}
	if _, _, err := b.store.Create(b.t.Context(), rec, nil); err != nil {
		b.t.Fatal(err)
	}
	b.system.NotifySubmitted(rec)
	return job.ID
}

// spool stores rows as a large submission does, and returns their key in the
// bucket.
func (b *rig) spool(texts []string) string {
	b.t.Helper()
	w := must.Get(b.cfg.Blob.Create(b.t.Context(), "spooled/"+rowmill.NewJobID(), "application/x-ndjson"))(b.t)
	buffered := bufio.NewWriter(w)
	enc := json.NewEncoder(buffered)
	for _, text := range texts {
		must.Succeed(b.t, enc.Encode(text))
	}
	must.Succeed(b.t, buffered.Flush())
	info := must.Get(w.Commit())(b.t)
	return info.Key
}

// await polls until ok accepts the record.
func (b *rig) await(id string, ok func(store.Record) bool) store.Record {
	b.t.Helper()
	var rec store.Record
	wait.Until(b.t, func() (err error) {
		if rec, err = b.store.Get(b.t.Context(), id); err != nil {
			b.t.Fatal(err)
		}
		if !ok(rec) {
			return fmt.Errorf("job %s is not as awaited: %+v", id, rec.Job)
		}
		return nil
	})
	return rec
}

func (b *rig) end(id string) store.Record {
	b.t.Helper()
	return b.await(id, func(r store.Record) bool { return r.Job.Status.IsTerminal() })
}

// outputs reads the job's results as clients get them.
func (b *rig) outputs(rec store.Record) (out struct {
	Outputs []json.RawMessage `json:"outputs"`
	Inputs  []string          `json:"inputs"`
},
) {
	b.t.Helper()
	full := must.Get(b.cfg.Blob.Open(b.t.Context(), rec.Artifacts["full"].Key))(b.t)
	defer full.Close()
	schema := must.Get(results.ReadSchema(full))(b.t)
	var doc bytes.Buffer
	must.Succeed(b.t, results.WriteJSON(b.t.Context(), &doc, full, schema, results.Full))
	must.Succeed(b.t, json.Unmarshal(doc.Bytes(), &out))
	return out
}

func numbered(n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("row %d", i)
	}
	return texts
}

// checkEcho requires one echoed output per input row, in order.
func (b *rig) checkEcho(rec store.Record, texts []string) {
	b.t.Helper()
	if rec.Job.Status != rowmill.StatusSucceeded {
		b.t.Fatalf("job ended %s: %+v", rec.Job.Status, rec.Job.FailureReason)
	}
	got := b.outputs(rec)
	if len(got.Outputs) != len(texts) {
		b.t.Fatalf("%d outputs for %d rows", len(got.Outputs), len(texts))
	}
	for i, text := range texts {
		want, _ := json.Marshal("re: " + text)
		if string(got.Outputs[i]) != string(want) || got.Inputs[i] != text {
			b.t.Fatalf("row %d: %s for %q, want %s for %q", i, got.Outputs[i], got.Inputs[i], want, text)
		}
	}
}

func TestInlineJobSucceeds(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo})
		texts := numbered(5)
		rec := b.end(b.submit(rowmill.Spec{Inline: texts}))
		b.checkEcho(rec, texts)
		j := rec.Job
		if *j.NumRows != 5 || j.RowsDone != 5 || *j.InputTokens != 15 || *j.OutputTokens != 10 || j.Started == nil || j.Completed == nil {
			t.Errorf("record = %+v", j)
		}
		if want := (15*1.0 + 10*2.0) / 1e6; j.JobCost == nil || math.Abs(*j.JobCost-want) > 1e-12 {
			t.Errorf("record = %+v, want a cost of %v", j, want)
		}
	})
}

func TestManyShardsAndPartsKeepTheOrder(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			if strings.HasSuffix(row, "7") { // slow rows end in a later part
				return slowly(70*time.Millisecond)(ctx, row, try)
			}
			return echo(ctx, row, try)
		}}
		b := setup(t, e, func(c *actors.Config) { c.Parts.Interval = 10 * time.Millisecond })
		texts := numbered(550)
		id := b.submit(rowmill.Spec{Spooled: b.spool(texts)})
		rec := b.end(id)
		b.checkEcho(rec, texts)
		if rec.Shards != 6 {
			t.Errorf("%d shards, want 6", rec.Shards)
		}
		b.cleaned(id, "input/", "parts/")
	})
}

// cleaned requires that a finished job has left nothing under its prefixes.
func (b *rig) cleaned(id string, prefixes ...string) {
	b.t.Helper()
	for _, p := range prefixes {
		wait.Until(b.t, func() error {
			left := must.Get(b.cfg.Blob.List(b.t.Context(), "jobs/"+id+"/"+p))(b.t)
			if len(left) > 0 {
				return fmt.Errorf("left behind: %v", left)
			}
			return nil
		})
	}
}

func TestURLJobCarriesIDs(t *testing.T) {
	t.Parallel()
	b := setup(t, &scripted{answer: echo})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "key,text\n")
		for i := range 250 {
			fmt.Fprintf(w, "k%d,\"row %d\"\n", i, i)
		}
	}))
	defer server.Close()
	rec := b.end(b.submit(rowmill.Spec{URL: server.URL, ColumnChoice: rowmill.ColumnChoice{Column: "text", IDColumn: "key"}}))
	b.checkEcho(rec, numbered(250))
	full := must.Get(b.cfg.Blob.Open(t.Context(), rec.Artifacts["full"].Key))(t)
	defer full.Close()
	if s, err := results.ReadSchema(full); err != nil || s.IDColumn != "key" || s.IDKind != rowmill.IDString {
		t.Errorf("schema = %+v, %v", s, err)
	}
}

func TestEmbeddingJob(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: echo}
		b := setup(t, e)
		rec := b.end(b.submit(rowmill.Spec{Model: embedder, Spooled: b.spool(numbered(200))}))
		got := b.outputs(rec)
		if len(got.Outputs) != 200 || string(got.Outputs[150]) != "[7.0,0.5]" {
			t.Fatalf("%d outputs, row 150 is %s", len(got.Outputs), got.Outputs[min(150, len(got.Outputs)-1)])
		}
		if n := e.calls.Load(); n > 60 {
			t.Errorf("%d requests for 200 texts, want groups", n)
		}
	})
}

func failure(t *testing.T, rec store.Record, code string) *rowmill.Failure {
	t.Helper()
	if rec.Job.Status != rowmill.StatusFailed || rec.Job.FailureReason == nil || rec.Job.FailureReason.Code != code {
		t.Fatalf("job ended %s with %+v, want code %s", rec.Job.Status, rec.Job.FailureReason, code)
	}
	return rec.Job.FailureReason
}

func TestDownloadFailureFailsTheJob(t *testing.T) {
	t.Parallel()
	b := setup(t, &scripted{answer: echo})
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	id := b.submit(rowmill.Spec{URL: server.URL + "/secret?sig=hidden"})
	f := failure(t, b.end(id), rowmill.CodeDownloadFailed)
	if strings.Contains(f.Message+f.AdditionalContext, "hidden") {
		t.Errorf("failure shows the signed query: %+v", f)
	}
	b.cleaned(id, "")
}

func TestBrokenInputFileFailsTheJob(t *testing.T) {
	t.Parallel()
	b := setup(t, &scripted{answer: echo})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "text\n\"never closed\n")
	}))
	defer server.Close()
	id := b.submit(rowmill.Spec{URL: server.URL})
	failure(t, b.end(id), rowmill.CodeInvalidInputFile)
	b.cleaned(id, "")
}

func TestRowQuotaFailsTheJobWhileItIsRead(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo})
		for says, spec := range map[string]rowmill.Spec{
			"has at least 301 rows": {Spooled: b.spool(numbered(305)), JobQuotas: rowmill.JobQuotas{RowQuota: 300}},
			"has 5 rows":            {Inline: numbered(5), JobQuotas: rowmill.JobQuotas{RowQuota: 2}},
		} {
			if f := failure(t, b.end(b.submit(spec)), rowmill.CodeRowQuota); !strings.Contains(f.Message, says) {
				t.Errorf("%q lacks %q", f.Message, says)
			}
		}
		b.checkEcho(b.end(b.submit(rowmill.Spec{Inline: numbered(3), JobQuotas: rowmill.JobQuotas{RowQuota: 3}})), numbered(3))
	})
}

func TestPassingFaultsAreTriedAgain(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			if try == 1 && strings.HasSuffix(row, "3") {
				return engine.Reply{}, &engine.Error{Class: engine.Transient, Status: 503, Overloaded: true, Message: "busy"}
			}
			return echo(ctx, row, try)
		}}
		b := setup(t, e)
		b.checkEcho(b.end(b.submit(rowmill.Spec{Inline: numbered(30)})), numbered(30))
	})
}

// The first request starts before the speed of the server is known.
func TestTheFirstRequestMayHang(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		var first atomic.Bool
		e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			if first.CompareAndSwap(false, true) {
				<-ctx.Done()
				return engine.Reply{}, ctx.Err()
			}
			return slowly(time.Millisecond)(ctx, row, try)
		}}
		b := setup(t, e, func(c *actors.Config) { c.Rows.Patience = 50 * time.Millisecond })
		b.checkEcho(b.end(b.submit(rowmill.Spec{Inline: numbered(30)})), numbered(30))
	})
}

func TestAFailedRowIsDataAndTheJobGoesOn(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			if row == "row 17" {
				return engine.Reply{}, &engine.Error{Class: engine.RowFault, Status: 400, Message: "no"}
			}
			return echo(ctx, row, try)
		}}
		b := setup(t, e)
		rec := b.end(b.submit(rowmill.Spec{Inline: numbered(100)}))
		if rec.Job.Status != rowmill.StatusSucceeded || rec.Job.FailedRows != 1 || rec.Job.RowsDone != 100 {
			t.Fatalf("record = %+v", rec.Job)
		}
		if got := b.outputs(rec).Outputs; string(got[17]) != "null" || string(got[18]) != `"re: row 18"` {
			t.Errorf("outputs 17 and 18 = %s, %s", got[17], got[18])
		}
	})
}

func TestTooManyFailedRowsFailTheJobEarly(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			_, _ = slowly(time.Millisecond)(ctx, row, try)
			return engine.Reply{}, &engine.Error{Class: engine.RowFault, Status: 400, Message: "no"}
		}}
		b := setup(t, e)
		id := b.submit(rowmill.Spec{Spooled: b.spool(numbered(5000))})
		failure(t, b.end(id), rowmill.CodeTooManyFailedRows)
		if n := e.calls.Load(); n > 3000 {
			t.Errorf("%d rows were sent before the job failed", n)
		}
		parts, err := b.store.ListParts(t.Context(), id)
		if err != nil || len(parts) == 0 {
			t.Errorf("%d parts, %v: the failed rows must stay readable", len(parts), err)
		}
		b.cleaned(id, "input/")

		failure(t, b.end(b.submit(rowmill.Spec{Inline: numbered(1)})), rowmill.CodeTooManyFailedRows)
	})
}

func TestARowTooLongFailsTheJob(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			if row == "row 4" {
				return engine.Reply{}, &engine.Error{Class: engine.RowFault, Status: 400, TooLong: true, Message: "9000 tokens, 4096 fit"}
			}
			return echo(ctx, row, try)
		}}
		b := setup(t, e)
		f := failure(t, b.end(b.submit(rowmill.Spec{Inline: numbered(10)})), rowmill.CodeRowTooLong)
		if !strings.Contains(f.Message, "Row 4") {
			t.Errorf("message %q does not name the row", f.Message)
		}
	})
}

func TestARefusedSchemaFailsTheJobAtOnce(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: func(context.Context, string, int) (engine.Reply, error) {
			return engine.Reply{}, &engine.Error{Class: engine.JobFault, Status: 400, Message: "cannot compile the schema"}
		}}
		b := setup(t, e)
		failure(t, b.end(b.submit(rowmill.Spec{Inline: numbered(10)})), rowmill.CodeEngineError)

		refusing := &scripted{answer: echo, prepareErr: errors.New("parameter min_p is not supported")}
		b = setup(t, refusing)
		f := failure(t, b.end(b.submit(rowmill.Spec{Inline: numbered(10)})), rowmill.CodeEngineError)
		if !strings.Contains(f.Message, "min_p") {
			t.Errorf("message %q does not say what was refused", f.Message)
		}
	})
}

func TestSchemaViolationsAreRetriedWithAnotherSeed(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: func(_ context.Context, _ string, try int) (engine.Reply, error) {
			content := `{"n": 1}`
			if try == 1 {
				content = `{"n": "one"}`
			}
			return engine.Reply{Content: content, Finish: "stop"}, nil
		}}
		b := setup(t, e)
		schema := json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)
		rec := b.end(b.submit(rowmill.Spec{Inline: numbered(3), Schema: schema, Seeds: rowmill.Seeds{SeedPerRow: true}, Sampling: map[string]any{"temperature": 0.7}}))
		if rec.Job.Status != rowmill.StatusSucceeded || rec.Job.FailedRows != 0 {
			t.Fatalf("record = %+v", rec.Job)
		}
		if seeds := e.seeds["row 1"]; len(seeds) != 2 || seeds[0] == seeds[1] {
			t.Errorf("seeds of the two attempts = %v, want two different ones", seeds)
		}
	})
}

// An answer that cannot be checked against the schema fails its row, and the node
// continues.
func TestAnAnswerThatCannotBeComparedFailsItsRow(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		for schema, answer := range map[string]string{
			`{"type":"number","minimum":0}`:     "1e-99999999",
			`{"type":"number","multipleOf":3}`:  "1e9999999",
			`{"type":"array","maxItems":1}`:     "[1e-99999999]",
			`{"type":"number","maximum":1e300}`: strings.Repeat("7", 100_000),
		} {
			b := setup(t, &scripted{answer: func(_ context.Context, row string, _ int) (engine.Reply, error) {
				reply := engine.Reply{Content: "3", Finish: "stop"}
				if row == "row 1" {
					reply.Content = answer
				} else if answer[0] == '[' {
					reply.Content = "[3]"
				}
				return reply, nil
			}})
			rec := b.end(b.submit(rowmill.Spec{Inline: numbered(3), Schema: json.RawMessage(schema), Sampling: map[string]any{"temperature": 0.7}}))
			if rec.Job.Status != rowmill.StatusSucceeded || rec.Job.FailedRows != 1 {
				t.Errorf("%s with %.20s: job = %+v, want one failed row", schema, answer, rec.Job)
			}
			rows, err := b.cfg.Blob.Open(t.Context(), rec.Artifacts["rows"].Key)
			must.Succeed(t, err)
			got, _, err := results.ListFailures(t.Context(), rows, -1, 10)
			_ = rows.Close()
			if err != nil || len(got) != 1 || got[0].Row != 1 || got[0].Code != rowmill.RowSchemaViolation {
				t.Errorf("%s with %.20s: failed rows = %+v, %v, want a schema violation of row 1", schema, answer, got, err)
			}
		}
	})
}

func TestRowsWaitForAServerThatComesBack(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: slowly(2 * time.Millisecond)}
		b := setup(t, e)
		texts := numbered(400)
		id := b.submit(rowmill.Spec{Spooled: b.spool(texts)})
		b.await(id, func(r store.Record) bool { return r.Job.RowsDone > 0 })
		e.down.Store(true)
		b.await(id, func(r store.Record) bool { return strings.HasPrefix(r.Job.Message, "Waiting for an engine") })
		e.down.Store(false)
		rec := b.end(id)
		b.checkEcho(rec, texts)
		if rec.Job.FailedRows != 0 {
			t.Errorf("%d rows failed because of the server", rec.Job.FailedRows)
		}
	})
}

// A model that fails on a server does not affect the server's other models: their
// jobs continue there, and its own jobs say why they wait.
func TestAModelThatFailsRestsAlone(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		broken := atomic.Bool{}
		broken.Store(true)
		e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			if broken.Load() {
				return engine.Reply{}, &engine.Error{Class: engine.ServerFault, Status: 403, Code: "Forbidden", Message: "switched off"}
			}
			return echo(ctx, row, try)
		}}
		b := setup(t, e)
		texts := numbered(50)
		id := b.submit(rowmill.Spec{Spooled: b.spool(texts)})
		b.await(id, func(r store.Record) bool {
			return strings.HasPrefix(r.Job.Message, "Waiting for an engine that serves writer; finished rows are kept. scripted takes no rows now: HTTP 403, Forbidden; next try at ")
		})
		since := b.system.Engines()[0].Since
		rec := b.end(b.submit(rowmill.Spec{Model: embedder, Inline: numbered(100)}))
		if rec.Job.Status != rowmill.StatusSucceeded || rec.Job.FailedRows != 0 {
			t.Errorf("the other model's job = %+v", rec.Job)
		}
		if status := b.system.Engines()[0]; !status.Up || !status.Since.Equal(since) {
			t.Errorf("the server went down for one of its models: %v", status.Err)
		}
		broken.Store(false)
		b.checkEcho(b.end(id), texts)
	})
}

// A server that answers probes and fails every row gets few rows, and its rows go
// to the other server.
func TestRowsOfAFailingServerGoElsewhere(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		failing := &scripted{answer: func(context.Context, string, int) (engine.Reply, error) {
			return engine.Reply{}, &engine.Error{Class: engine.Transient, Status: 500, Message: "broken"}
		}}
		good := &scripted{answer: slowly(time.Millisecond)}
		b := setup(t, failing, func(c *actors.Config) {
			good.name, good.models = "good", []engine.ServedModel{{Name: "writer"}}
			c.Engines = append(c.Engines, good)
		})
		texts := numbered(1000)
		id := b.submit(rowmill.Spec{Spooled: b.spool(texts)})
		b.await(id, func(store.Record) bool { // the failing server must soon get no more rows
			i := slices.IndexFunc(b.system.Engines(), func(e actors.EngineStatus) bool { return e.Name == "scripted" })
			return failing.calls.Load() > 0 && b.system.Engines()[i].Resting["writer"] != ""
		})
		rec := b.end(id)
		b.checkEcho(rec, texts)
		if rec.Job.FailedRows != 0 {
			t.Errorf("%d rows failed although a good server was there", rec.Job.FailedRows)
		}
		if calls := failing.calls.Load(); calls > 100 {
			t.Errorf("%d of 1000 rows went to the failing server, want few", calls)
		}
	})
}

func TestAJobWaitsForAnEngineAndThenFails(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: echo, models: []engine.ServedModel{{Name: "another"}}}
		b := setup(t, e, func(c *actors.Config) { c.Servers.Wait = 100 * time.Millisecond })
		id := b.submit(rowmill.Spec{Inline: numbered(1)})
		rec := b.await(id, func(r store.Record) bool {
			return r.Job.Message == "Waiting for an engine that serves writer. Served now: another."
		})
		if rec.Job.Status != rowmill.StatusStarting || rec.Job.NumRows == nil {
			t.Errorf("record while waiting = %+v", rec.Job)
		}
		failure(t, b.end(id), rowmill.CodeModelUnavailable)
	})
}

func TestCancelStopsARunningJob(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: slowly(5 * time.Millisecond)}
		b := setup(t, e)
		id := b.submit(rowmill.Spec{Spooled: b.spool(numbered(20_000))})
		b.await(id, func(r store.Record) bool { return r.Job.RowsDone > 0 })
		must.Get(b.store.Cancel(t.Context(), id, time.Now(), func(*store.Record) {}))(t)
		b.system.NotifyCancelled(id)
		b.cleaned(id, "input/")
		before := e.calls.Load()
		other := b.end(b.submit(rowmill.Spec{Inline: numbered(100)})) // this takes a while
		if after := e.calls.Load(); after != before+other.Job.RowsDone {
			t.Errorf("%d rows were sent after the cancel", after-before-other.Job.RowsDone)
		}
		if rec := b.end(id); rec.Job.Status != rowmill.StatusCancelled {
			t.Errorf("status = %s", rec.Job.Status)
		}
	})
}

func TestACancelIsNoticedWithoutTheHint(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: slowly(5 * time.Millisecond)}
		b := setup(t, e)
		id := b.submit(rowmill.Spec{Spooled: b.spool(numbered(20_000))})
		b.await(id, func(r store.Record) bool { return r.Job.RowsDone > 0 })
		must.Get(b.store.Cancel(t.Context(), id, time.Now(), func(*store.Record) {}))(t)
		b.cleaned(id, "input/")
	})
}

// Rows that were committed before a stop do not run again after it.
func TestDrainAndResumeRunEveryRowOnce(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: slowly(time.Millisecond)}
		b := setup(t, e)
		texts := numbered(1000)
		id := b.submit(rowmill.Spec{Spooled: b.spool(texts)})
		for range 3 {
			done := int64(0)
			b.await(id, func(r store.Record) bool { done = r.Job.RowsDone; return done > 0 })
			b.await(id, func(r store.Record) bool { return r.Job.RowsDone > done || r.Job.Status.IsTerminal() })
			must.Succeed(t, b.system.Stop(t.Context()))
			b.start()
		}
		b.checkEcho(b.end(id), texts)
		for row, n := range e.tries {
			if n != 1 {
				t.Errorf("%q ran %d times", row, n)
			}
		}
	})
}

// A node that loses its session stops its jobs at once and continues with a new
// session.
func TestALostSessionIsReplaced(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: slowly(2 * time.Millisecond)}
		losing := &losingStore{}
		b := setup(t, e, func(c *actors.Config) {
			losing.Store = c.Store
			c.Store = losing
			c.Ownership.LeaseTTL = time.Second
		})
		texts := numbered(1500)
		id := b.submit(rowmill.Spec{Spooled: b.spool(texts)})
		first := b.await(id, func(r store.Record) bool { return r.Job.RowsDone > 0 })
		must.Succeed(t, b.store.CloseSession(t.Context(), first.Session))
		rec := b.end(id)
		b.checkEcho(rec, texts)
		if rec.Session == first.Session || rec.Epoch <= first.Epoch {
			t.Errorf("session %s epoch %d after %s epoch %d", rec.Session, rec.Epoch, first.Session, first.Epoch)
		}
	})
}

// A claim whose answer is lost has taken effect.
func TestAClaimWithoutAnAnswerCounts(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		mute := &muteStore{}
		b := setup(t, &scripted{answer: echo}, func(c *actors.Config) {
			mute.Store = c.Store
			c.Store = mute
		})
		rec := b.end(b.submit(rowmill.Spec{Inline: numbered(3)}))
		b.checkEcho(rec, numbered(3))
		if n := mute.claims.Load(); n != 1 {
			t.Errorf("the job was claimed %d times", n)
		}
	})
}

// muteStore is a store that returns an error for the first claim, which succeeds.
type muteStore struct {
	store.Store
	claims atomic.Int64 // successful claims
}

func (s *muteStore) Claim(ctx context.Context, job, session string, by store.Claim) (store.Record, error) {
	rec, err := s.Store.Claim(ctx, job, session, by)
	if err == nil && s.claims.Add(1) == 1 {
		return store.Record{}, errors.New("connection reset")
	}
	return rec, err
}

// losingStore is a plain store; the test closes its sessions.
type losingStore struct{ store.Store }

// slowSessions is a store where the second session opens only after hold is closed.
type slowSessions struct {
	store.Store
	asked chan struct{} // closed when the second session is requested
	hold  chan struct{}

	mu     sync.Mutex
	opened []string
	closed []string
}

func (s *slowSessions) OpenSession(ctx context.Context, node string, ttl time.Duration) (string, error) {
	s.mu.Lock()
	second := len(s.opened) > 0
	s.mu.Unlock()
	if second {
		close(s.asked)
		<-s.hold
	}
	id, err := s.Store.OpenSession(ctx, node, ttl)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = append(s.opened, id)
	return id, err
}

func (s *slowSessions) CloseSession(ctx context.Context, id string) error {
	s.mu.Lock()
	s.closed = append(s.closed, id)
	s.mu.Unlock()
	return s.Store.CloseSession(ctx, id)
}

// A node that stops while it opens a new session closes the new session.
func TestStopWhileASessionOpens(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		slow := &slowSessions{asked: make(chan struct{}), hold: make(chan struct{})}
		b := setup(t, &scripted{answer: echo}, func(c *actors.Config) {
			slow.Store = c.Store
			c.Store, c.Ownership.LeaseTTL = slow, time.Second
		})
		if err := b.store.CloseSession(t.Context(), slow.opened[0]); err != nil { // the node loses its session
			t.Fatal(err)
		}
		<-slow.asked
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			_ = b.system.Stop(context.Background())
		}()
		time.Sleep(100 * time.Millisecond)
		close(slow.hold)
		<-stopped
		if len(slow.opened) < 2 || !slices.Contains(slow.closed, slow.opened[len(slow.opened)-1]) {
			t.Errorf("sessions %v were opened and %v closed, want the last one closed", slow.opened, slow.closed)
		}
	})
}

func TestManyJobsOfTwoAccountsEnd(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo}, func(c *actors.Config) { c.Ownership.MaxActive = 4; c.MemoryBudget = 1 << 16 })
		var ids []string
		for i := range 40 {
			ids = append(ids, b.submit(rowmill.Spec{Account: fmt.Sprint("team-", i%2), Priority: rowmill.Priority(i % 2), Spooled: b.spool(numbered(150))}))
		}
		for _, id := range ids {
			b.checkEcho(b.end(id), numbered(150))
		}
	})
}

// A node may stop at any moment while a job starts.
func TestStopWhileJobsBegin(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo})
		texts := numbered(5)
		for i := range 40 {
			id := b.submit(rowmill.Spec{Inline: texts})
			time.Sleep(time.Duration(i) * 100 * time.Microsecond)
			if err := b.system.Stop(context.Background()); err != nil {
				t.Fatalf("stop %d: %v", i, err)
			}
			b.start()
			b.checkEcho(b.end(id), texts)
		}
	})
}
