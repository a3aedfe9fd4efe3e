package sim

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// assemble puts the deltas of a stream together.
func assemble(t *testing.T, chunks []completion) (reasoning, content, finish string, logprobs []entry) {
	t.Helper()
	for i, chunk := range chunks {
		if len(chunk.Choices) == 0 {
			continue
		}
		choice := chunk.Choices[0]
		if (i == 0) != (choice.Delta.Role == "assistant") {
			t.Errorf("chunk %d has the role %q", i, choice.Delta.Role)
		}
		reasoning += choice.Delta.Reasoning
		content += choice.Delta.Content
		if choice.Logprobs != nil {
			logprobs = append(logprobs, choice.Logprobs.Content...)
		}
		if choice.Finish != nil {
			finish = *choice.Finish
		}
	}
	return reasoning, content, finish, logprobs
}

func TestStreamEqualsWholeAnswer(t *testing.T) {
	t.Parallel()
	for _, profile := range []LatencyProfile{InstantProfile(), {TimeToFirstToken: time.Millisecond, TimePerToken: 50 * time.Microsecond}} {
		c := start(t, Config{Profile: profile})
		for _, model := range []string{"plain", "thinker"} {
			for _, fields := range [][]any{
				{},
				{"max_tokens", 1},
				{"max_tokens", 17},
				{"stop", "e"},
				{"stop", ".", "include_stop_str_in_output", true},
				{"response_format", map[string]any{"type": "json_object"}},
				{"logprobs", true, "top_logprobs", 1},
				{"ignore_eos", true, "max_tokens", 3000},
			} {
				whole := c.complete(body(model, "stream", fields...))
				r := c.must("POST", chatPath, body(model, "stream", append(fields, "stream", true, "stream_options", map[string]any{"include_usage": true})...))
				if kind := r.header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
					t.Fatalf("content type %q", kind)
				}
				chunks, done := events(t, r.body)
				if !done {
					t.Errorf("%v: no [DONE]", fields)
				}
				reasoning, content, finish, logprobs := assemble(t, chunks)
				if reasoning != whole.Choices[0].Message.Reasoning || content != whole.content() || finish != whole.finish() {
					t.Errorf("%s %v: stream gives %q %q %s, the whole is %+v", model, fields, reasoning, content, finish, whole.Choices[0])
				}
				if list := whole.Choices[0].Logprobs; list != nil {
					if len(list.Content) != len(logprobs) {
						t.Fatalf("%d log probabilities, want %d", len(logprobs), len(list.Content))
					}
					for i, e := range list.Content {
						if e.Token != logprobs[i].Token || e.Logprob != logprobs[i].Logprob {
							t.Fatalf("log probability %d is %+v, want %+v", i, logprobs[i], e)
						}
					}
				}
				last := chunks[len(chunks)-1]
				if len(last.Choices) != 0 || last.Usage == nil || *last.Usage != *whole.Usage {
					t.Errorf("%v: last chunk %+v, want usage %+v", fields, last, whole.Usage)
				}
			}
		}
		without, _ := events(t, c.must("POST", chatPath, body("plain", "x", "stream", true)).body)
		for _, chunk := range without {
			if chunk.Usage != nil {
				t.Error("usage came unasked")
			}
		}
	}
}

func TestStreamComesInSteps(t *testing.T) {
	t.Parallel()
	c := start(t, Config{Profile: LatencyProfile{TimePerToken: 2 * time.Millisecond}})
	chunks, _ := events(t, c.must("POST", chatPath, body("plain", "[[sim:tokens=50]]", "stream", true)).body)
	if len(chunks) < 5 || len(chunks) > 50 {
		t.Errorf("%d chunks for 50 tokens in 100 ms", len(chunks))
	}
}

func TestStreamFirstTokenIsNotHeldBack(t *testing.T) {
	t.Parallel()
	c := start(t, Config{Profile: LatencyProfile{TimePerToken: time.Hour}})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req := must.Get(http.NewRequestWithContext(ctx, "POST", c.base+chatPath, strings.NewReader(body("plain", "x", "stream", true))))(t)
	res, err := c.http.Do(req)
	must.Succeed(t, err)
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	for range 3 { // role, blank, first token; the second comes in an hour
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
	}
	if !strings.Contains(lines.Text(), `"content":"["`) {
		t.Errorf("got %s", lines.Text())
	}
	cancel()
	eventually(t, "the slot of the cancelled stream is free", func() bool { return c.sim.Load().Running == 0 })
}
