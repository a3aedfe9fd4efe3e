package virtual

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/sim"
	"github.com/rowmill/rowmill/engine/sim/batching"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
)

var size = flag.String("size", "", "measure ratios, at a size: small or full")

// measures skips a test of ratios unless -size is set, and reports whether the size is
// full.
func measures(t *testing.T) (full bool) {
	t.Helper()
	if *size == "" {
		t.Skip("make bench/virtual measures it")
	}
	return *size == "full"
}

// slots is max_num_seqs of each simulated GPU.
const slots = 256

var model = rowmill.Model{ID: "m", Kind: rowmill.KindGeneration, ContextLength: 131072}

// A row is the work of a simulated GPU for one row of a job.
type row struct {
	prefix         int // number of the prefix, which other rows share
	prefixTokens   int
	prompt, output int // tokens; prompt includes the prefix
}

// text returns a prompt of a number of words, each one token, that contains the length
// of its answer. The number has a fixed width, so that the size of the text is all that
// it reveals.
func (r row) text() string {
	var b strings.Builder
	for i := range r.prefixTokens {
		fmt.Fprintf(&b, " p%04d", (r.prefix*7919+i)%10000)
	}
	fmt.Fprintf(&b, " %05d", r.output)
	b.WriteString(strings.Repeat(" lorem", max(0, r.prompt-r.prefixTokens-1)))
	return b.String()
}

// request returns the row as a request to the simulated engine alone.
func (r row) request() *batching.Request {
	q := &batching.Request{PromptTokens: r.prompt, OutputTokens: r.output}
	hash := uint64(r.prefix + 1)
	for range r.prefixTokens / batching.BlockTokens {
		hash = batching.ChainHash(hash, nil)
		q.Prompt = append(q.Prompt, hash)
	}
	return q
}

// A gpu is an engine.Engine in front of a simulated GPU, without HTTP.
type gpu struct {
	name     string
	pace     *sim.BatchingEngine
	answered atomic.Int64
	last     atomic.Int64 // time of the last answer, ns
}

func (g *gpu) Name() string { return g.name }
func (g *gpu) Close()       {}

func (g *gpu) Probe(context.Context) (engine.ServerInfo, error) {
	return engine.ServerInfo{Kind: "vllm", Simulated: true, Models: []engine.ServedModel{{Name: model.ID}}}, nil
}

func (g *gpu) Gauges(context.Context) (engine.Gauges, error) {
	l := g.pace.Load()
	return engine.Gauges{
		Running: l.Running, Waiting: l.Waiting, KVUse: l.KVUse, Preemptions: l.Preemptions, KVTokens: l.KVBlocks * batching.BlockTokens,
	}, nil
}

func (g *gpu) Prepare(engine.JobParams) (engine.PreparedCall, error) { return g, nil }
func (g *gpu) Warnings() []string                                    { return nil }

func (g *gpu) Embed(context.Context, []engine.Row) ([]engine.Reply, []*engine.Error, error) {
	panic("no embeddings here")
}

func (g *gpu) Generate(ctx context.Context, r engine.Row) (engine.Reply, error) {
	words := strings.Count(string(r.Text), " ")
	var output int
	for _, word := range strings.Fields(string(r.Text)) {
		if word[0] != 'p' {
			if _, err := fmt.Sscan(strings.TrimLeft(word, "0"), &output); err != nil {
				return engine.Reply{}, &engine.Error{Class: engine.RowFault, Message: "a row without a length"}
			}
			break
		}
	}
	run, err := g.pace.Start(sim.EngineRequest{Prompt: r.Text, PromptTokens: words, OutputTokens: output})
	if err != nil {
		return engine.Reply{}, &engine.Error{Class: engine.Transient, Message: err.Error()}
	}
	defer run.End()
	if _, err := run.Wait(ctx, output); err != nil {
		return engine.Reply{}, err
	}
	g.answered.Add(1)
	g.last.Store(time.Now().UnixNano())
	return engine.Reply{Content: "x", Finish: rowmill.FinishStop, InputTokens: int64(words), OutputTokens: int64(output)}, nil
}

// A node is a pipeline on simulated GPUs. Use it in a synctest bubble.
type node struct {
	t      testing.TB
	store  *bolt.Store
	bucket *dir.Bucket
	system *actors.System
	gpus   []*gpu
	dedup  bool // run equal rows once

	estimate bool // estimate the jobs
}

func newNode(t testing.TB, c batching.Config, gpus int) *node {
	t.Helper()
	folder := t.TempDir()
	st := must.Get(bolt.Open(t.Context(), bolt.Config{Path: folder + "/records.db"}))(t)
	keys, err := dir.LoadKeyring(t.Context(), st)
	must.Succeed(t, err)
	n := &node{t: t, store: st}
	if n.bucket, err = dir.Open(dir.Config{Root: folder + "/objects", Keys: keys}); err != nil {
		t.Fatal(err)
	}
	download, err := input.New(input.Config{AllowLoopback: true, Logger: slog.New(slog.DiscardHandler)})
	must.Succeed(t, err)
	config := actors.Config{Store: st, Blob: n.bucket, Inputs: actors.InputConfig{Downloader: download}}
	for i := range gpus {
		own := c
		own.Seed += int64(i)
		pace := must.Get(sim.NewBatchingEngine(own))(t)
		g := &gpu{name: fmt.Sprintf("gpu-%d", i), pace: pace}
		n.gpus = append(n.gpus, g)
		config.Engines = append(config.Engines, g)
	}
	if n.system, err = actors.New(config); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, n.system.Start(t.Context()))
	return n
}

func (n *node) close() {
	if err := n.system.Stop(context.Background()); err != nil {
		n.t.Error(err)
	}
	for _, g := range n.gpus {
		g.pace.Close()
	}
	if err := n.store.Close(); err != nil {
		n.t.Error(err)
	}
	time.Sleep(time.Second) // wait for the end of the actor library's dead-letter throttle
}

// submit creates a job and returns its id.
func (n *node) submit(rows []row, priority rowmill.Priority) string {
	n.t.Helper()
	w := must.Get(n.bucket.Create(n.t.Context(), "spooled/"+rowmill.NewJobID(), "application/x-ndjson"))(n.t)
	buffered := bufio.NewWriter(w)
	encoder := json.NewEncoder(buffered)
	for _, r := range rows {
		must.Succeed(n.t, encoder.Encode(r.text()))
	}
	must.Succeed(n.t, buffered.Flush())
	info := must.Get(w.Commit())(n.t)
	job := rowmill.Job{
		ID: rowmill.NewJobID(), Status: rowmill.StatusPending, RunType: rowmill.RunFull, Model: model.ID, JobTimes: rowmill.JobTimes{Created: time.Now().UTC()},
	}
	spec := rowmill.Spec{Model: model, Account: "default", Priority: priority, Spooled: info.Key, RowRules: rowmill.RowRules{Dedup: n.dedup}, Estimate: n.estimate}
	if n.estimate {
		job.RunType = rowmill.RunEstimate
	}
	rec := store.Record{Job: job, Spec: spec}
	if _, _, err := n.store.Create(n.t.Context(), rec, nil); err != nil {
		n.t.Fatal(err)
	}
	n.system.NotifySubmitted(rec)
	return job.ID
}

// await waits until the job has ended, and returns when its last row finished.
func (n *node) await(id string) time.Time {
	n.t.Helper()
	for {
		rec := must.Get(n.store.Get(n.t.Context(), id))(n.t)
		if rec.Job.Status.IsTerminal() {
			if rec.Job.Status != rowmill.StatusSucceeded || rec.Job.FailedRows > 0 {
				n.t.Fatalf("job ended %s with %d failed rows: %+v", rec.Job.Status, rec.Job.FailedRows, rec.Job.FailureReason)
			}
			return time.Now()
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// stats sums the statistics of the GPUs.
func (n *node) stats() (s batching.Stats) {
	for _, g := range n.gpus {
		o := g.pace.Stats()
		s.Finished += o.Finished
		s.Computed += o.Computed
		s.Cached += o.Cached
		s.Generated += o.Generated
		s.Preemptions += o.Preemptions
	}
	return s
}
