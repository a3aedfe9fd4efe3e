package sim

import (
	"strings"
	"testing"
)

func TestBadRequests(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	for name, tt := range map[string]struct {
		body, reason string
		status       int
	}{
		"unknown model":       {body("nobody", "x"), `"nobody" does not exist`, 404},
		"embedding model":     {body("embedder", "x"), "does not support Chat Completions", 400},
		"no model":            {`{"messages":[{"role":"user","content":"x"}]}`, "model: Field required", 400},
		"null model":          {`{"model":null,"messages":[{"role":"user","content":"x"}]}`, "model: Field required", 400},
		"model no string":     {`{"model":7,"messages":[{"role":"user","content":"x"}]}`, "model: Input should be a valid string", 400},
		"no messages":         {`{"model":"plain"}`, "at least one message", 400},
		"empty messages":      {`{"model":"plain","messages":[]}`, "at least one message", 400},
		"messages no list":    {`{"model":"plain","messages":"x"}`, "valid list", 400},
		"message no object":   {`{"model":"plain","messages":["x"]}`, "messages: Input should be an object", 400},
		"unknown role":        {`{"model":"plain","messages":[{"role":"user","content":"x"},{"role":"boss","content":"x"}]}`, "messages[1].role", 400},
		"content no text":     {`{"model":"plain","messages":[{"role":"user","content":5}]}`, "messages[0].content", 400},
		"image":               {`{"model":"plain","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, `"image_url" are not simulated`, 400},
		"no JSON":             {`{"model":"plain"`, "invalid JSON at byte 16", 400},
		"text after":          {body("plain", "x") + "{}", "after top-level value", 400},
		"empty body":          {"", "invalid JSON at byte 0", 400},
		"not UTF-8":           {"{\"model\":\"\xff\"}", "not UTF-8", 400},
		"temperature text":    {body("plain", "x", "temperature", "hot"), "temperature: Input should be a valid number", 400},
		"temperature":         {body("plain", "x", "temperature", -1), "temperature must be at least 0, got -1", 400},
		"top_p zero":          {body("plain", "x", "top_p", 0), "top_p must be above 0 and at most 1, got 0", 400},
		"top_p":               {body("plain", "x", "top_p", 1.1), "top_p", 400},
		"min_p":               {body("plain", "x", "min_p", 2), "min_p", 400},
		"top_k":               {body("plain", "x", "top_k", -2), "top_k", 400},
		"top_k fraction":      {body("plain", "x", "top_k", 1.5), "top_k: Input should be a valid integer", 400},
		"presence_penalty":    {body("plain", "x", "presence_penalty", 3), "presence_penalty", 400},
		"frequency_penalty":   {body("plain", "x", "frequency_penalty", -3), "frequency_penalty", 400},
		"repetition_penalty":  {body("plain", "x", "repetition_penalty", 0), "repetition_penalty", 400},
		"max_tokens":          {body("plain", "x", "max_tokens", 0), "max_tokens must be between", 400},
		"max_tokens text":     {body("plain", "x", "max_tokens", "5"), "max_tokens: Input should be a valid integer", 400},
		"min over max":        {body("plain", "x", "max_tokens", 5, "min_tokens", 6), "min_tokens must be less", 400},
		"deep nesting":        {`{"model":"plain","x":` + strings.Repeat("[", 1<<20), "exceeded max depth", 400},
		"n":                   {body("plain", "x", "n", 17), "n must be between 1 and 16", 400},
		"seed":                {body("plain", "x", "seed", "s"), "seed", 400},
		"stop":                {body("plain", "x", "stop", 5), "stop", 400},
		"stop list":           {body("plain", "x", "stop", []int{5}), "stop", 400},
		"stop_token_ids":      {body("plain", "x", "stop_token_ids", []string{"a"}), "stop_token_ids", 400},
		"ignore_eos":          {body("plain", "x", "ignore_eos", 1), "ignore_eos: Input should be a valid boolean", 400},
		"logprobs":            {body("plain", "x", "logprobs", 1), "logprobs", 400},
		"top_logprobs":        {body("plain", "x", "logprobs", true, "top_logprobs", 21), "top_logprobs", 400},
		"top without":         {body("plain", "x", "top_logprobs", 1), "`logprobs` must be set", 400},
		"logit_bias":          {body("plain", "x", "logit_bias", map[string]int{"5": 101}), "logit_bias", 400},
		"bad_words":           {body("plain", "x", "bad_words", "a"), "bad_words", 400},
		"stream":              {body("plain", "x", "stream", "yes"), "stream", 400},
		"stream_options":      {body("plain", "x", "stream_options", 1), "stream_options", 400},
		"chat_template":       {body("plain", "x", "chat_template_kwargs", 1), "chat_template_kwargs", 400},
		"tools":               {body("plain", "x", "tools", []any{1}, "tool_choice", "required"), "tools: ", 400},
		"structured_outputs":  {body("plain", "x", "structured_outputs", "a"), "Input should be an object", 400},
		"no rule":             {body("plain", "x", "structured_outputs", map[string]any{}), "one of regex and choice", 400},
		"a grammar":           {body("plain", "x", "structured_outputs", map[string]any{"grammar": "root ::= \"a\""}), "one of regex and choice", 400},
		"two rules":           {body("plain", "x", "structured_outputs", map[string]any{"regex": "a", "choice": []string{"a"}}), "one of regex and choice", 400},
		"an ill-typed rule":   {body("plain", "x", "structured_outputs", map[string]any{"choice": "a"}), "structured_outputs", 400},
		"no regex":            {body("plain", "x", "structured_outputs", map[string]any{"regex": "(?=a)"}), "cannot be used", 400},
		"a rule and a schema": {body("plain", "x", "structured_outputs", map[string]any{"regex": "a"}, "response_format", map[string]any{"type": "json_object"}), "only use one kind", 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &client{t: t, base: c.base, http: c.http}
			if p := c.refused(chatPath, tt.body, tt.status); !strings.Contains(p.Error.Message, tt.reason) {
				t.Errorf("message %q does not say %q", p.Error.Message, tt.reason)
			}
		})
	}
	// All at once, and null for each, is a good request.
	all := body("plain", "x", "temperature", 0.5, "top_p", 0.9, "top_k", -1, "min_p", 0.1, "presence_penalty", 1, "frequency_penalty", 1,
		"repetition_penalty", 1.1, "n", 1, "skip_special_tokens", true, "spaces_between_special_tokens", false, "logit_bias", map[string]int{"5": 3},
		"bad_words", []string{"a"}, "allowed_token_ids", []int{1}, "priority", 0, "user", "me", "unheard_of", []any{map[string]any{"a": nil}}, "tools", []any{})
	c.complete(all)
	nulls := body("plain", "x", "temperature", nil, "max_tokens", nil, "seed", nil, "stop", nil, "stream", nil, "response_format", nil, "logprobs", nil, "tools", nil)
	c.complete(nulls)
	whole := c.complete(`{"model":"plain","messages":[{"role":"user","content":"x"}],"max_tokens":2e0}`)
	if whole.Usage.Completion != 2 {
		t.Errorf("max_tokens 2e0 gives %d tokens", whole.Usage.Completion)
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	got := c.complete(`{"messages":[{"content":"be brief","role":"system"},{"role":"user","content":[{"type":"text","text":"one "},{"type":"text","text":"two"}]},{"role":"assistant","content":null}],"model":"plain"}`)
	if want := c.count("be brief") + c.count("one two") + 3*messageTokens + promptTokens; got.Usage.Prompt != want {
		t.Errorf("prompt_tokens %d, want %d", got.Usage.Prompt, want)
	}
	escaped := c.complete(`{"model":"plain","messages":[{"role":"user","content":"a\u00e9\ud83d\ude00\n\"\\\/b"}]}`)
	plain := c.complete(body("plain", "aé😀\n\"\\/b"))
	if escaped.content() != plain.content() || escaped.Usage.Prompt != plain.Usage.Prompt {
		t.Error("escapes change the prompt")
	}
}
