package gpu

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill/engine/sim"
	"github.com/rowmill/rowmill/engine/sim/batching"
	"github.com/rowmill/rowmill/internal/must"
)

// simulated answers chats like the simulator's engine, with a fixed delay and without a
// network, so that tests run in virtual time.
type simulated struct {
	pace sim.LatencyModel
	late time.Duration
	more int // tokens per word
}

func (s simulated) RoundTrip(r *http.Request) (*http.Response, error) {
	var asked struct {
		MaxTokens int `json:"max_tokens"`
		Messages  []struct{ Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		return nil, err
	}
	text := asked.Messages[0].Content
	work := sim.EngineRequest{Prompt: []byte(text), PromptTokens: s.more * len(strings.Fields(text)), OutputTokens: asked.MaxTokens}
	run, err := s.pace.Start(work)
	if err != nil {
		return nil, err
	}
	defer run.End()
	if _, err := run.Wait(r.Context(), work.OutputTokens); err != nil {
		return nil, err
	}
	time.Sleep(s.late)
	body := fmt.Appendf(nil, `{"usage": {"prompt_tokens": %d, "completion_tokens": %d}}`, work.PromptTokens, work.OutputTokens)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body))}, nil
}

// Measured from outside, the simulator's steps take the time of its formula, whatever a
// request costs otherwise.
func TestStopwatchOnTheSimulator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		profile := must.Get(batching.FindProfile("llama-3.1-8b/h100"))(t)
		pace := must.Get(sim.NewBatchingEngine(batching.Config{Profile: profile, NoJitter: true}))(t)
		w := Stopwatch{
			Client: &http.Client{Transport: simulated{pace, 7 * time.Millisecond, 1}}, URL: "http://simulated", Shape: Llama8B,
			Profile: &profile, Rounds: 1, Random: rand.New(rand.NewPCG(1, 1)), Few: 128, Many: 256,
		}
		near := func(s Step, err error) Step {
			t.Helper()
			must.Succeed(t, err)
			off, ok := s.Error()
			t.Logf("%v: %.3f ms measured, %.3f ms by the formula, %+.1f %%", s, s.Measured, s.Simulated, 100*off)
			if !ok || math.Abs(off) > 0.02 {
				t.Errorf("%v: %.3f ms measured, %.3f ms by the formula", s, s.Measured, s.Simulated)
			}
			return s
		}
		one := near(w.Decode(t.Context(), 1, 300))
		for _, sequences := range []int{8, 32, 128, 256} {
			near(w.Decode(t.Context(), sequences, 300))
		}
		for _, prompt := range []int{300, 2000} {
			near(w.Prefill(t.Context(), prompt, time.Duration(one.Measured*1e6)))
		}
	})
}

// The server's count of prompt tokens is used, and it must be the same in each round.
func TestStopwatchGoesByTheServersCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		profile := must.Get(batching.FindProfile("llama-3.1-8b/h100"))(t)
		pace := must.Get(sim.NewBatchingEngine(batching.Config{Profile: profile, NoJitter: true}))(t)
		w := Stopwatch{
			Client: &http.Client{Transport: simulated{pace, 0, 2}}, URL: "http://simulated", Shape: Tiny,
			Profile: &profile, Rounds: 3, Random: rand.New(rand.NewPCG(1, 1)), Few: 4, Many: 8,
		}
		decode, err := w.Decode(t.Context(), 1, 100)
		if err != nil || decode.Prompt != 200 {
			t.Errorf("a prompt of %d tokens (%v), want 200", decode.Prompt, err)
		}
		prefill, err := w.Prefill(t.Context(), 100, 0)
		if err != nil || prefill.Prompt != 200 {
			t.Errorf("a prompt of %d tokens (%v), want 200", prefill.Prompt, err)
		}
	})
}

// An answer with a wrong length is an error.
func TestStopwatchNeedsLengths(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ usage, want string }{
		{`{"prompt_tokens": 3, "completion_tokens": 1}`, "has 1 tokens, want 2"},
		{`{"prompt_tokens": 0, "completion_tokens": 2}`, "does not report the tokens of a prompt"},
	} {
		w := Stopwatch{
			Client: &http.Client{Transport: said(`{"usage": ` + test.usage + `}`)}, URL: "http://said", Shape: Tiny,
			Rounds: 1, Random: rand.New(rand.NewPCG(1, 1)), Few: 2, Many: 4,
		}
		if _, err := w.Decode(t.Context(), 1, 3); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", test.usage, err, test.want)
		}
	}
}

type said string

func (s said) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(s)))}, nil
}

func TestStepWithoutProfileHasNoError(t *testing.T) {
	t.Parallel()
	if _, ok := (Step{Measured: 3}).Error(); ok {
		t.Error("an error without anything to compare with")
	}
}
