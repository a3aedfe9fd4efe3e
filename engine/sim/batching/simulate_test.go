package batching

import (
	"math"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// uniform is a source of n rows of the same lengths for Simulate.
func uniform(n, prompt, output int) func(int) *Request {
	rows := make([]Request, n)
	return func(int) *Request {
		if len(rows) == 0 {
			return nil
		}
		r := &rows[0]
		rows = rows[1:]
		r.PromptTokens, r.OutputTokens = prompt, output
		return r
	}
}

// TestPredictions holds the throughputs that the model was published with: 300
// prompt and 150 output tokens, 256 sequences. They are rounded, and exclude
// filling and draining; 2 % covers both for 20,000 rows.
func TestPredictions(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]float64{ // rows/s
		"llama-3.1-8b/h100": 53.4, "llama-3.1-8b/h200": 55.9,
		"gpt-oss-20b/h100": 63, "gpt-oss-20b/h200": 64,
		"qwen3-235b/h100": 32.5, "qwen3-235b/h200": 37,
	} {
		const rows = 20000
		result := must.Get(Simulate(Config{Profile: lookup(t, name)}, 1, uniform(rows, 300, 150), 256))(t)
		got := rows / result.Makespan.Seconds()
		t.Logf("%s: %.2f rows/s, published %.1f", name, got, want)
		if math.Abs(got/want-1) > 0.02 {
			t.Errorf("%s: %.2f rows/s, want %.1f", name, got, want)
		}
		if result.Finished != rows || result.Computed != rows*300 || result.Generated != rows*150 || result.Preemptions != 0 || result.Cached != 0 {
			t.Errorf("%s: %+v", name, result)
		}
	}
}

// TestFewInFlight holds a simulated finding: 64 rows in flight instead of 256
// cost 1.5 times the makespan.
func TestFewInFlight(t *testing.T) {
	t.Parallel()
	c := Config{Profile: lookup(t, "llama-3.1-8b/h100")}
	var spans [2]time.Duration
	for i, window := range []int{64, 256} {
		result := must.Get(Simulate(c, 2, uniform(12000, 300, 150), window))(t)
		spans[i] = result.Makespan
	}
	if ratio := float64(spans[0]) / float64(spans[1]); ratio < 1.4 || ratio > 1.6 {
		t.Errorf("64 in flight cost %.2f times the makespan of 256", ratio)
	}
}

// TestSimulateIsDeterministic also checks that the seed matters.
func TestSimulateIsDeterministic(t *testing.T) {
	t.Parallel()
	run := func(seed int64) Result {
		c := Config{Profile: lookup(t, "gpt-oss-20b/h100"), Seed: seed, MaxSeqs: 32}
		result := must.Get(Simulate(c, 3, uniform(1000, 100, 40), 40))(t)
		return result
	}
	if first, again := run(1), run(1); first != again {
		t.Errorf("the same seed gives %+v and %+v", first, again)
	}
	if run(1).Makespan == run(2).Makespan {
		t.Error("the seed changes nothing")
	}
}

// TestSimulateHandsRowsOutInTurn checks the shares of equal engines.
func TestSimulateHandsRowsOutInTurn(t *testing.T) {
	t.Parallel()
	c := Config{Profile: lookup(t, "llama-3.1-8b/h100"), MaxSeqs: 16, NoJitter: true}
	c.Profile.FrontEnd = 0
	var given [4]int
	var order []int
	source := uniform(4*8, 100, 50)
	result := must.Get(Simulate(c, 4, func(engine int) *Request {
		r := source(engine)
		if r != nil {
			given[engine]++
			order = append(order, engine)
		}
		return r
	}, 8))(t)
	if given != [4]int{8, 8, 8, 8} || order[0] != 0 || order[1] != 1 || order[4] != 0 {
		t.Errorf("rows given: %v in the order %v", given, order)
	}
	if result.Busy != 4*result.Makespan {
		t.Errorf("four engines were busy for %v of %v", result.Busy, result.Makespan)
	}
	if _, err := Simulate(c, 0, source, 1); err == nil {
		t.Error("no engine is an error")
	}
	if _, err := Simulate(c, 1, uniform(1, 1<<30, 1), 1); err == nil {
		t.Error("a row that fits nowhere is an error")
	}
}

// BenchmarkSimulate is the cost of a simulated row.
func BenchmarkSimulate(b *testing.B) {
	c := Config{Profile: lookup(b, "llama-3.1-8b/h100")}
	for _, bench := range []struct {
		name   string
		hashes bool
	}{{"unshared", false}, {"distinct-prompts", true}} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			pool := make([]Request, 256)
			free := make([]*Request, 0, 256)
			for i := range pool {
				pool[i].Prompt = make([]uint64, 0, 18)
				free = append(free, &pool[i])
			}
			e := must.Get(New(c))(b)
			now, serial, done := time.Duration(0), uint64(0), 0
			for b.Loop() {
				for done == 0 { // a step ends 1.7 rows
					for _, r := range free {
						*r = Request{Prompt: r.Prompt[:0], PromptTokens: 300, OutputTokens: 150, blocks: r.blocks}
						if bench.hashes {
							for range 18 {
								serial++
								r.Prompt = append(r.Prompt, mixHash(serial, 0x9e3779b97f4a7c15))
							}
						}
						must.Succeed(b, e.Add(now, r))
					}
					took, finished := e.Step(now)
					now += took
					free = append(free[:0], finished...)
					done += len(finished)
				}
				done--
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
