package batching

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// TestStepTime compares with the formula computed apart from this package, in
// microseconds: one token of one sequence; 256 decoding sequences of 375
// tokens; a step full of one prompt; 200 sequences beside 1000 prompt tokens
// whose 24 first were computed before.
func TestStepTime(t *testing.T) {
	t.Parallel()
	batches := [4]StepWork{
		{Decoding: 1, Context: 300},
		{Decoding: 256, Context: 96000},
		{Prefill: 8192, Attention: 8192 * 8192 / 2},
		{Decoding: 200, Prefill: 1000, Attention: 1000 * (24 + 500), Context: 75000},
	}
	for name, want := range map[string][4]float64{
		"llama-3.1-8b/h100": {7166.7, 16821.6, 278802.4, 43535.2},
		"llama-3.1-8b/h200": {5458.5, 15403.3, 278802.4, 42427.1},
		"gpt-oss-20b/h100":  {2426.5, 12616.8, 257430.9, 38587.6},
		"gpt-oss-20b/h200":  {2150.3, 12350.9, 257430.9, 38379.9},
		"qwen3-235b/h100":   {6226.5, 30998.3, 402097.0, 59445.7},
		"qwen3-235b/h200":   {5636.4, 24244.9, 402097.0, 59038.9},
	} {
		p := lookup(t, name)
		for i, b := range batches {
			if got := float64(p.StepTime(b).Nanoseconds()) / 1000; math.Abs(got-want[i]) > 0.06 {
				t.Errorf("%s, batch %d: %.1f µs, want %.1f", name, i, got, want[i])
			}
		}
	}
}

func lookup(t testing.TB, name string) GPUProfile {
	t.Helper()
	p := must.Get(FindProfile(name))(t)
	return p
}

func TestKVCapacity(t *testing.T) {
	t.Parallel()
	for name, tokens := range map[string]float64{ // rounded to three digits
		"llama-3.1-8b/h100": 422e3, "llama-3.1-8b/h200": 801e3,
		"gpt-oss-20b/h100": 1.13e6, "gpt-oss-20b/h200": 2.14e6,
		"qwen3-235b/h100": 252e3, "qwen3-235b/h200": 1.28e6,
	} {
		if got := float64(lookup(t, name).KVBlocks() * BlockTokens); math.Abs(got/tokens-1) > 0.005 {
			t.Errorf("%s: %.0f tokens of KV cache, want %.0f", name, got, tokens)
		}
	}
}

func TestProfilesAreValid(t *testing.T) {
	t.Parallel()
	if n := len(Profiles()); n != 6 {
		t.Errorf("%d profiles", n)
	}
	for _, p := range Profiles() {
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
	_, err := FindProfile("llama-3.1-8b")
	if err == nil {
		t.Fatal("half a name was found")
	}
	for _, p := range Profiles() {
		if !strings.Contains(err.Error(), p.Name) {
			t.Errorf("%v does not list %s", err, p.Name)
		}
	}
}

func TestFaster(t *testing.T) {
	t.Parallel()
	p := lookup(t, "qwen3-235b/h100")
	fast := p.Faster(100)
	b := StepWork{Decoding: 200, Prefill: 1000, Attention: 524000, Context: 75000}
	if ratio := float64(p.StepTime(b)) / float64(fast.StepTime(b)); math.Abs(ratio-100) > 0.01 {
		t.Errorf("%.3f times as fast", ratio)
	}
	if fast.FrontEnd != 30*time.Microsecond || fast.KVBlocks() != p.KVBlocks() {
		t.Errorf("front end %v, %d blocks", fast.FrontEnd, fast.KVBlocks())
	}
}

func TestInvalidConfigs(t *testing.T) {
	t.Parallel()
	good := lookup(t, "gpt-oss-20b/h100")
	for reason, change := range map[string]func(*Config){
		"MaxSeqs is -1":      func(c *Config) { c.MaxSeqs = -1 },
		"MaxSeqs is 1025":    func(c *Config) { c.MaxSeqs = 1025 },
		"room for 100":       func(c *Config) { c.Profile.MaxBatchedTokens = 100 },
		"QueueLimit":         func(c *Config) { c.QueueLimit = -1 },
		"MFU is NaN":         func(c *Config) { c.Profile.MFU = math.NaN() },
		"Bandwidth is 0":     func(c *Config) { c.Profile.Bandwidth = 0 },
		"ExpertsUsed is 33":  func(c *Config) { c.Profile.ExpertsUsed = 33 },
		"Link is 0":          func(c *Config) { c.Profile.GPUs, c.Profile.Link = 2, 0 },
		"cannot be negative": func(c *Config) { c.Profile.FrontEnd = -1 },
		"does not hold":      func(c *Config) { c.Profile.Memory = 10e9 },
	} {
		c := Config{Profile: good}
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("error %v does not say %q", err, reason)
		}
	}
	full := good
	full.MaxBatchedTokens = 200
	for _, c := range []Config{{Profile: good, MaxSeqs: 1}, {Profile: good, MaxSeqs: LargestMaxSeqs}, {Profile: full, MaxSeqs: 200}} {
		if _, err := New(c); err != nil {
			t.Errorf("MaxSeqs %d of %d tokens is refused: %v", c.MaxSeqs, c.Profile.MaxBatchedTokens, err)
		}
	}
}
