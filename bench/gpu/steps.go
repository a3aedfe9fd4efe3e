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

	"github.com/rowmill/rowmill/engine/sim/batching"
)

// A Step is the measured time of a kind of step on a real server, and the simulator's
// time. Simulated is 0 if there is no profile of the model on this machine.
type Step struct {
	Batch     int     `json:"batch"`  // sequences that get a token; 0 for a prefill step
	Prompt    int     `json:"prompt"` // tokens of each prompt
	Context   int64   `json:"context"`
	Measured  float64 `json:"measured_ms"` // median
	Least     float64 `json:"least_ms"`
	Greatest  float64 `json:"greatest_ms"`
	Simulated float64 `json:"simulated_ms"`
}

// Error returns the simulator's error as a share of the measured time; false without a
// simulated time.
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

// A Stopwatch measures the step times of any server from outside, by whole requests.
// The time of n tokens is the difference between long and short answers that start at
// the same time. Costs per request are in both and cancel out.
type Stopwatch struct {
	Client  *http.Client
	URL     string // such as http://127.0.0.1:8000
	Model   string // the server's name for it
	Shape   Shape
	Profile *batching.GPUProfile // profile of the simulator; may be nil
	Rounds  int                  // rounds per measurement; the median counts
	Random  *rand.Rand
	Few     int // tokens of short answers: all start before the first ends
	Many    int // tokens of long answers
}

// Decode measures a decode step for a number of sequences with prompts of a length.
func (w Stopwatch) Decode(ctx context.Context, sequences, prompt int) (Step, error) {
	var times []float64
	found := 0 // tokens per prompt
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
	s := w.step(times, batching.StepWork{Decoding: sequences, Context: length})
	s.Batch, s.Prompt, s.Context = sequences, found, length
	return s, nil
}

// Prefill measures a step that computes one prompt. It subtracts the time of a request
// with a one-token prompt, so that the costs per request cancel out, and adds alone:
// the time of the subtracted request's own step, a step with one sequence.
func (w Stopwatch) Prefill(ctx context.Context, prompt int, alone time.Duration) (Step, error) {
	var times []float64
	found := 0 // tokens in the prompt
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
	s := w.step(times, batching.StepWork{Prefill: found, Attention: float64(found) * float64(found) / 2})
	s.Prompt, s.Context = found, int64(found)
	return s, nil
}

func (w Stopwatch) step(times []float64, batch batching.StepWork) Step {
	slices.Sort(times)
	s := Step{Measured: 1e3 * times[len(times)/2], Least: 1e3 * times[0], Greatest: 1e3 * times[len(times)-1]}
	if w.Profile != nil {
		s.Simulated = 1e3 * w.Profile.StepTime(batch).Seconds()
	}
	return s
}

// burst sends requests at once. It returns the time until all are answered, and the
// server's token count of a prompt.
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

// ask sends a request and returns the server's token count of the prompt.
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
		return 0, errors.New("the server does not report the tokens of a prompt")
	}
	if reply.Usage.Answer != answer {
		return 0, fmt.Errorf("the answer has %d tokens, want %d by ignore_eos: steps cannot be measured", reply.Usage.Answer, answer)
	}
	return reply.Usage.Prompt, nil
}
