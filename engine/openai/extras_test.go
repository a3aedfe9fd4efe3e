package openai

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
)

// A picky server refuses requests that have a field, and keeps the fields of all.
type picky struct {
	refuses map[string]saying // by field

	mu   sync.Mutex
	sent []map[string]any
}

func (p *picky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var fields map[string]any
	_ = json.NewDecoder(r.Body).Decode(&fields)
	p.mu.Lock()
	p.sent = append(p.sent, fields)
	p.mu.Unlock()
	for name, s := range p.refuses {
		if fields[name] != nil {
			w.WriteHeader(s.status)
			_, _ = io.WriteString(w, s.body)
			return
		}
	}
	_, _ = io.WriteString(w, good)
}

// requests returns how many requests had a field, and how many there were.
func (p *picky) requests(field string) (with, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fields := range p.sent {
		if fields[field] != nil {
			with++
		}
	}
	return with, len(p.sent)
}

// A server that refuses a field of ours is asked without the field from then on, whatever
// words it has. The case is logprobs-refused-400.
func TestRefusedExtras(t *testing.T) {
	t.Parallel()
	const noMaxTokens = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
	for field, list := range map[string][]saying{
		"logprobs": {
			{source: "the case logprobs-refused-400, groq/groq-python 25", status: 400, body: "{\"error\":{\"message\":\"`logprobs` is not supported with this model\",\"type\":\"invalid_request_error\",\"param\":\"logprobs\"}}"},
			{source: "openai/openai-python 1080", status: 400, body: openAIError("Unrecognized request argument supplied: logprobs", "invalid_request_error", "")},
			{source: "openai/openai-python 1080, the newer model", status: 400, body: `{"error":{"message":"This model does not support it.","type":"invalid_request_error","param":"logprobs"}}`},
			{source: "confident-ai/deepeval 2184", status: 403, body: openAIError("You are not allowed to request logprobs from this model", "invalid_request_error", "")},
			{source: "vllm-project/vllm-gaudi 1098", status: 400, body: openAIError("Gaudi doesn't support logprobs. Please remove 'logprobs'/'top_logprobs' from your request to receive a response.", "BadRequestError", "400")},
			{source: "BerriAI/litellm 31600, Vertex", status: 400, body: `{"error":{"code":400,"message":"Unable to submit request because Logprobs is not supported for this model.","status":"INVALID_ARGUMENT"}}`},
			{source: "vllm-project/vllm 3657, a field more", status: 422, body: `{"detail":[{"type":"extra_forbidden","loc":["body","logprobs"],"msg":"Extra inputs are not permitted"}]}`},
			{source: "sgl-project/sglang 5984", status: 500, body: `{"object":"error","message":"Out of range float values are not JSON compliant","type":"InternalServerError","code":500}`},
		},
		"max_tokens": {
			{source: "lobehub/lobehub 4315, Azure", status: 400, body: `{"error":{"message":"` + noMaxTokens + `","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}`},
			{source: "OpenHands/OpenHands 11662", status: 400, body: openAIError(noMaxTokens, "invalid_request_error", "unsupported_parameter")},
			{source: "jekalmin/extended_openai_conversation 298", status: 400, body: `{"error":{"message":"` + noMaxTokens + `","callstack":"x"}}`},
		},
	} {
		for _, s := range list {
			t.Run(field+"/"+s.source, func(t *testing.T) {
				t.Parallel()
				p := &picky{refuses: map[string]saying{field: s}}
				e := serve(t, nil, p.ServeHTTP)
				params := engine.JobParams{Model: generator, MaxTokens: 9, Logprobs: true}
				for range 2 { // the second job knows it from the first
					c := prepared(t, e, params)
					for range 2 {
						if reply, err := c.Generate(t.Context(), engine.Row{Text: []byte("x")}); err != nil || reply.Content != "fine" {
							t.Fatalf("%+v, %v", reply, err)
						}
					}
					if warned := c.Warnings(); !slices.ContainsFunc(warned, func(w string) bool { return strings.HasPrefix(w, field+":") }) {
						t.Errorf("warnings: %q", warned)
					}
				}
				if with, all := p.requests(field); with != 1 || all != 5 {
					t.Errorf("%d of %d requests had %s, want 1 of 5", with, all, field)
				}
				if with, _ := p.requests("max_completion_tokens"); field == "max_tokens" && with != 4 {
					t.Errorf("max_completion_tokens was sent %d times, want 4", with)
				}
			})
		}
	}
	t.Run("both", func(t *testing.T) {
		t.Parallel()
		p := &picky{refuses: map[string]saying{
			"logprobs":   {status: 403, body: openAIError("You are not allowed to request logprobs from this model", "", "")},
			"max_tokens": {status: 400, body: openAIError(noMaxTokens, "", "")},
		}}
		c := prepared(t, serve(t, nil, p.ServeHTTP), engine.JobParams{Model: generator, MaxTokens: 9, Logprobs: true})
		if _, err := c.Generate(t.Context(), engine.Row{Text: []byte("x")}); err != nil {
			t.Error(err)
		}
		if _, all := p.requests(""); all != 3 {
			t.Errorf("%d requests, want 3", all)
		}
	})
	t.Run("a field that the job asks for stays", func(t *testing.T) {
		t.Parallel()
		p := &picky{refuses: map[string]saying{"logprobs": {status: 400, body: openAIError("logprobs is not supported", "", "")}}}
		c := prepared(t, serve(t, nil, p.ServeHTTP), engine.JobParams{Model: generator, Logprobs: true, Sampling: map[string]any{"logprobs": int64(1)}})
		if _, err := c.Generate(t.Context(), engine.Row{Text: []byte("x")}); err == nil {
			t.Error("the answer came without the log probabilities that the job asks for")
		}
	})
}

// Answers of HTTP 500 that do not say what their cause is: the server could not write the
// log probabilities.
var wordless = []saying{
	{source: "Starlette, below vLLM and SGLang, after an exception", status: 500, body: "Internal Server Error"},
	{source: "nginx", status: 500, body: "<html>\r\n<head><title>500 Internal Server Error</title></head>\r\n<body>\r\n<center><h1>500 Internal Server Error</h1></center>\r\n</body>\r\n</html>\r\n"},
	{source: "vllm-project/vllm, an error without a message", status: 500, body: openAIError("", "InternalServerError", "500")},
	{source: "an empty body", status: 500},
}

// sendAfter sends a row that servers have answered with HTTP 500 so often.
func sendAfter(t *testing.T, c engine.PreparedCall, failures int) error {
	t.Helper()
	_, err := c.Generate(t.Context(), engine.Row{Text: []byte("x"), Failures: failures})
	return err
}

// A server that answers HTTP 500 without words to each row with log probabilities is asked
// without after a few rows, by later jobs too, and these say so.
func TestWordlessRefusalOfLogprobs(t *testing.T) {
	t.Parallel()
	for _, s := range wordless {
		t.Run(s.source, func(t *testing.T) {
			t.Parallel()
			p := &picky{refuses: map[string]saying{"logprobs": s}}
			e := serve(t, nil, p.ServeHTTP)
			params := engine.JobParams{Model: generator, MaxTokens: 9, Logprobs: true}
			c := prepared(t, e, params)
			for row := range maxRowsWithoutLogprobs {
				if err := sendAfter(t, c, 0); err == nil {
					t.Fatalf("row %d is answered with log probabilities", row)
				}
				if err := sendAfter(t, c, 1); err != nil {
					t.Fatalf("row %d, again: %v", row, err)
				}
				if warned := c.Warnings(); !slices.ContainsFunc(warned, func(w string) bool { return strings.HasPrefix(w, "logprobs: ") }) {
					t.Errorf("warnings after row %d: %q", row, warned)
				}
			}
			for _, c := range []engine.PreparedCall{c, prepared(t, e, params)} {
				if err := sendAfter(t, c, 0); err != nil {
					t.Errorf("a further row: %v", err)
				}
				if warned := c.Warnings(); !slices.Contains(warned, extraLogprobs.notice()) {
					t.Errorf("warnings: %q", warned)
				}
			}
			if with, all := p.requests("logprobs"); with != maxRowsWithoutLogprobs || all != 2*maxRowsWithoutLogprobs+2 {
				t.Errorf("%d of %d requests had log probabilities, want %d of %d", with, all, maxRowsWithoutLogprobs, 2*maxRowsWithoutLogprobs+2)
			}
		})
	}
}

// A server that fails by chance is not taken for one that refuses log probabilities.
func TestChanceFailuresLeaveLogprobs(t *testing.T) {
	t.Parallel()
	p := &picky{refuses: map[string]saying{"logprobs": wordless[0]}}
	e := serve(t, nil, p.ServeHTTP)
	c := prepared(t, e, engine.JobParams{Model: generator, MaxTokens: 9, Logprobs: true})
	requests := func(want int, what string) {
		t.Helper()
		if with, _ := p.requests("logprobs"); with != want {
			t.Errorf("%s: %d requests had log probabilities, want %d", what, with, want)
		}
	}
	if sendAfter(t, c, 0) == nil || sendAfter(t, c, 1) != nil {
		t.Fatal("the first row")
	}
	requests(1, "after the first row")
	works := p.refuses
	p.refuses = nil
	must.Succeed(t, sendAfter(t, c, 0))
	requests(2, "after an answer with log probabilities")
	p.refuses = works
	for row := range maxRowsWithoutLogprobs { // of these rows alone the server cannot write them
		if sendAfter(t, c, 0) == nil || sendAfter(t, c, 1) == nil || sendAfter(t, c, maxFailuresWithLogprobs) != nil {
			t.Fatalf("row %d is not answered at the third attempt, without log probabilities", row)
		}
	}
	requests(2+2*maxRowsWithoutLogprobs, "after rows that the server failed on")
	if err := sendAfter(t, c, 0); err == nil {
		t.Error("a server that has answered with log probabilities is asked without them")
	}
	requests(3+2*maxRowsWithoutLogprobs, "another row")
	if warned := c.Warnings(); !slices.ContainsFunc(warned, func(w string) bool { return strings.Contains(w, "HTTP 500 to some rows") }) || slices.Contains(warned, extraLogprobs.notice()) {
		t.Errorf("warnings: %q", warned)
	}
	asked := prepared(t, e, engine.JobParams{Model: generator, Logprobs: true, Sampling: map[string]any{"logprobs": int64(1)}})
	if err := sendAfter(t, asked, maxFailuresWithLogprobs); err == nil {
		t.Error("the answer came without the log probabilities that the job asks for")
	}
}
