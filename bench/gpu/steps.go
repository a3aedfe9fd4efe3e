package gpu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rowmill/rowmill/sim/batching"
)

// A Step is the time of one kind of step on a real server, beside that of the
// simulator. Where there is no profile of the model on this machine Simulated is
// 0.
type Step struct {
	Batch     int     `json:"batch"`  // sequences that get a token; 0 where a prompt is computed
	Prompt    int     `json:"prompt"` // tokens of each prompt
	Context   int64   `json:"context"`
	Measured  float64 `json:"measured_ms"` // the median
	Least     float64 `json:"least_ms"`
	Greatest  float64 `json:"greatest_ms"`
	Simulated float64 `json:"simulated_ms"`
}

// Error is how far the simulator is off, as a share of what was measured;
// false where there is nothing to compare.
func (s Step) Error() (float64, bool) {
	if s.Simulated == 0 || s.Measured <= 0 {
		return 0, false
	}
	return s.Simulated/s.Measured - 1, true
}

func (s Step) String() string {
	if s.Batch == 0 {
		return fmt.Sprintf("a prompt of %d tokens", s.Prompt)
	}
	return fmt.Sprintf("one token of each of %d sequences", s.Batch)
}

// A Stopwatch measures steps of a server from outside, by whole requests, which
// any server takes: how long n tokens take is the difference between answers of
// many tokens and of fewer, all sent at once, so that what a request costs
// besides its steps is in both and falls out.
type Stopwatch struct {
	Client  *http.Client
	URL     string // such as http://127.0.0.1:8000
	Model   string // the server's name for it
	Shape   Shape
	Profile *batching.Profile // what the simulator says; nil for nothing
	Rounds  int               // of each measurement; the median counts
	Random  *rand.Rand
	Few     int // tokens of the shorter answers: all have begun before the first ends
	Many    int // of the longer ones
}

// Decode measures a step of so many sequences after prompts of that length.
func (w Stopwatch) Decode(ctx context.Context, sequences, prompt int) (Step, error) {
	var times []float64
	found := 0 // tokens of a prompt
	for range w.Rounds {
		few, _, err := w.burst(ctx, sequences, prompt, w.Few)
		if err != nil {
			return Step{}, err
		}
		var many time.Duration
		many, found, err = w.burst(ctx, sequences, prompt, w.Many)
		if err != nil {
			return Step{}, err
		}
		times = append(times, (many-few).Seconds()/float64(w.Many-w.Few))
	}
	length := int64(sequences) * int64(found+(w.Few+w.Many)/2)
	s := w.step(times, batching.Batch{Decoding: sequences, Context: length})
	s.Batch, s.Prompt, s.Context = sequences, found, length
	return s, nil
}

// Prefill measures a step that computes one prompt. What a request costs besides
// falls out against one of a single token, whose own step is about alone, the
// time of a step of one sequence.
func (w Stopwatch) Prefill(ctx context.Context, prompt int, alone time.Duration) (Step, error) {
	var times []float64
	found := 0 // tokens of the prompt
	for range w.Rounds {
		short, _, err := w.burst(ctx, 1, 1, 1)
		if err != nil {
			return Step{}, err
		}
		var long time.Duration
		long, found, err = w.burst(ctx, 1, prompt, 1)
		if err != nil {
			return Step{}, err
		}
		times = append(times, (long - short + alone).Seconds())
	}
	s := w.step(times, batching.Batch{Prefill: found, Attention: float64(found) * float64(found) / 2})
	s.Prompt, s.Context = found, int64(found)
	return s, nil
}

func (w Stopwatch) step(times []float64, batch batching.Batch) Step {
	slices.Sort(times)
	s := Step{Measured: 1e3 * times[len(times)/2], Least: 1e3 * times[0], Greatest: 1e3 * times[len(times)-1]}
	if w.Profile != nil {
		s.Simulated = 1e3 * w.Profile.StepTime(batch).Seconds()
	}
	return s
}

// burst sends requests at once and returns how long it took until all were
// answered, and how many tokens the server found in a prompt.
func (w Stopwatch) burst(ctx context.Context, requests, prompt, answer int) (time.Duration, int, error) {
	bodies := make([][]byte, requests)
	for i := range bodies {
		var err error
		bodies[i], err = json.Marshal(map[string]any{
			"model": w.Model, "max_tokens": answer, "ignore_eos": true, "temperature": 1,
			"messages": []any{map[string]string{"role": "user", "content": string(w.Shape.AppendPrompt(nil, w.Random, prompt))}},
		})
		if err != nil {
			return 0, 0, fmt.Errorf("encode request: %w", err)
		}
	}
	found := make([]int, requests)
	group, ctx := errgroup.WithContext(ctx)
	begun := time.Now()
	for i, body := range bodies {
		group.Go(func() (err error) {
			found[i], err = w.ask(ctx, body, answer)
			return err
		})
	}
	err := group.Wait()
	took := time.Since(begun)
	return took, slices.Max(found), err
}

// ask sends one request and returns how many tokens the prompt has for the
// server.
func (w Stopwatch) ask(ctx context.Context, body []byte, answer int) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := w.Client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask the server: %w", err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, fmt.Errorf("read answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the server answers %s: %.300s", response.Status, data)
	}
	var reply struct {
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			Answer int `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(data, &reply); err != nil {
		return 0, fmt.Errorf("read answer: %w", err)
	}
	if reply.Usage.Prompt < 1 {
		return 0, errors.New("the server does not say how many tokens a prompt has")
	}
	if reply.Usage.Answer != answer {
		return 0, fmt.Errorf("the answer has %d tokens instead of the %d that ignore_eos asks for: no step can be measured so", reply.Usage.Answer, answer)
	}
	return reply.Usage.Prompt, nil
}
