package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/internal/must"
)

// The fate of a sampling parameter, besides a request field with another name.
const (
	same    = "same"    // sent under the caller's name
	refused = "refused" // an error of Prepare
	warned  = "warned"  // not sent, and a warning says so
	implied = "implied" // not sent: the request means it anyway
	alone   = "alone"   // sent as logprobs, without alternatives
	inParts = "regex"   // sent as what structured_outputs holds
)

// everyKind orders the columns of the table below.
var everyKind = []string{kindVLLM, kindSim, kindSGLang, kindLlama, kindOllama, kindOther}

// parameters lists the fate of every sampling parameter of the catalog, for a
// value that is not the default.
var parameters = []struct {
	name  string
	value any
	want  [6]string // by everyKind
}{
	{"temperature", 0.7, [6]string{same, same, same, same, same, same}},
	{"top_p", 0.8, [6]string{same, same, same, same, same, same}},
	{"stop", []any{"x", "y"}, [6]string{same, same, same, same, same, same}},
	{"presence_penalty", 0.5, [6]string{same, same, same, same, same, same}},
	{"frequency_penalty", -0.5, [6]string{same, same, same, same, same, same}},
	{"max_tokens", int64(777), [6]string{same, same, same, same, same, same}},
	{"seed", int64(7), [6]string{same, same, same, same, same, same}},
	{"n", int64(1), [6]string{implied, implied, implied, implied, implied, implied}},
	{"logprobs", int64(1), [6]string{alone, alone, alone, "top_logprobs", alone, "top_logprobs"}},
	{"top_k", int64(20), [6]string{same, same, same, same, warned, warned}},
	{"min_p", 0.1, [6]string{same, same, same, same, warned, warned}},
	{"repetition_penalty", 1.1, [6]string{same, same, same, "repeat_penalty", warned, warned}},
	{"logit_bias", map[string]any{"17": 2.0}, [6]string{same, same, same, same, refused, same}},
	{"ignore_eos", true, [6]string{same, same, same, same, refused, refused}},
	{"stop_token_ids", []any{int64(3)}, [6]string{same, same, same, refused, refused, refused}},
	{"min_tokens", int64(3), [6]string{same, same, same, refused, refused, refused}},
	{"skip_special_tokens", false, [6]string{same, same, same, refused, refused, refused}},
	{"bad_words", []any{"x"}, [6]string{same, same, refused, refused, refused, refused}},
	{"allowed_token_ids", []any{int64(3)}, [6]string{same, same, refused, refused, refused, refused}},
	{"spaces_between_special_tokens", false, [6]string{same, same, refused, refused, refused, refused}},
	{"include_stop_str_in_output", true, [6]string{same, same, "no_stop_trim", refused, refused, refused}},
	{"thinking_token_budget", int64(100), [6]string{same, same, refused, refused, refused, refused}},
	{"repetition_detection", map[string]any{"min_count": int64(3)}, [6]string{same, same, refused, refused, refused, refused}},
	{"watermarking", false, [6]string{same, same, refused, refused, refused, refused}},
	{"extra_args", map[string]any{"a": int64(1)}, [6]string{"vllm_xargs", "vllm_xargs", refused, refused, refused, refused}},
	{"structured_outputs", map[string]any{"regex": "a+"}, [6]string{same, same, inParts, refused, refused, refused}},
}

// catalogParameters asks the catalog for the parameters it knows, by a name that
// differs from all kinds.
func catalogParameters(t *testing.T) []string {
	t.Helper()
	_, _, err := catalog.MergeSampling(generator, map[string]any{"~~~~~~~~~~~~": 1})
	if err == nil {
		t.Fatal("the catalog takes any parameter")
	}
	_, list, found := strings.Cut(err.Error(), "known are ")
	if !found {
		t.Fatalf("the catalog does not list its parameters: %v", err)
	}
	return strings.Split(list, ", ")
}

// on prepares a job on a server of the kind without asking one.
func on(t *testing.T, kind, version string, p engine.JobParams) (*preparedCall, error) {
	t.Helper()
	e := unprobed(t, Config{BaseURL: "http://127.0.0.1:1"})
	e.storeProbe(engine.ServerInfo{Kind: kind, Version: version, Models: []engine.ServedModel{{Name: "m"}}}, probeFacts{})
	c, err := e.Prepare(p)
	if err != nil {
		return nil, err
	}
	return c.(*preparedCall), nil
}

// sent returns the fields of a row's request beyond model and messages.
func sent(t *testing.T, c *preparedCall) map[string]any {
	t.Helper()
	var fields map[string]any
	must.Succeed(t, json.Unmarshal(c.appendChatRequest(nil, engine.Row{Text: []byte("x")}, c.trailer.Load()), &fields))
	delete(fields, "model")
	delete(fields, "messages")
	return fields
}

// transformers serve 5.19 answers 500 to a bias without a point.
func TestBiasesHaveAPoint(t *testing.T) {
	t.Parallel()
	c := must.Get(on(t, kindOther, "", engine.JobParams{Model: generator, Sampling: map[string]any{"logit_bias": map[string]any{"17": 2.0, "18": int64(-1), "19": 0.5}}}))(t)
	if got := string(c.trailer.Load().middle); !strings.Contains(got, `"logit_bias":{"17":2.0,"18":-1.0,"19":0.5}`) {
		t.Errorf("sent: %s", got)
	}
}

// Every parameter that a caller may give is sent, refused or warned about, on
// every kind of server.
func TestEveryParameterOnEveryKind(t *testing.T) {
	t.Parallel()
	covered := make([]string, 0, len(parameters))
	for _, p := range parameters {
		covered = append(covered, p.name)
	}
	known := catalogParameters(t)
	slices.Sort(known)
	slices.Sort(covered)
	if diff := cmp.Diff(known, covered); diff != "" {
		t.Errorf("parameters of the catalog (-) and of this test (+):\n%s", diff)
	}
	for column, kind := range everyKind {
		bare := must.Get(on(t, kind, "", engine.JobParams{Model: generator}))(t)
		always := sent(t, bare)
		for _, p := range parameters {
			t.Run(kind+" "+p.name, func(t *testing.T) {
				want := p.want[column]
				refusal := regexp.MustCompile(p.name + `(\.regex)? cannot be honoured by a server of kind ` + kind)
				c, err := on(t, kind, "", engine.JobParams{Model: generator, Sampling: map[string]any{p.name: p.value}})
				if want == refused {
					if err == nil || !refusal.MatchString(err.Error()) {
						t.Errorf("got %v, want a refusal that names the parameter and the kind", err)
					}
					return
				}
				must.Succeed(t, err)
				about := slices.ContainsFunc(c.Warnings(), func(w string) bool { return strings.HasPrefix(w, p.name+" ") })
				if about != (want == warned) {
					t.Errorf("warnings %q, want one about it: %v", c.Warnings(), want == warned)
				}
				expected := map[string]any{}
				for name, value := range always {
					expected[name] = value
				}
				switch want {
				case same:
					expected[p.name] = decoded(t, p.value)
				case "top_logprobs":
					expected["logprobs"], expected["top_logprobs"] = true, 1.0
				case alone:
					expected["logprobs"] = true
				case inParts:
					expected["regex"] = "a+"
				case warned, implied:
				default:
					expected[want] = decoded(t, p.value)
				}
				if diff := cmp.Diff(expected, sent(t, c)); diff != "" {
					t.Errorf("wanted (-), sent (+):\n%s", diff)
				}
			})
		}
	}
}

// decoded is v as it comes out of JSON.
func decoded(t *testing.T, v any) (out any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	must.Succeed(t, err)
	return out
}

// A value that asks for the server's normal behaviour does not fail a job.
func TestNeutralValues(t *testing.T) {
	t.Parallel()
	neutral := map[string]any{
		"min_tokens": int64(0), "ignore_eos": false, "include_stop_str_in_output": false, "skip_special_tokens": true,
		"spaces_between_special_tokens": true, "logit_bias": map[string]any{}, "stop_token_ids": []any{}, "bad_words": []any{},
		"allowed_token_ids": []any{}, "extra_args": map[string]any{}, "thinking_token_budget": int64(-1), "top_k": int64(-1), "min_p": 0.0, "repetition_penalty": 1.0,
	}
	for _, kind := range everyKind {
		for name, value := range neutral {
			if _, err := on(t, kind, "", engine.JobParams{Model: generator, Sampling: map[string]any{name: value}}); err != nil && kind != kindOllama {
				t.Errorf("%s %s: %v", kind, name, err)
			}
		}
	}
}

func TestPreparedRequests(t *testing.T) {
	t.Parallel()
	defaults := map[string]any{"temperature": 0.7, "top_k": 20, "max_tokens": 4096, "repetition_penalty": 1.0}
	quiet := generator
	quiet.NoLogprobs = true
	for name, c := range map[string]struct {
		kind, version string
		params        engine.JobParams
		want          string   // fields as JSON, or the beginning of the error
		warnings      []string // a part of each
	}{
		"defaults": {kindVLLM, "", engine.JobParams{Sampling: defaults}, `{"temperature":0.7,"top_k":20,"max_tokens":4096,"repetition_penalty":1}`, nil},
		"defaults, llama.cpp": {
			kindLlama, "",
			engine.JobParams{Sampling: defaults},
			`{"temperature":0.7,"top_k":20,"min_p":0,"max_tokens":4096,"repeat_penalty":1,"stream":true,"stream_options":{"include_usage":true}}`, nil,
		},
		"bare, llama.cpp": {kindLlama, "", engine.JobParams{}, `{"top_k":0,"min_p":0,"stream":true,"stream_options":{"include_usage":true}}`, nil},
		"defaults, Ollama": {
			kindOllama, "0.14.0",
			engine.JobParams{Sampling: defaults},
			`{"temperature":0.7,"max_tokens":4096}`,
			[]string{"Ollama cuts a prompt", "repetition_penalty is not supported", "top_k is not supported"},
		},
		"older Ollama": {kindOllama, "0.12.10", engine.JobParams{Logprobs: true}, `{"logprobs":true}`, []string{"cuts a prompt", "from 0.12.11 on, the server runs 0.12.10"}},
		"newer Ollama": {kindOllama, "0.12.11-rc1", engine.JobParams{Logprobs: true}, `{"logprobs":true}`, []string{"cuts a prompt"}},

		"another name":           {kindVLLM, "", engine.JobParams{Sampling: map[string]any{"guided_json": "{}"}}, "error: sampling parameter guided_json is not known", nil},
		"two answers":            {kindVLLM, "", engine.JobParams{Sampling: map[string]any{"n": 2}}, "error: sampling parameter n must be 1", nil},
		"a seed in words":        {kindVLLM, "", engine.JobParams{Sampling: map[string]any{"seed": "x"}}, "error: sampling parameter seed must be an integer", nil},
		"alternatives":           {kindVLLM, "", engine.JobParams{Sampling: map[string]any{"logprobs": 5}}, `{"logprobs":true}`, []string{"alternatives to the chosen"}},
		"logprobs, model has no": {kindVLLM, "", engine.JobParams{Model: quiet, Logprobs: true, Sampling: map[string]any{"logprobs": 1}}, `{}`, []string{"gives no log probabilities"}},

		"logprobs":                        {kindVLLM, "", engine.JobParams{Logprobs: true}, `{"logprobs":true}`, nil},
		"logprobs, SGLang":                {kindSGLang, "", engine.JobParams{Logprobs: true}, `{"logprobs":true}`, nil},
		"logprobs, in words":              {kindSim, "", engine.JobParams{Logprobs: true, Sampling: map[string]any{"logprobs": true}}, `{"logprobs":true}`, nil},
		"logprobs, llama.cpp":             {kindLlama, "", engine.JobParams{Logprobs: true, MaxTokens: 9}, `{"logprobs":true,"top_logprobs":1,"max_tokens":9,"top_k":0,"min_p":0}`, nil},
		"logprobs, the job wants none":    {kindVLLM, "", engine.JobParams{Sampling: map[string]any{"logprobs": false}}, `{}`, nil},
		"logprobs, a server of no kind":   {kindOther, "", engine.JobParams{Logprobs: true}, `{"logprobs":true,"top_logprobs":1}`, []string{"may ignore logprobs (cumulative_logprobs are null) without"}},
		"seeds, a server of no kind":      {kindOther, "", engine.JobParams{RowSeeds: true}, `{}`, []string{"may ignore seeds (answers do not repeat) without"}},
		"nothing, a server of no kind":    {kindOther, "", engine.JobParams{Sampling: map[string]any{"temperature": 0.5}}, `{"temperature":0.5}`, nil},
		"everything, a server of no kind": {kindOther, "", engine.JobParams{Logprobs: true, Schema: json.RawMessage(`{}`), Sampling: map[string]any{"seed": int64(3)}}, `{"logprobs":true,"top_logprobs":1,"response_format":{"type":"json_schema","json_schema":{"name":"output","strict":true,"schema":{}}},"seed":3}`, []string{"may ignore json_schema (answers that break it are tried again, and fail), seeds"}},

		"too old for a parameter": {
			kindVLLM, "0.16.0rc2",
			engine.JobParams{Sampling: map[string]any{"repetition_detection": map[string]any{"min_count": 3}}},
			"error: sampling parameter repetition_detection needs vLLM 0.17.0, the server runs 0.16.0rc2", nil,
		},
		"just new enough":           {kindVLLM, "0.20.0", engine.JobParams{Sampling: map[string]any{"thinking_token_budget": 9}}, `{"thinking_token_budget":9}`, nil},
		"a developer's build":       {kindVLLM, "0.1.dev9+g1", engine.JobParams{Sampling: map[string]any{"thinking_token_budget": 9}}, `{"thinking_token_budget":9}`, nil},
		"a simulator is new":        {kindSim, "0.1.0", engine.JobParams{Sampling: map[string]any{"thinking_token_budget": 9}}, `{"thinking_token_budget":9}`, nil},
		"no tokens to choose among": {kindVLLM, "", engine.JobParams{Sampling: map[string]any{"allowed_token_ids": []any{}, "thinking_token_budget": int64(-1)}}, `{}`, nil},
		"a schema": {
			kindVLLM, "0.11.0",
			engine.JobParams{Schema: json.RawMessage(`{"type":"object"}`)},
			`{"response_format":{"type":"json_schema","json_schema":{"name":"output","strict":true,"schema":{"type":"object"}}}}`, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.params.Model.ID == "" {
				c.params.Model = generator
			}
			prepared, err := on(t, c.kind, c.version, c.params)
			if wantsError(t, c.want, err) {
				return
			}
			var want map[string]any
			must.Succeed(t, json.Unmarshal([]byte(c.want), &want))
			if diff := cmp.Diff(want, sent(t, prepared)); diff != "" {
				t.Errorf("wanted (-), sent (+):\n%s", diff)
			}
			checkWarnings(t, prepared, c.warnings)
		})
	}
}

// wantsError checks the error of Prepare, and reports whether one is wanted: the
// beginning of want says so, and the rest is a part of it.
func wantsError(t *testing.T, want string, err error) bool {
	t.Helper()
	piece, isError := strings.CutPrefix(want, "error: ")
	if isError && (err == nil || !strings.Contains(err.Error(), piece)) {
		t.Errorf("got %v, want %q", err, piece)
	} else if !isError && err != nil {
		t.Fatal(err)
	}
	return isError
}

// checkWarnings wants one warning for each part.
func checkWarnings(t *testing.T, c engine.PreparedCall, parts []string) {
	t.Helper()
	got := c.Warnings()
	if len(got) != len(parts) {
		t.Errorf("warnings %q, want %q", got, parts)
		return
	}
	for i, part := range parts {
		if !strings.Contains(got[i], part) {
			t.Errorf("warning %q, want %q", got[i], part)
		}
	}
}

func TestAbilities(t *testing.T) {
	t.Parallel()
	thinker := rowmill.Model{ID: "m", Kind: rowmill.KindReasoning}
	schema := json.RawMessage(`{}`)
	for name, c := range map[string]struct {
		kind     string
		facts    probeFacts
		params   engine.JobParams
		err      error
		warnings []string
	}{
		"text of an embedding model": {
			kindSGLang,
			probeFacts{able: map[string]abilitySet{"m": embeds}},
			engine.JobParams{Model: generator},
			errors.New("as a model that generates no text"), nil,
		},
		"embeddings of a text model": {
			kindSGLang,
			probeFacts{able: map[string]abilitySet{"m": generates}},
			engine.JobParams{Model: embedder},
			errors.New("start it with --is-embedding"), nil,
		},
		"Ollama embeds with any model": {
			kindOllama,
			probeFacts{able: map[string]abilitySet{"m": generates}},
			engine.JobParams{Model: embedder},
			nil,
			[]string{"cuts a prompt", "does not list m as an embedding model"},
		},
		"no parser":              {kindSGLang, probeFacts{noParser: true}, engine.JobParams{Model: thinker}, nil, []string{"start it with --reasoning-parser"}},
		"no parser, schema":      {kindSGLang, probeFacts{noParser: true}, engine.JobParams{Model: thinker, Schema: schema}, nil, []string{"prevents the model from reasoning"}},
		"no parser, no thinking": {kindSGLang, probeFacts{noParser: true}, engine.JobParams{Model: generator}, nil, nil},
		"it does not think": {
			kindOllama,
			probeFacts{able: map[string]abilitySet{"m": generates}},
			engine.JobParams{Model: thinker},
			nil,
			[]string{"cuts a prompt", "says that m does not reason"},
		},
		"no parser, Ollama":         {kindOllama, probeFacts{noParser: true}, engine.JobParams{Model: thinker}, nil, []string{"cuts a prompt", "Rowmill splits them at </think>"}},
		"no parser, of no kind":     {kindOther, probeFacts{noParser: true}, engine.JobParams{Model: thinker, Schema: schema}, nil, []string{"may ignore json_schema", "</think>; json_schema prevents the model from reasoning"}},
		"context of Ollama":         {kindOllama, probeFacts{}, engine.JobParams{Model: generator}, nil, []string{"exceeds its context of 2048 tokens without"}},
		"context of Ollama at most": {kindOllama, probeFacts{atMost: map[string]bool{"m": true}}, engine.JobParams{Model: generator}, nil, []string{"exceeds its context of at most 2048 tokens (Ollama reports the exact length only after it has loaded the model"}},
		"nothing is known":          {kindVLLM, probeFacts{}, engine.JobParams{Model: thinker, Schema: schema}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := unprobed(t, Config{BaseURL: "http://127.0.0.1:1"})
			e.storeProbe(engine.ServerInfo{Kind: c.kind, Models: []engine.ServedModel{{Name: "m", ContextLength: 2048}}}, c.facts)
			call, err := e.Prepare(c.params)
			if c.err != nil {
				if err == nil || !strings.Contains(err.Error(), c.err.Error()) {
					t.Errorf("got %v, want %v", err, c.err)
				}
				return
			}
			must.Succeed(t, err)
			checkWarnings(t, call, c.warnings)
		})
	}
}

func TestReleases(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"0.10.9": true, "0.11.2": true, "0.11.3": false, "0.11.10": false, "1.0.0": false, "0.11.2rc1+cu130": true, "0.11.3.post1": false,
		"": false, "0.11": false, "main": false, "0.1.dev5": false,
	} {
		if got := (modelTarget{version: version}).isOlderThan(releaseVersion{0, 11, 3}); got != want {
			t.Errorf("%q older than 0.11.3: %v", version, got)
		}
	}
	if got := fmt.Sprint(releaseVersion{0, 11, 3}); got != "0.11.3" {
		t.Errorf("a release is written %s", got)
	}
}
