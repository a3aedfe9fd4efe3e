package batching

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// small is an engine without jitter and front end whose KV cache has the given
// number of blocks.
func small(t testing.TB, blocks, seqs, tokens int) *Engine {
	t.Helper()
	e := must.Get(New(smallConfig(t, blocks, seqs, tokens)))(t)
	return e
}

func smallConfig(t testing.TB, blocks, seqs, tokens int) Config {
	t.Helper()
	p := lookup(t, "llama-3.1-8b/h100")
	p.Overhead = 0
	p.Memory = (p.DenseParams*p.BytesPerParam + p.KVBytes*(float64(blocks*BlockTokens)+0.5)) / memoryShare
	p.FrontEnd, p.MaxBatchedTokens = 0, tokens
	if got := p.KVBlocks(); got != blocks {
		t.Fatalf("%d blocks, want %d", got, blocks)
	}
	return Config{Profile: p, MaxSeqs: seqs, NoJitter: true}
}

func add(t testing.TB, e *Engine, now time.Duration, r *Request) *Request {
	t.Helper()
	must.Succeed(t, e.Add(now, r))
	return r
}

// prompt returns the hashes of full blocks, a letter each.
func prompt(letters string) (hashes []uint64) {
	before := uint64(0)
	for i := range letters {
		before = ChainHash(before, []byte{letters[i]})
		hashes = append(hashes, before)
	}
	return hashes
}

// drain steps until nothing is left.
func drain(e *Engine, now time.Duration) time.Duration {
	for {
		took, _ := e.Step(now)
		if took == 0 {
			return now
		}
		now += took
	}
}

func TestOneRequest(t *testing.T) {
	t.Parallel()
	e := small(t, 100, 4, 64)
	p := &e.cfg.Profile
	if took, finished := e.Step(0); took != 0 || finished != nil {
		t.Errorf("an idle step took %v", took)
	}
	r := add(t, e, 0, &Request{PromptTokens: 100, OutputTokens: 3})
	want := []StepWork{
		{Prefill: 64, Attention: 64 * 32},
		{Prefill: 36, Attention: 36 * (64 + 18), Context: 64},
		{Decoding: 1, Context: 101},
		{Decoding: 1, Context: 102},
	}
	now := time.Duration(0)
	for i, b := range want {
		took, finished := e.Step(now)
		if took != p.StepTime(b) {
			t.Errorf("step %d took %v, want %v", i, took, p.StepTime(b))
		}
		now += took
		if done := len(finished) == 1; done != (i == 3) {
			t.Errorf("step %d: %d finished", i, len(finished))
		}
		if got := e.GeneratedTokens(r); got != max(0, i) {
			t.Errorf("step %d: %d tokens", i, got)
		}
	}
	if r.Finished != now || r.FirstToken != p.StepTime(want[0])+p.StepTime(want[1]) {
		t.Errorf("first token at %v, finished at %v of %v", r.FirstToken, r.Finished, now)
	}
	if s := e.Stats(); s.Busy != now || s.Steps != 4 || s.Computed != 100 || s.Generated != 3 || s.Finished != 1 {
		t.Errorf("%+v", s)
	}
}

func TestEmbeddingEndsWithItsPrompt(t *testing.T) {
	t.Parallel()
	e := small(t, 100, 4, 64)
	r := add(t, e, 0, &Request{PromptTokens: 128})
	_, first := e.Step(0)
	if len(first) != 0 {
		t.Error("finished in the middle of its prompt")
	}
	if took, finished := e.Step(7); len(finished) != 1 || finished[0] != r || r.Finished != 7+took || r.FirstToken != r.Finished {
		t.Errorf("got %+v", r)
	}
	if s := e.Stats(); s.Generated != 0 || s.Finished != 1 {
		t.Errorf("%+v", s)
	}
}

func TestDecodeComesFirst(t *testing.T) {
	t.Parallel()
	e := small(t, 100, 8, 10)
	a := add(t, e, 0, &Request{PromptTokens: 10, OutputTokens: 9})
	e.Step(0)
	b := add(t, e, 0, &Request{PromptTokens: 20, OutputTokens: 1})
	e.Step(0)
	if e.GeneratedTokens(a) != 2 || b.computed != 9 {
		t.Errorf("%d tokens decoded, %d of the prompt computed", e.GeneratedTokens(a), b.computed)
	}
}

func TestFrontEndIsSerialAndOverlaps(t *testing.T) {
	t.Parallel()
	c := smallConfig(t, 100, 8, 64)
	c.Profile.FrontEnd = 3 * time.Millisecond
	e := must.Get(New(c))(t)
	start := time.Second
	for range 4 {
		add(t, e, start, &Request{PromptTokens: 10, OutputTokens: 2})
	}
	took, _ := e.Step(start)
	if took != 3*time.Millisecond || e.Load() != (Load{FrontEnd: 4, KVBlocks: 100}) {
		t.Errorf("waiting for the front end took %v, load %+v", took, e.Load())
	}
	took, _ = e.Step(start + took)
	if l := e.Load(); l.Running != 1 || l.FrontEnd != 3 || l.KVUsed != 1 {
		t.Errorf("load %+v", l)
	}
	if took < 6*time.Millisecond { // the step lets two more through
		t.Fatalf("the step took only %v", took)
	}
	after, _ := e.Step(start + 3*time.Millisecond + took)
	if l := e.Load(); l.Running != 3 || l.FrontEnd != 1 {
		t.Errorf("load %+v", l)
	}
	if busy := e.Stats().Busy; busy != took+after {
		t.Errorf("busy for %v: waiting was counted", busy)
	}
}

func TestPrefixCache(t *testing.T) {
	t.Parallel()
	e := small(t, 100, 8, 1000)
	serve := func(letters string, tokens, output int) int {
		r := add(t, e, 0, &Request{Prompt: prompt(letters), PromptTokens: tokens, OutputTokens: output})
		drain(e, 0)
		return r.CachedTokens
	}
	for _, c := range []struct {
		letters        string
		tokens, cached int
	}{
		{"abc", 50, 0},
		{"abc", 50, 48},
		{"abc", 48, 32}, // the last token is computed, and its block with it
		{"abx", 60, 32},
		{"xbc", 60, 0}, // the same blocks after another beginning
		{"ab", 64, 32},
		{"", 64, 0},
	} {
		if got := serve(c.letters, c.tokens, 5); got != c.cached {
			t.Errorf("%q of %d tokens: %d cached, want %d", c.letters, c.tokens, got, c.cached)
		}
	}
	e.ClearPrefixCache()
	if got := serve("abc", 50, 5); got != 0 {
		t.Errorf("%d tokens are cached after all was forgotten", got)
	}
	a := add(t, e, 0, &Request{Prompt: prompt("new"), PromptTokens: 50, OutputTokens: 9})
	b := add(t, e, 0, &Request{Prompt: prompt("new"), PromptTokens: 50, OutputTokens: 9})
	e.Step(0)
	add(t, e, 0, &Request{Prompt: prompt("new"), PromptTokens: 50, OutputTokens: 9})
	e.Step(0)
	if a.CachedTokens+b.CachedTokens != 0 || e.running.last.CachedTokens != 48 || e.load.KVUsed != 4+4+1 {
		t.Errorf("cached before it was computed: %d, %d; after: %d; %d blocks in use",
			a.CachedTokens, b.CachedTokens, e.running.last.CachedTokens, e.load.KVUsed)
	}
	drain(e, 0)
	if e.kv.free != 100 {
		t.Errorf("%d blocks are free at the end", e.kv.free)
	}
}

func TestCachedContextIsRead(t *testing.T) {
	t.Parallel()
	e := small(t, 100, 8, 1000)
	for range 2 {
		add(t, e, 0, &Request{Prompt: prompt("abc"), PromptTokens: 58})
		took, _ := e.Step(0)
		want := StepWork{Prefill: 58, Attention: 58 * 29}
		if e.step == 2 {
			want = StepWork{Prefill: 10, Attention: 10 * (48 + 5), Context: 48}
		}
		if took != e.cfg.Profile.StepTime(want) {
			t.Errorf("step %d took %v", e.step, took)
		}
	}
}

// TestLeastRecentlyUsedGoes fills a cache of 8 blocks.
func TestLeastRecentlyUsedGoes(t *testing.T) {
	t.Parallel()
	e := small(t, 8, 8, 1000)
	serve := func(letters string) int {
		r := add(t, e, 0, &Request{Prompt: prompt(letters), PromptTokens: 16*len(letters) + 1, OutputTokens: 1})
		drain(e, 0)
		return r.CachedTokens
	}
	serve("abc") // 4 blocks each
	serve("xyz")
	if got := serve("abc"); got != 48 {
		t.Errorf("%d tokens of abc cached", got)
	}
	serve("mn") // takes the three oldest free blocks: the last of xyz, which is not shared, z and y
	if got := serve("xyz"); got != 16 {
		t.Errorf("%d tokens of xyz cached: the end of a prompt goes first", got)
	}
}

func TestPreemption(t *testing.T) {
	t.Parallel()
	e := small(t, 6, 8, 1000)
	a := add(t, e, 0, &Request{Prompt: prompt("aa"), PromptTokens: 32, OutputTokens: 40})
	b := add(t, e, 0, &Request{Prompt: prompt("bb"), PromptTokens: 32, OutputTokens: 20})
	c := add(t, e, 0, &Request{PromptTokens: 60, OutputTokens: 1})
	now := time.Duration(0)
	step := func() []*Request {
		took, finished := e.Step(now)
		now += took
		return finished
	}
	step()
	if e.load.Running != 2 || e.load.Waiting != 1 {
		t.Fatalf("load %+v: c has no room", e.load)
	}
	for range 17 { // both grow by one block, and then by another
		step()
	}
	if a.Preempted != 0 || b.Preempted != 1 || e.waiting.first != b || e.GeneratedTokens(b) != 17 || e.GeneratedTokens(a) != 18 {
		t.Fatalf("a: %d times, %d tokens; b: %d times, %d tokens", a.Preempted, e.GeneratedTokens(a), b.Preempted, e.GeneratedTokens(b))
	}
	computed := e.Stats().Computed
	for a.Finished == 0 {
		step()
	}
	if b.Finished != 0 || e.Stats().Computed != computed {
		t.Error("b ran while there was no room")
	}
	step()
	// a has taken two of the three blocks of b: the first of its prompt is left.
	if again := e.Stats().Computed - computed; again != 16+17 || e.Stats().Cached != 16 {
		t.Errorf("%d tokens computed again, %d cached", again, e.Stats().Cached)
	}
	drain(e, now)
	if s := e.Stats(); s.Preemptions != 1 || s.Generated != 61 || s.Finished != 3 || b.Finished > c.Finished || b.CachedTokens != 0 {
		t.Errorf("%+v", s)
	}
	if e.kv.free != 6 {
		t.Errorf("%d blocks are free at the end", e.kv.free)
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	c := smallConfig(t, 100, 2, 64)
	c.Profile.FrontEnd = time.Millisecond
	e := must.Get(New(c))(t)
	rows := make([]*Request, 5)
	for i := range rows {
		rows[i] = add(t, e, 0, &Request{PromptTokens: 40, OutputTokens: 10})
	}
	e.Step(3 * time.Millisecond) // 0 done, 1 in its prompt, 2 waiting, 3 and 4 in the front end
	for i, want := range []stage{decoding, prefilling, waiting, inFrontEnd, inFrontEnd} {
		if rows[i].stage != want {
			t.Errorf("row %d is in stage %d, want %d", i, rows[i].stage, want)
		}
	}
	for _, i := range []int{3, 2, 1, 0} {
		e.Remove(rows[i])
		e.Remove(rows[i])
	}
	if e.GeneratedTokens(rows[0]) != 1 || e.GeneratedTokens(rows[1]) != 0 {
		t.Error("the tokens of removed rows are lost")
	}
	drain(e, 10*time.Millisecond)
	if s := e.Stats(); s.Finished != 1 || rows[4].Finished == 0 || e.kv.free != 100 || e.Load().Running != 0 {
		t.Errorf("%+v, load %+v", s, e.Load())
	}
	add(t, e, time.Second, rows[0]) // again
	drain(e, 2*time.Second)
	if rows[0].Finished < time.Second || e.GeneratedTokens(rows[0]) != 10 {
		t.Errorf("added again: %+v", rows[0])
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	c := smallConfig(t, 10, 2, 64)
	c.QueueLimit = 1
	e := must.Get(New(c))(t)
	for _, r := range []*Request{
		{PromptTokens: 0, OutputTokens: 1}, {PromptTokens: 5, OutputTokens: -1}, {PromptTokens: 15, Prompt: prompt("a")},
	} {
		if err := e.Add(0, r); err == nil {
			t.Errorf("%+v was taken", r)
		}
	}
	if err := e.Add(0, &Request{PromptTokens: 160, OutputTokens: 2}); !errors.Is(err, ErrTooLong) || !strings.Contains(err.Error(), "11 of 10 blocks") {
		t.Errorf("too long: %v", err)
	}
	r := add(t, e, 0, &Request{PromptTokens: 160, OutputTokens: 1}) // its last token needs no room
	if err := e.Add(0, r); err == nil {
		t.Error("a request was taken twice")
	}
	add(t, e, 0, &Request{PromptTokens: 1})
	add(t, e, 0, &Request{PromptTokens: 1})
	if err := e.Add(0, &Request{PromptTokens: 1}); !errors.Is(err, ErrQueueFull) {
		t.Errorf("queue full: %v", err)
	}
	drain(e, 0)
	add(t, e, 0, &Request{PromptTokens: 1})
}

func TestJitter(t *testing.T) {
	t.Parallel()
	var factors []float64
	for step := range int64(10000) {
		factors = append(factors, jitterOf(3, step))
	}
	sum := 0.0
	for _, f := range factors {
		sum += f
	}
	low, high := slices.Min(factors), slices.Max(factors)
	if mean := sum / 1e4; low < 0.95 || low > 0.951 || high > 1.05 || high < 1.049 || mean < 0.999 || mean > 1.001 {
		t.Errorf("between %v and %v, %v in the mean", low, high, mean)
	}
	if jitterOf(3, 7) != jitterOf(3, 7) || jitterOf(3, 7) == jitterOf(4, 7) {
		t.Error("jitter follows the seed")
	}
}

func TestStepsAllocateNothing(t *testing.T) {
	e := small(t, 2000, 64, 512)
	rows := make([]Request, 64)
	for i := range rows {
		rows[i].PromptTokens, rows[i].OutputTokens = 100, 20+i
	}
	var now time.Duration
	round := func() {
		for i := range rows {
			if rows[i].stage == outside {
				add(t, e, now, &rows[i])
			}
		}
		took, _ := e.Step(now)
		now += took
	}
	for range 500 {
		round()
	}
	if n := testing.AllocsPerRun(500, round); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}
