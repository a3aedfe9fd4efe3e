package sim

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
)

func TestCompletion(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	got := c.complete(body("plain", "Say something nice."))
	text := got.content()
	if !strings.HasPrefix(text, "[simulated] ") || !strings.HasSuffix(text, ".") {
		t.Errorf("text %q is not marked as simulated, or is not whole", text)
	}
	if got.Model != "plain" || got.finish() != "stop" || !got.Simulated || got.Choices[0].Message.Role != "assistant" || got.ID == "" {
		t.Errorf("got %+v", got)
	}
	if n := c.count(text); got.Usage.Completion != n {
		t.Errorf("completion_tokens %d, /tokenize counts %d", got.Usage.Completion, n)
	}
	if n := c.count("Say something nice.") + messageTokens + promptTokens; got.Usage.Prompt != n {
		t.Errorf("prompt_tokens %d, want %d", got.Usage.Prompt, n)
	}
	if got.Usage.Total != got.Usage.Prompt+got.Usage.Completion {
		t.Errorf("total_tokens %d", got.Usage.Total)
	}
	if got.Choices[0].Logprobs != nil {
		t.Error("logprobs came unasked")
	}
}

func TestEveryResponseSaysSimulated(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	for _, request := range [][3]string{
		{"POST", chatPath, body("plain", "x")},
		{"POST", chatPath, body("plain", "x", "stream", true)},
		{"POST", chatPath, "{"},
		{"POST", "/v1/embeddings", `{"model":"embedder","input":"x"}`},
		{"GET", "/v1/models", ""},
		{"GET", "/health", ""},
		{"GET", "/version", ""},
		{"GET", "/metrics", ""},
		{"GET", "/sim/faults", ""},
		{"GET", "/nowhere", ""},
		{"DELETE", "/v1/models", ""},
		{"POST", chatPath, body("plain", "[[sim:fail=500]]")},
	} {
		r := c.must(request[0], request[1], request[2])
		if r.header.Get("Server") != "rowmill-sim" || r.header.Get("X-Simulated") != "true" {
			t.Errorf("%s %s: headers %v", request[0], request[1], r.header)
		}
	}
}

func TestAnswersAreDeterministic(t *testing.T) {
	t.Parallel()
	a, b, other := start(t, Config{Seed: 1}), start(t, Config{Seed: 1}), start(t, Config{Seed: 2})
	text := func(c *client, model, prompt string, fields ...any) string {
		return c.complete(body(model, prompt, fields...)).content()
	}
	base := text(a, "plain", "p")
	same := map[string]string{
		"again":             text(a, "plain", "p"),
		"another server":    text(b, "plain", "p"),
		"the engine's name": text(a, "org/Plain-8B", "p"),
		"greedy with seed":  text(a, "plain", "p", "temperature", 0, "seed", 9),
		"greedy":            text(a, "plain", "p", "temperature", 0.0),
	}
	for what, got := range same {
		if got != base {
			t.Errorf("%s: %q differs from %q", what, got, base)
		}
	}
	different := map[string]string{
		"another prompt":      text(a, "plain", "q"),
		"another seed":        text(a, "plain", "p", "seed", 9),
		"another server seed": text(other, "plain", "p"),
		"another model":       text(a, "thinker", "p", "reasoning_effort", "none"),
	}
	for what, got := range different {
		if got == base {
			t.Errorf("%s gives the same text", what)
		}
	}
	if text(a, "plain", "p", "seed", 9) != text(b, "plain", "p", "seed", 9) {
		t.Error("the same seed gives different texts")
	}
	if text(a, "plain", "p", "seed", 9) == text(a, "plain", "p", "seed", 10) {
		t.Error("different seeds give the same text")
	}
	whole := text(a, "plain", "p")
	for limit := 1; limit < 40; limit++ {
		if cut := text(a, "plain", "p", "max_tokens", limit); !strings.HasPrefix(whole, cut) {
			t.Fatalf("max_tokens %d: %q is no prefix of %q", limit, cut, whole)
		}
	}
}

func TestMaxTokensIsExact(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	for _, field := range []string{"max_tokens", "max_completion_tokens"} {
		for limit := 1; limit <= 60; limit++ {
			got := c.complete(body("plain", "[[sim:tokens=50]]", field, limit))
			want, finish := min(limit, 50), "length"
			if limit >= 50 {
				finish = "stop"
			}
			if got.Usage.Completion != want || got.finish() != finish {
				t.Fatalf("%s %d: %d tokens, %s", field, limit, got.Usage.Completion, got.finish())
			}
			if n := c.count(got.content()); n != want {
				t.Fatalf("%s %d: /tokenize counts %d", field, limit, n)
			}
		}
	}
}

func TestLengths(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	t.Run("lognormal", func(t *testing.T) {
		shorter, sum := 0, 0
		const rows = 400
		for i := range rows {
			n := c.complete(body("plain", fmt.Sprint("row ", i))).Usage.Completion
			sum += n
			if n < 64 { // the median 60 and the rest of a sentence
				shorter++
			}
		}
		if shorter < rows*4/10 || shorter > rows*6/10 || sum < rows*55 || sum > rows*110 {
			t.Errorf("%d of %d are shorter than 64, the mean is %d", shorter, rows, sum/rows)
		}
	})
	t.Run("min_tokens", func(t *testing.T) {
		got := c.complete(body("plain", "x", "min_tokens", 900))
		if n := got.Usage.Completion; n < 900 || n > 930 || got.finish() != "stop" {
			t.Errorf("%d tokens, %s", n, got.finish())
		}
	})
	t.Run("ignore_eos", func(t *testing.T) {
		got := c.complete(body("plain", "x", "ignore_eos", true, "max_tokens", 777))
		if got.Usage.Completion != 777 || got.finish() != "length" {
			t.Errorf("%d tokens, %s", got.Usage.Completion, got.finish())
		}
	})
	t.Run("ignore_eos to the end of the context", func(t *testing.T) {
		got := c.complete(body("plain", "x", "ignore_eos", true))
		if got.Usage.Total != 4096 || got.finish() != "length" {
			t.Errorf("%d tokens, %s", got.Usage.Total, got.finish())
		}
	})
}

func TestStop(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	whole := c.complete(body("plain", "stop here"))
	text := whole.content()
	words := strings.Fields(text)
	word := words[4][:2] // inside a token
	check := func(name string, got completion, want string, reason any) {
		t.Helper()
		if got.content() != want || got.finish() != "stop" || got.Choices[0].StopReason != reason {
			t.Errorf("%s: got %q (%s, %v), want %q", name, got.content(), got.finish(), got.Choices[0].StopReason, want)
		}
	}
	at := strings.Index(text, word)
	check("string", c.complete(body("plain", "stop here", "stop", word)), text[:at], word)
	got := c.complete(body("plain", "stop here", "stop", []string{"never there", word}))
	check("list", got, text[:at], word)
	_, tail, _ := strings.Cut(words[4], word)
	if n := c.count(text[:at] + word + tail); got.Usage.Completion > n {
		t.Errorf("%d tokens generated for a stop within the first %d", got.Usage.Completion, n)
	}
	check("kept", c.complete(body("plain", "stop here", "stop", word, "include_stop_str_in_output", true)), text[:at+len(word)], word)
	dot := strings.Index(text, ".")
	check("earliest wins", c.complete(body("plain", "stop here", "stop", []string{".", word})), text[:min(at, dot)], text[min(at, dot) : min(at, dot)+min(len(word), 2)][:map[bool]int{true: len(word), false: 1}[at < dot]])
	check("empty", c.complete(body("plain", "stop here", "stop", "")), text, nil)
	tokens := c.count(text[:dot+1])
	late := c.complete(body("plain", "stop here", "stop", ".", "min_tokens", tokens+1))
	if len(late.content()) <= dot {
		t.Errorf("min_tokens %d did not hold the stop string back: %q", tokens+1, late.content())
	}
	id := tokenID(".")
	byID := c.complete(body("plain", "stop here", "stop_token_ids", []int{id}))
	if byID.content() != text[:dot+1] || byID.Choices[0].StopReason != float64(id) || byID.Usage.Completion != tokens {
		t.Errorf("stop_token_ids: %q, %v", byID.content(), byID.Choices[0].StopReason)
	}
}

func TestLogprobs(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	for _, model := range []string{"plain", "thinker"} {
		for _, format := range []any{nil, map[string]any{"type": "json_object"}} {
			got := c.complete(body(model, "count", "logprobs", true, "top_logprobs", 1, "response_format", format, "seed", 3))
			message := got.Choices[0].Message
			want := got.content()
			if model == "thinker" {
				want = message.Reasoning + closeThink + want
			}
			list := got.Choices[0].Logprobs.Content
			if len(list) != got.Usage.Completion {
				t.Errorf("%s: %d entries for %d tokens", model, len(list), got.Usage.Completion)
			}
			text, surpassed := "", 0
			for _, e := range list {
				text += e.Token
				if len(e.Top) != 1 {
					t.Fatalf("%d alternatives, want 1", len(e.Top))
				}
				if e.Logprob >= 0 || e.Logprob < -10 || e.Top[0].Logprob < e.Logprob {
					t.Fatalf("entry %+v", e)
				}
				if e.Top[0].Token != e.Token {
					surpassed++
				}
				for i, b := range []byte(e.Token) {
					if e.Bytes[i] != int(b) {
						t.Fatalf("bytes %v of %q", e.Bytes, e.Token)
					}
				}
			}
			if text != want {
				t.Errorf("%s: the tokens spell %q, the answer is %q", model, text, want)
			}
			if surpassed == 0 || surpassed > len(list)/2 {
				t.Errorf("%s: %d of %d tokens were not the likeliest", model, surpassed, len(list))
			}
		}
	}
	for _, e := range c.complete(body("plain", "greedy", "temperature", 0, "logprobs", true, "top_logprobs", 1)).Choices[0].Logprobs.Content {
		if e.Top[0].Token != e.Token {
			t.Errorf("at temperature 0 %q was surpassed by %q", e.Token, e.Top[0].Token)
		}
	}
	for top := range 21 {
		for _, e := range c.complete(body("plain", "x", "logprobs", true, "top_logprobs", top)).Choices[0].Logprobs.Content {
			if len(e.Top) != top {
				t.Fatalf("%d alternatives, want %d", len(e.Top), top)
			}
			for i := 1; i < len(e.Top); i++ {
				if e.Top[i].Logprob > e.Top[i-1].Logprob {
					t.Fatalf("alternatives out of order: %+v", e.Top)
				}
			}
		}
	}
}

func TestReasoning(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	got := c.complete(body("thinker", "think"))
	message := got.Choices[0].Message
	if !strings.HasPrefix(message.Reasoning, "[simulated] ") || !strings.HasPrefix(got.content(), "[simulated] ") {
		t.Errorf("reasoning %q, content %q", message.Reasoning, got.content())
	}
	if n := c.count(message.Reasoning); got.Usage.Details.Reasoning != n || got.Usage.Completion != n+1+c.count(got.content()) {
		t.Errorf("usage %+v for %d tokens of reasoning", got.Usage, n)
	}
	cut := c.complete(body("thinker", "think", "max_tokens", 5))
	if cut.Choices[0].Message.Content != nil || cut.finish() != "length" || !strings.HasPrefix(message.Reasoning, cut.Choices[0].Message.Reasoning) {
		t.Errorf("cut while thinking: %+v", cut.Choices[0])
	}
	end := got.Usage.Details.Reasoning + 1
	closed := c.complete(body("thinker", "think", "max_tokens", end))
	if closed.Choices[0].Message.Content == nil || closed.content() != "" || closed.finish() != "length" || closed.Choices[0].Message.Reasoning != message.Reasoning {
		t.Errorf("cut behind </think>: %+v", closed.Choices[0])
	}
	for name, fields := range map[string][]any{
		"enable_thinking":  {"chat_template_kwargs", map[string]any{"enable_thinking": false}},
		"thinking":         {"chat_template_kwargs", map[string]any{"thinking": false}},
		"reasoning_effort": {"reasoning_effort", "none"},
	} {
		off := c.complete(body("thinker", "think", fields...))
		if off.Choices[0].Message.Reasoning != "" || off.content() == "" {
			t.Errorf("%s does not switch reasoning off: %+v", name, off.Choices[0].Message)
		}
	}
	if on := c.complete(body("plain", "x", "chat_template_kwargs", map[string]any{"enable_thinking": true})); on.Choices[0].Message.Reasoning != "" {
		t.Error("a model without reasoning reasons")
	}
	stopped := c.complete(body("thinker", "think", "stop", message.Reasoning[12:20]))
	if stopped.Choices[0].Message.Content != nil || stopped.finish() != "stop" || stopped.Choices[0].Message.Reasoning != message.Reasoning[:12] {
		t.Errorf("stopped while thinking: %+v", stopped.Choices[0])
	}
}

func TestSharedName(t *testing.T) {
	t.Parallel()
	c := start(t, Config{Models: []rowmill.Model{
		{ID: "q", Kind: rowmill.KindGeneration, ContextLength: 2000, EngineNames: []string{"org/Q"}},
		{ID: "q-thinking", Kind: rowmill.KindReasoning, ContextLength: 1000, EngineNames: []string{"org/Q"}},
	}})
	if c.complete(body("org/Q", "x")).Choices[0].Message.Reasoning == "" {
		t.Error("the shared name does not reason by default")
	}
	off := body("org/Q", "x", "chat_template_kwargs", map[string]any{"enable_thinking": false})
	if c.complete(off).Choices[0].Message.Reasoning != "" {
		t.Error("the shared name reasons although told not to")
	}
	c.refused(chatPath, body("org/Q", "x", "max_tokens", 1000), 400)
	c.complete(body("q", "x", "max_tokens", 1000))
}

func TestSchema(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	schema := json.RawMessage(`{"type":"object","properties":{"label":{"enum":["a","b"]},"score":{"type":"integer","minimum":1,"maximum":5}},"required":["label","score"],"additionalProperties":false}`)
	format := map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "output", "strict": true, "schema": schema}}
	for _, model := range []string{"plain", "thinker"} {
		seen := map[string]bool{}
		for seed := range 20 {
			got := c.complete(body(model, "classify", "response_format", format, "seed", seed))
			value := decode[struct {
				Label string `json:"label"`
				Score int    `json:"score"`
			}](t, []byte(got.content()))
			if value.Label != "a" && value.Label != "b" || value.Score < 1 || value.Score > 5 {
				t.Fatalf("content %q", got.content())
			}
			seen[got.content()] = true
			if model == "plain" && c.count(got.content()) != got.Usage.Completion {
				t.Fatalf("completion_tokens %d for %q", got.Usage.Completion, got.content())
			}
		}
		if len(seen) < 3 {
			t.Errorf("20 seeds give only %d values", len(seen))
		}
	}
	cut := c.complete(body("plain", "classify", "response_format", format, "max_tokens", 5))
	if json.Valid([]byte(cut.content())) || cut.finish() != "length" || cut.Usage.Completion != 5 {
		t.Errorf("cut: %q, %s", cut.content(), cut.finish())
	}
	object := c.complete(body("plain", "x", "response_format", map[string]any{"type": "json_object"}))
	decode[map[string]any](t, []byte(object.content()))
	text := c.complete(body("plain", "x", "response_format", map[string]any{"type": "text"}))
	if !strings.HasPrefix(text.content(), "[simulated]") {
		t.Errorf("text: %q", text.content())
	}
}

func TestStructuredOutputs(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	for _, rule := range []struct {
		form  map[string]any
		match string
	}{
		{map[string]any{"choice": []string{"yes", "no \"way\""}}, `^(yes|no "way")$`},
		{map[string]any{"regex": `[a-f]{2,5}-\d{4}|none`}, `^([a-f]{2,5}-\d{4}|none)$`},
	} {
		for _, model := range []string{"plain", "thinker"} {
			seen := map[string]bool{}
			for seed := range 20 {
				got := c.complete(body(model, "classify", "structured_outputs", rule.form, "seed", seed))
				if !regexp.MustCompile(rule.match).MatchString(got.content()) || got.finish() != "stop" {
					t.Fatalf("%v: content %q, finish %s", rule.form, got.content(), got.finish())
				}
				seen[got.content()] = true
			}
			if len(seen) < 2 {
				t.Errorf("%v: 20 seeds give only %d values", rule.form, len(seen))
			}
		}
	}
	cut := c.complete(body("plain", "x", "structured_outputs", map[string]any{"regex": "[a-z ]{50,60}"}, "max_tokens", 2))
	if cut.finish() != "length" || cut.Usage.Completion != 2 {
		t.Errorf("cut: %q, %s", cut.content(), cut.finish())
	}
	violating := c.complete(body("plain", "[[sim:violate]]", "structured_outputs", map[string]any{"choice": []string{"a"}}))
	if violating.content() == "a" {
		t.Error("a violation conforms")
	}
}

func TestSchemaRefusals(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	schema := func(text string) any {
		return map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "o", "schema": json.RawMessage(text)}}
	}
	for reason, format := range map[string]any{
		"endless nesting":              schema(`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`),
		"minimum":                      schema(`{"type":"integer","minimum":2,"maximum":1}`),
		"compile schema":               schema(`{"type":"strange"}`),
		"name is required":             map[string]any{"type": "json_schema", "json_schema": map[string]any{"schema": true}},
		"schema is required":           map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "o"}},
		"json_schema is required":      map[string]any{"type": "json_schema"},
		"type must be one of":          map[string]any{"type": "yaml"},
		"Input should be an object":    "json",
		"references within the schema": schema(`{"$ref":"https://example.com/x"}`),
	} {
		p := c.refused(chatPath, body("plain", "x", "response_format", format), 400)
		if !strings.Contains(p.Error.Message, reason) || *p.Error.Param != "response_format" {
			t.Errorf("message %q does not say %q", p.Error.Message, reason)
		}
	}
}

func TestContextOverflow(t *testing.T) {
	t.Parallel()
	c := start(t, Config{MaxContext: 100})
	long := strings.Repeat("word ", 200)
	p := c.refused(chatPath, body("plain", long), 400)
	want := fmt.Sprintf("This model's maximum context length is 100 tokens. However, your request has %d input tokens.", c.count(long)+7)
	if !strings.HasPrefix(p.Error.Message, want) || p.Error.Type != "BadRequestError" {
		t.Errorf("message %q, want %q", p.Error.Message, want)
	}
	p = c.refused(chatPath, body("plain", "hi", "max_tokens", 93), 400)
	if want := "This model's maximum context length is 100 tokens. However, you requested 101 tokens (8 in the messages, 93 in the completion)."; !strings.HasPrefix(p.Error.Message, want) {
		t.Errorf("message %q, want %q", p.Error.Message, want)
	}
	if got := c.complete(body("plain", "hi", "max_tokens", 92, "ignore_eos", true)); got.Usage.Total != 100 {
		t.Errorf("%d tokens in all", got.Usage.Total)
	}
	c.refused(chatPath, body("plain", strings.Repeat("a ", 92)), 400)
	p = c.refused("/v1/embeddings", `{"model":"embedder","input":"`+strings.Repeat("word ", 101)+`"}`, 400)
	if !strings.HasPrefix(p.Error.Message, "This model's maximum context length is 100 tokens.") {
		t.Errorf("message %q", p.Error.Message)
	}
}
