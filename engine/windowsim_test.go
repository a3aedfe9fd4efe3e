package engine_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/sim/batching"
	"github.com/rowmill/rowmill/internal/must"
)

// A shape holds the mean lengths of rows, in tokens.
type shape struct{ prompt, output int }

// A result describes a server that was kept busy for a while in virtual time.
type result struct {
	rate      float64       // rows per second after the start phase
	preempted float64       // share of preempted rows
	limit     int           // at the end
	full      time.Duration // time until the batch first reached 95 % of its maximum
}

// run keeps a simulated engine busy for a length of time. It keeps as many rows in
// flight as the window allows, or a fixed number without a window.
func run(t testing.TB, p batching.GPUProfile, seqs int, s shape, w *engine.Window, fixed int, length time.Duration) result {
	t.Helper()
	e := must.Get(batching.New(batching.Config{Profile: p, MaxSeqs: seqs, Seed: 1}))(t)
	random := rand.New(rand.NewPCG(7, 7))
	draw := func(mean int) int { // lognormal with sigma 0.8
		return max(1, min(16*mean, int(float64(mean)*math.Exp(0.8*random.NormFloat64()-0.32))))
	}
	start := time.Unix(0, 0)
	var now, reading time.Duration
	inFlight, done := 0, 0
	var tokens int64
	expected := int64(s.prompt + s.output)
	perSecond := make([]int, int(length/time.Second)+2)
	var batch []int          // rows in the batch at each step
	var when []time.Duration // start of each step
	for now < length {
		if w != nil && now >= reading {
			l := e.Load()
			w.RecordGauges(engine.Gauges{
				Running: int64(l.Running), Waiting: int64(l.Waiting), KVUse: float64(l.KVUsed) / float64(l.KVBlocks),
				Preemptions: e.Stats().Preemptions, KVTokens: int64(l.KVBlocks) * batching.BlockTokens,
			}, inFlight, tokens, start.Add(now))
			reading = now + w.GaugeInterval(inFlight)
		}
		limit := fixed
		if w != nil {
			limit = w.RowLimit(false)
		}
		for inFlight < limit && (w == nil || w.TokenLimit() == 0 || inFlight < 64 || tokens+expected <= w.TokenLimit()) {
			must.Succeed(t, e.Add(now, &batching.Request{PromptTokens: draw(s.prompt), OutputTokens: draw(s.output)}))
			inFlight++
			tokens += expected
		}
		took, finished := e.Step(now)
		batch, when = append(batch, e.Load().Running), append(when, now)
		now += took
		for _, r := range finished {
			inFlight--
			tokens -= expected
			done++
			perSecond[int(now/time.Second)]++
			if w != nil {
				w.RecordAnswers(1, int64(r.PromptTokens), int64(r.OutputTokens), inFlight+1, start.Add(now))
			}
		}
	}
	var d result
	n := len(perSecond) - 2
	for _, rows := range perSecond[n/3 : n] {
		d.rate += float64(rows)
	}
	d.rate /= float64(n - n/3)
	most := slices.Max(batch)
	d.full = when[slices.IndexFunc(batch, func(n int) bool { return n*20 >= most*19 })]
	d.preempted = float64(e.Stats().Preemptions) / float64(done)
	if w != nil {
		d.limit = w.RowLimit(false)
	}
	return d
}

// The window has no information about the server, and still drives it as well as the
// best fixed number of rows in flight, whether slots, the KV cache or the front end
// limit the server.
func TestWindowMatchesTheBestFixedLimit(t *testing.T) {
	t.Parallel()
	const length = 6 * time.Minute
	profiles := []string{"llama-3.1-8b/h100", "gpt-oss-20b/h100", "qwen3-235b/h100"}
	if testing.Short() {
		profiles = nil // the code has one goroutine: the race detector has nothing to find and takes minutes
	}
	for _, name := range profiles {
		p := must.Get(batching.FindProfile(name))(t)
		for _, seqs := range []int{256, 1024} {
			for _, s := range []shape{{300, 150}, {4000, 200}, {100, 8}} {
				var best result
				for _, fixed := range []int{64, 192, 288, 640, 1088} {
					if d := run(t, p, seqs, s, nil, fixed, length); d.rate > best.rate {
						best = d
					}
				}
				got := run(t, p, seqs, s, engine.NewWindow(0), 0, length)
				t.Logf("%s, %d slots, %d/%d tokens: %.2f rows/s, %.3f of the best, %.4f preempted, limit %d, full after %v",
					name, seqs, s.prompt, s.output, got.rate, got.rate/best.rate, got.preempted, got.limit, got.full)
				if got.rate < 0.98*best.rate || got.preempted > max(0.01, best.preempted) {
					t.Errorf("%s, %d slots, %d/%d tokens: %.2f rows/s with %.4f preempted, the best fixed number brings %.2f with %.4f",
						name, seqs, s.prompt, s.output, got.rate, got.preempted, best.rate, best.preempted)
				}
			}
		}
	}
}
