package openai

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
)

// TestOutputRules checks the request for each rule of structured_outputs on every kind
// of server.
func TestOutputRules(t *testing.T) {
	t.Parallel()
	regex := map[string]any{"regex": `\d+`}
	choice := map[string]any{"choice": []any{"yes", `"no" \ é`, "a\nb"}}
	grammar := map[string]any{"grammar": `root ::= "a"`}
	const chosen = `root ::= \"yes\" | \"\\\"no\\\" \\\\ é\" | \"a\\u000ab\"`
	thinker := rowmill.Model{ID: "m", Kind: rowmill.KindReasoning}
	for name, c := range map[string]struct {
		kind, version string
		params        engine.JobParams
		rule          map[string]any
		want          string // the field, or the start of the error
	}{
		"regex, vLLM":          {kindVLLM, "0.32.0", engine.JobParams{}, regex, `{"structured_outputs":{"regex":"\\d+"}}`},
		"regex, simulator":     {kindSim, "", engine.JobParams{}, regex, `{"structured_outputs":{"regex":"\\d+"}}`},
		"regex, SGLang":        {kindSGLang, "", engine.JobParams{}, regex, `{"regex":"\\d+"}`},
		"regex, llama.cpp":     {kindLlama, "", engine.JobParams{}, regex, "error: structured_outputs.regex cannot be honoured by a server of kind llama.cpp: remove it, use json_schema, or use vLLM"},
		"regex, Ollama":        {kindOllama, "", engine.JobParams{}, regex, "error: structured_outputs.regex cannot"},
		"regex, others":        {kindOther, "", engine.JobParams{}, regex, "error: structured_outputs.regex cannot"},
		"choice, vLLM":         {kindVLLM, "", engine.JobParams{}, choice, `{"structured_outputs":{"choice":["yes","\"no\" \\ é","a\nb"]}}`},
		"choice, simulator":    {kindSim, "", engine.JobParams{}, choice, `{"structured_outputs":{"choice":["yes","\"no\" \\ é","a\nb"]}}`},
		"choice, SGLang":       {kindSGLang, "", engine.JobParams{}, choice, `{"ebnf":"` + chosen + `"}`},
		"choice, llama.cpp":    {kindLlama, "", engine.JobParams{}, choice, `{"grammar":"` + chosen + `"}`},
		"choice, Ollama":       {kindOllama, "", engine.JobParams{}, choice, "error: structured_outputs.choice cannot"},
		"choice, others":       {kindOther, "", engine.JobParams{}, choice, "error: structured_outputs.choice cannot"},
		"grammar, vLLM":        {kindVLLM, "", engine.JobParams{}, grammar, `{"structured_outputs":{"grammar":"root ::= \"a\""}}`},
		"grammar, simulator":   {kindSim, "", engine.JobParams{}, grammar, "error: structured_outputs.grammar cannot"},
		"grammar, SGLang":      {kindSGLang, "", engine.JobParams{}, grammar, `{"ebnf":"root ::= \"a\""}`},
		"grammar, llama.cpp":   {kindLlama, "", engine.JobParams{}, grammar, `{"grammar":"root ::= \"a\""}`},
		"grammar, Ollama":      {kindOllama, "", engine.JobParams{}, grammar, "error: structured_outputs.grammar cannot"},
		"grammar, others":      {kindOther, "", engine.JobParams{}, grammar, "error: structured_outputs.grammar cannot"},
		"llama.cpp, reasoning": {kindLlama, "", engine.JobParams{Model: thinker}, grammar, "error: structured_outputs.grammar cannot be honoured by llama.cpp for a reasoning model"},
		"vLLM, reasoning":      {kindVLLM, "", engine.JobParams{Model: thinker}, regex, `{"structured_outputs":{"regex":"\\d+"}}`},
		"an older vLLM":        {kindVLLM, "0.10.2", engine.JobParams{}, regex, "error: sampling parameter structured_outputs needs vLLM 0.11.0, the server runs 0.10.2"},
		"with a schema":        {kindVLLM, "", engine.JobParams{Schema: json.RawMessage(`{}`)}, regex, "error: sampling parameter structured_outputs and json_schema both"},
		"no rule":              {kindVLLM, "", engine.JobParams{}, map[string]any{}, "error: sampling parameter structured_outputs must have one of"},
		"choices of numbers":   {kindLlama, "", engine.JobParams{}, map[string]any{"choice": []any{1}}, "error: structured_outputs.choice must be a list of strings"},
		"no choices":           {kindLlama, "", engine.JobParams{}, map[string]any{"choice": []any{}}, "error: structured_outputs.choice must be a list of strings"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := c.params
			if p.Model.ID == "" {
				p.Model = generator
			}
			p.Sampling = map[string]any{"structured_outputs": c.rule, "top_k": 0, "min_p": 0.0}
			p.MaxTokens = 9
			got, err := on(t, c.kind, c.version, p)
			if wantsError(t, c.want, err) {
				return
			}
			fields := sent(t, got)
			for _, other := range []string{"top_k", "min_p", "max_tokens"} {
				delete(fields, other)
			}
			var want map[string]any
			must.Succeed(t, json.Unmarshal([]byte(c.want), &want))
			if diff := cmp.Diff(want, fields); diff != "" {
				t.Errorf("wanted (-), sent (+):\n%s", diff)
			}
		})
	}
}

// If a server refuses a parameter of the job, it would refuse it for every row.
func TestRefusedParameters(t *testing.T) {
	t.Parallel()
	sampling := map[string]any{"stop": []any{"a"}, "temperature": 2.5, "extra_args": map[string]any{"a": "b"}, "max_tokens": 9}
	for name, c := range map[string]struct {
		status int
		body   string
		regex  bool
		class  engine.ErrorClass
		piece  string
	}{
		"a parameter":                     {400, `{"error":{"message":"temperature must be in [0, 2], got 2.5.","param":"temperature"}}`, false, engine.JobFault, "refuses the sampling parameter temperature: temperature must be in [0, 2]"},
		"a parameter, by its path":        {400, `{"error":{"message":"List should have at most 4 items","param":"body.stop.list[str]"}}`, false, engine.JobFault, "parameter stop"},
		"a parameter, by its index":       {422, `{"error":{"message":"no","param":"vllm_xargs[a]"}}`, false, engine.JobFault, "parameter vllm_xargs"},
		"a parameter, SGLang":             {400, `{"object":"error","message":"no","param":"stop"}`, false, engine.JobFault, "parameter stop"},
		"a parameter that was not sent":   {400, `{"error":{"message":"no","param":"top_k"}}`, false, engine.RowFault, "refused the request: no"},
		"a parameter that differs by row": {400, `{"error":{"message":"no","param":"max_tokens"}}`, false, engine.RowFault, "refused the request: no"},
		"the messages":                    {400, `{"error":{"message":"no","param":"messages"}}`, false, engine.RowFault, "refused the request: no"},
		"too long":                        {400, `{"error":{"message":"the model's context length is 5","param":"stop"}}`, false, engine.RowFault, "context length"},
		"a transient error":               {503, `{"error":{"message":"no","param":"stop"}}`, false, engine.Busy, "could not answer now"},
		"a regex":                         {400, `{"error":{"message":"Failed to transform regex into a grammar: x"}}`, true, engine.JobFault, "refuses the structured_outputs: Failed"},
		"a regex, by its name":            {400, `{"error":{"message":"structured_outputs.regex must not contain a NUL"}}`, true, engine.JobFault, "refuses the structured_outputs"},
		"a regex that was not sent":       {400, `{"error":{"message":"Failed to transform regex into a grammar: x"}}`, false, engine.RowFault, "refused the request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := serve(t, nil, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			given := maps.Clone(sampling)
			if c.regex {
				given["structured_outputs"] = map[string]any{"regex": "a+"}
			}
			call := prepared(t, e, engine.JobParams{Model: generator, Sampling: given})
			_, err := call.Generate(t.Context(), engine.Row{Text: []byte("x")})
			var got *engine.Error
			if !errors.As(err, &got) {
				t.Fatalf("got %v", err)
			}
			if got.Class != c.class || !strings.Contains(got.Message, c.piece) {
				t.Errorf("class %v, message %q; want %v, %q", got.Class, got.Message, c.class, c.piece)
			}
		})
	}
}
