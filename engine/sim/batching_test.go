package sim

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill/engine/sim/batching"
	"github.com/rowmill/rowmill/internal/must"
)

// gpu is the profile that tests run on.
func gpu(t testing.TB) batching.GPUProfile {
	t.Helper()
	p := must.Get(batching.FindProfile("llama-3.1-8b/h100"))(t)
	return p
}

// fastGPU is the same, but for real time.
func fastGPU(t testing.TB) batching.GPUProfile { return gpu(t).Faster(100) }

func newBatching(t testing.TB, c batching.Config) *BatchingEngine {
	t.Helper()
	b := must.Get(NewBatchingEngine(c))(t)
	return b
}

func begin(t testing.TB, p LatencyModel, w EngineRequest) EngineRun {
	t.Helper()
	r := must.Get(p.Start(w))(t)
	return r
}

// TestBatchingKeepsTheModelsTime drives the engine by goroutines in a bubble
// and compares with the plain simulation: 256 clients that each send the next
// row when the last is answered.
func TestBatchingKeepsTheModelsTime(t *testing.T) {
	t.Parallel()
	const rows, window = 2000, 256
	config := batching.Config{Profile: gpu(t)}
	left := rows
	want := must.Get(batching.Simulate(config, 1, func(int) *batching.Request {
		if left == 0 {
			return nil
		}
		left--
		return &batching.Request{PromptTokens: 300, OutputTokens: 150}
	}, window))(t)
	synctest.Test(t, func(t *testing.T) {
		b := newBatching(t, config)
		began := time.Now()
		work := make(chan struct{}, rows)
		for range rows {
			work <- struct{}{}
		}
		close(work)
		var clients sync.WaitGroup
		for range window {
			clients.Go(func() {
				for range work {
					r := begin(t, b, EngineRequest{PromptTokens: 300, OutputTokens: 150})
					if ready, err := r.Wait(t.Context(), 150); ready != 150 || err != nil {
						t.Errorf("%d tokens, %v", ready, err)
					}
					r.End()
				}
			})
		}
		clients.Wait()
		took := time.Since(began)
		t.Logf("%d rows in %v, simulated %v", rows, took, want.Makespan)
		if math.Abs(float64(took)/float64(want.Makespan)-1) > 0.001 {
			t.Errorf("%d rows took %v, the plain simulation %v", rows, took, want.Makespan)
		}
		if s := b.Stats(); s.Generated != rows*150 || s.Computed != rows*300 {
			t.Errorf("%+v", s)
		}
		b.Close()
	})
}

func TestBatchingStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBatching(t, batching.Config{Profile: gpu(t), NoJitter: true})
		p := gpu(t)
		began := time.Now()
		r := begin(t, b, EngineRequest{PromptTokens: 100, OutputTokens: 5})
		due := p.FrontEnd + p.StepTime(batching.StepWork{Prefill: 100, Attention: 100 * 50})
		for n := 1; n <= 5; n++ {
			ready, err := r.Wait(t.Context(), n)
			if ready != n || err != nil {
				t.Errorf("%d of %d tokens, %v", ready, n, err)
			}
			if got := time.Since(began); got != due {
				t.Errorf("token %d after %v, want %v", n, got, due)
			}
			due += p.StepTime(batching.StepWork{Decoding: 1, Context: int64(100 + n)})
		}
		if ready, err := r.Wait(t.Context(), 2); ready != 5 || err != nil {
			t.Errorf("asked again: %d tokens, %v", ready, err)
		}
		r.End()
		r.End()
		if len(b.streams) != 0 {
			t.Errorf("%d streams are left", len(b.streams))
		}
		e := begin(t, b, EngineRequest{PromptTokens: 100})
		if ready, err := e.Wait(t.Context(), 0); ready != 0 || err != nil {
			t.Errorf("embedding: %d, %v", ready, err)
		}
		e.End()
	})
}

func TestBatchingCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBatching(t, batching.Config{Profile: gpu(t), MaxSeqs: 1})
		a := begin(t, b, EngineRequest{PromptTokens: 10, OutputTokens: 1000})
		waits := begin(t, b, EngineRequest{PromptTokens: 10, OutputTokens: 1000})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		queued := make(chan int)
		go func() {
			ready, err := waits.Wait(ctx, 1000)
			waits.End()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			queued <- ready
		}()
		ready, err := a.Wait(ctx, 1000) // a step takes about 7.2 ms
		if ready < 130 || ready > 150 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d tokens, %v", ready, err)
		}
		if ready := <-queued; ready != 0 {
			t.Errorf("%d tokens of a request that waits", ready)
		}
		if l := b.Load(); l.Running != 1 || l.Waiting != 1 || l.Slots != 0 || l.KVBlocks < 26000 || l.KVUse == 0 {
			t.Errorf("load %+v", l)
		}
		a.End()
		synctest.Wait()
		time.Sleep(time.Second)
		if l := b.Load(); l.Running != 0 || l.Waiting != 0 || l.KVUse != 0 || b.running {
			t.Errorf("load %+v, the loop lives: %v", l, b.running)
		}
	})
}

func TestBatchingClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBatching(t, batching.Config{Profile: gpu(t)})
		r := begin(t, b, EngineRequest{PromptTokens: 10, OutputTokens: 1000})
		ended := make(chan error)
		go func() {
			_, err := r.Wait(t.Context(), 1000)
			r.End()
			ended <- err
		}()
		time.Sleep(time.Second)
		b.Close()
		b.Close()
		if err := <-ended; !errors.Is(err, errPaceClosed) {
			t.Errorf("got %v", err)
		}
		if _, err := b.Start(EngineRequest{PromptTokens: 1}); !errors.Is(err, errPaceClosed) {
			t.Errorf("a closed engine: %v", err)
		}
	})
}

// TestGPUServer looks at all that a server with a GPU shows.
func TestGPUServer(t *testing.T) {
	t.Parallel()
	log := &lockedBuffer{}
	c := start(t, Config{GPU: &batching.Config{Profile: fastGPU(t)}, RequestLog: log})
	if r := c.must("GET", "/v1/models", ""); strings.Contains(string(r.body), "slots") {
		t.Errorf("slots are told: %s", r.body)
	}
	system := strings.Repeat("be brief and kind ", 50)
	ask := func(question string) completion {
		return c.complete(`{"model":"plain","messages":[{"role":"system","content":"` + system + `"},{"role":"user","content":"` + question + `"}]}`)
	}
	first := ask("what is up?")
	if first.Usage.PromptDetails.Cached != 0 {
		t.Errorf("%d tokens are cached at the start", first.Usage.PromptDetails.Cached)
	}
	// 200 words and a blank, the end, and 3 tokens before each of the two
	// messages make 13 blocks.
	if cached := ask("and what is down?").Usage.PromptDetails.Cached; cached != 13*16 {
		t.Errorf("%d tokens are cached", cached)
	}
	chunks, _ := events(t, c.must("POST", chatPath, body("plain", "x", "stream", true, "stream_options", map[string]any{"include_usage": true})).body)
	if usage := chunks[len(chunks)-1].Usage; usage == nil || usage.Completion == 0 {
		t.Errorf("stream: %+v", usage)
	}
	c.must("POST", "/v1/embeddings", `{"model":"embedder","input":["my row","other"]}`)
	metrics := string(c.must("GET", "/metrics", "").body)
	for _, want := range []string{`block_size="16"`, `num_gpu_blocks="26389"`, "vllm:num_preemptions_total{", "vllm:kv_cache_usage_perc{"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics without %s:\n%s", want, metrics)
		}
	}
	if strings.Contains(metrics, "sim_slots") {
		t.Error("metrics tell the slots")
	}
	if err := c.sim.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	found := false
	for _, l := range log.lines(t) {
		found = found || l.Cached == 13*16 && l.Preempted == 0
	}
	if !found {
		t.Error("the request log knows of no cached tokens")
	}
}

// smallGPU has memory for 64 blocks, 1024 tokens, of KV cache.
func smallGPU(t testing.TB) batching.GPUProfile {
	p := fastGPU(t)
	p.Overhead = 0
	p.Memory = (p.DenseParams*p.BytesPerParam + p.KVBytes*batching.BlockTokens*64.5) / 0.9
	return p
}

func TestGPUServerPreempts(t *testing.T) {
	t.Parallel()
	log := &lockedBuffer{}
	c := start(t, Config{GPU: &batching.Config{Profile: smallGPU(t)}, RequestLog: log})
	if p := c.refused(chatPath, body("plain", "[[sim:tokens=1200]]"), 400); !strings.Contains(p.Error.Message, "of 64 blocks") {
		t.Errorf("too long: %s", p.Error.Message)
	}
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		wg.Go(func() { c.complete(body("plain", name+" [[sim:tokens=800]]")) })
	}
	wg.Wait()
	counted := c.sim.Load().Preemptions
	if counted == 0 {
		t.Error("two requests of 800 tokens ran side by side in 1024")
	}
	if err := c.sim.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	for _, l := range log.lines(t) {
		counted -= int64(l.Preempted)
	}
	if counted != 0 {
		t.Errorf("the request log differs by %d preemptions", counted)
	}
}

func TestGPUServerQueueLimit(t *testing.T) {
	t.Parallel()
	c := start(t, Config{GPU: &batching.Config{Profile: gpu(t), MaxSeqs: 2, QueueLimit: 1}})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 3 { // of 14 seconds each
		wg.Go(func() { _, _ = c.send(ctx, "POST", chatPath, body("plain", "x [[sim:tokens=2000]]")) })
	}
	eventually(t, "two run and one waits", func() bool { l := c.sim.Load(); return l.Running == 2 && l.Waiting == 1 })
	if r := c.must("POST", chatPath, body("plain", "x")); r.status != 503 || r.header.Get("Retry-After") != "1" {
		t.Errorf("a fourth is answered with %d, Retry-After %q", r.status, r.header.Get("Retry-After"))
	}
	cancel()
	wg.Wait()
}

func TestStopBreaksOffWhatTheGPURuns(t *testing.T) {
	t.Parallel()
	c := start(t, Config{GPU: &batching.Config{Profile: gpu(t)}})
	ended := make(chan error, 2)
	for _, stream := range []bool{false, true} {
		go func() {
			r, err := c.send(context.Background(), "POST", chatPath, body("plain", "[[sim:tokens=2000]]", "stream", stream))
			ended <- errors.Join(err, r.err)
		}()
	}
	eventually(t, "both run", func() bool { return c.sim.Load().Running == 2 })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.sim.Stop(ctx); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("a request of 15 seconds was answered")
		}
	}
}
