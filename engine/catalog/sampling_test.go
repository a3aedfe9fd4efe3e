package catalog

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

// decode reads JSON as the API does: numbers keep their spelling.
func decode(t testing.TB, text string) map[string]any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var v map[string]any
	must.Succeed(t, decoder.Decode(&v))
	return v
}

func model(t testing.TB, id string) rowmill.Model {
	t.Helper()
	m, found := Default().Find(id)
	if !found {
		t.Fatalf("no model %s", id)
	}
	return m
}

func TestMergeSampling_CallerWins(t *testing.T) {
	t.Parallel()
	// The example of the interface.
	got, warnings, err := MergeSampling(model(t, "qwen-3-30b-a3b-thinking"), decode(t, `{"temperature":0.9,"max_tokens":512}`))
	if err != nil || warnings != nil {
		t.Fatalf("warnings %q, error %v", warnings, err)
	}
	want := map[string]any{
		"temperature": 0.9, "max_tokens": int64(512), "top_k": int64(20), "top_p": 0.95, "repetition_penalty": 1.0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if defaults := model(t, "qwen-3-30b-a3b-thinking").Sampling; defaults["temperature"] != 0.6 {
		t.Error("merging changed the catalog")
	}
}

func TestMergeSampling_Accepts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]any{
		`{}`:                         {},
		`{"temperature":null}`:       {},
		`{"n":1}`:                    {},
		`{"temperature":0}`:          {"temperature": 0.0},
		`{"temperature":2.5}`:        {"temperature": 2.5},
		`{"top_p":1}`:                {"top_p": 1.0},
		`{"top_k":-1}`:               {"top_k": int64(-1)},
		`{"max_tokens":512.0}`:       {"max_tokens": int64(512)},
		`{"min_p":0,"min_tokens":0}`: {"min_p": 0.0, "min_tokens": int64(0)},
		`{"presence_penalty":-2,"frequency_penalty":2}`: {"presence_penalty": -2.0, "frequency_penalty": 2.0},
		`{"seed":9223372036854775807}`:                  {"seed": int64(9223372036854775807)},
		`{"stop":"END"}`:                                {"stop": []any{"END"}},
		`{"stop":["a","b"],"bad_words":["c"]}`:          {"stop": []any{"a", "b"}, "bad_words": []any{"c"}},
		`{"stop_token_ids":[0,2]}`:                      {"stop_token_ids": []any{int64(0), int64(2)}},
		`{"logit_bias":{"50256":-100}}`:                 {"logit_bias": map[string]any{"50256": -100.0}},
		`{"ignore_eos":true}`:                           {"ignore_eos": true},
		`{"logprobs":1}`:                                {"logprobs": int64(1)},
		`{"logprobs":false}`:                            {"logprobs": false},
		`{"logprobs":true}`:                             {"logprobs": true},

		`{"seed":-1}`: {},
		`{"watermarking":false,"thinking_token_budget":-1}`:             {"watermarking": false, "thinking_token_budget": int64(-1)},
		`{"repetition_detection":{"max_pattern_size":8,"min_count":3}}`: {"repetition_detection": map[string]any{"max_pattern_size": int64(8), "min_count": int64(3)}},
		`{"repetition_detection":{"max_pattern_size":0}}`:               {"repetition_detection": map[string]any{"max_pattern_size": int64(0)}},
		`{"structured_outputs":{"regex":"a+"}}`:                         {"structured_outputs": map[string]any{"regex": "a+"}},
		`{"structured_outputs":{"choice":["a","b"]}}`:                   {"structured_outputs": map[string]any{"choice": []any{"a", "b"}}},
		`{"structured_outputs":{"grammar":"root ::= \"a\""}}`:           {"structured_outputs": map[string]any{"grammar": `root ::= "a"`}},
		`{"extra_args":{"a":"x","b":1,"c":0.5,"d":[1,"y",2.5]}}`:        {"extra_args": map[string]any{"a": "x", "b": int64(1), "c": 0.5, "d": []any{int64(1), "y", 2.5}}},
		`{"extra_args":{"a":[],"b":9223372036854775807}}`:               {"extra_args": map[string]any{"a": []any{}, "b": int64(math.MaxInt64)}},
	} {
		got, warnings, err := MergeSampling(model(t, DefaultModel), decode(t, text))
		if err != nil || warnings != nil {
			t.Errorf("%s: warnings %q, error %v", text, warnings, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestMergeSampling_Refuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"temperature":-0.1}`: "must be a number of at least 0",
		`{"bad_words":"c"}`:    "a list of at most",
		`{"bad_words":[` + strings.Repeat(`"c",`, 100) + `"c"]}`: "a list of at most",
		`{"stop":[` + strings.Repeat(`"c",`, 100) + `"c"]}`:      "a string or a list of at most",
		`{"temperature":"hot"}`:                                  "must be a number",
		`{"temperature":1e999}`:                                  "must be a number",
		`{"temperature":true}`:                                   "must be a number",
		`{"top_p":0}`:                                            "above 0 and at most 1",
		`{"top_p":1.01}`:                                         "above 0 and at most 1",
		`{"top_k":-2}`:                                           "at least -1",
		`{"top_k":1.5}`:                                          "an integer",
		`{"min_p":1.1}`:                                          "from 0 to 1",
		`{"max_tokens":0}`:                                       "at least 1",
		`{"max_tokens":"512"}`:                                   "an integer",
		`{"repetition_penalty":0}`:                               "above 0",
		`{"presence_penalty":2.1}`:                               "from -2 to 2",
		`{"frequency_penalty":-2.1}`:                             "from -2 to 2",
		`{"seed":9223372036854775808}`:                           "64 bits",
		`{"n":2}`:                                                "must be 1",
		`{"best_of":2}`:                                          "is not supported",
		`{"guided_json":{}}`:                                     "use json_schema",
		`{"max_new_tokens":5}`:                                   "use max_tokens",
		`{"temprature":1}`:                                       `did you mean "temperature"?`,
		`{"zzz":1}`:                                              "known are",
		`{"stop":[1]}`:                                           "a string or a list",
		`{"stop":[""]}`:                                          "a string or a list",
		`{"stop_token_ids":[-1]}`:                                "token ids",
		`{"stop_token_ids":5}`:                                   "token ids",
		`{"logit_bias":{"x":1}}`:                                 "token ids",
		`{"logit_bias":{"1":101}}`:                               "-100 to 100",
		`{"ignore_eos":1}`:                                       "true or false",
		`{"logprobs":21}`:                                        "from 0 to 20",
		`{"logprobs":"no"}`:                                      "true, false, or an integer",
		`{"repetition_detection":{"x":1}}`:                       "max_pattern_size",

		`{"repetition_detection":{"max_pattern_size":8}}`:               "min_count at least 2",
		`{"repetition_detection":{"max_pattern_size":8,"min_count":1}}`: "min_count at least 2",
		`{"repetition_detection":{"min_pattern_size":8,"min_count":2}}`: "min_pattern_size at most max_pattern_size",
		`{"thinking_token_budget":-2}`:                                  "at least -1",
		`{"structured_outputs":"a+"}`:                                   "an object with one of",
		`{"structured_outputs":{}}`:                                     "an object with one of",
		`{"structured_outputs":{"json":{}}}`:                            "the job's json_schema",
		`{"structured_outputs":{"regex":"a","choice":["a"]}}`:           "an object with one of",
		`{"structured_outputs":{"regex":["a"]}}`:                        "an object with one of",
		`{"structured_outputs":{"choice":["a",1]}}`:                     "an object with one of",
		`{"extra_args":[]}`:                                             "an object of at most 64 names",
		`{"extra_args":{"a":{}}}`:                                       "strings, numbers, or lists",
		`{"extra_args":{"a":true}}`:                                     "strings, numbers, or lists",
		`{"extra_args":{"a":[[1]]}}`:                                    "strings, numbers, or lists",
		`{"extra_args":{"":1}}`:                                         "strings, numbers, or lists",
		`{"extra_args":{"a":18446744073709551616}}`:                     "integers 64 bits",
		`{"extra_args":{"a":"` + strings.Repeat("x", 1025) + `"}}`:      "at most 1024 bytes",
		`{"extra_args":{"a":[` + strings.Repeat("1,", 64) + `1]}}`:      "lists of at most 64",
		`{"extra_args":{"kv_transfer_params":"x"}}`:                     "without kv_transfer_params",
		`{"extra_args":{"diffusion_canvas_length":"x"}}`:                "without diffusion_canvas_length",
		`{"vllm_xargs":{}}`:                                             "use extra_args",
		`{"guided_regex":"a"}`:                                          "use structured_outputs",

		`{"min_tokens":10,"max_tokens":5}`:           "must not exceed max_tokens",
		`{"` + strings.Repeat("x", 1000) + `":null}`: "known are",
	} {
		_, _, err := MergeSampling(model(t, DefaultModel), decode(t, text))
		if err == nil {
			t.Errorf("%s was accepted", text)
			continue
		}
		if err.Code != CodeInvalidSampling || len(err.Fields) != 1 || !strings.HasPrefix(err.Fields[0].Field, "sampling_params.") ||
			!strings.Contains(err.Fields[0].Message, want) || len(err.Fields[0].Field) > 100 {
			t.Errorf("%s: %s %+v, want %q", text, err.Code, err.Fields, want)
		}
	}
}

func TestMergeSampling_NamesAllFaults(t *testing.T) {
	t.Parallel()
	_, _, err := MergeSampling(model(t, DefaultModel), decode(t, `{"top_p":0,"min_p":2,"stream":true}`))
	if err == nil || len(err.Fields) != 3 || err.Fields[0].Field != "sampling_params.min_p" {
		t.Errorf("error %+v, want three fields sorted by name", err)
	}
}

func TestMergeSampling_MaxTokensAgainstContext(t *testing.T) {
	t.Parallel()
	m := rowmill.Model{ID: "small", Kind: rowmill.KindGeneration, ContextLength: 1000, Sampling: map[string]any{"max_tokens": int64(1000)}}
	got, warnings, err := MergeSampling(m, nil)
	if err != nil || got["max_tokens"] != int64(500) || len(warnings) != 1 || !strings.Contains(warnings[0], "lowered to 500") {
		t.Errorf("default: %v, %q, %v; want half the context and a warning", got, warnings, err)
	}
	if _, _, err = MergeSampling(m, decode(t, `{"max_tokens":1000}`)); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("caller's: error %v, want one about room", err)
	}
	if got, warnings, err = MergeSampling(m, decode(t, `{"max_tokens":999}`)); err != nil || warnings != nil || got["max_tokens"] != int64(999) {
		t.Errorf("caller's that fits: %v, %q, %v", got, warnings, err)
	}
}

func TestMergeSampling_EmbeddingsTakeNone(t *testing.T) {
	t.Parallel()
	m := model(t, "qwen-3-embedding-0.6b")
	got, warnings, err := MergeSampling(m, decode(t, `{"top_p":0.5,"max_tokens":3}`))
	if err != nil || got == nil || len(got) != 0 || len(warnings) != 1 || !strings.Contains(warnings[0], "max_tokens, top_p ignored") {
		t.Errorf("%v, %q, %v", got, warnings, err)
	}
	if _, _, err := MergeSampling(m, decode(t, `{"top_p":5}`)); err == nil {
		t.Error("an ill-typed parameter was accepted")
	}
}

// These are the members of vLLM's SamplingParams in 0.32, and older ones that clients
// still send. Each is accepted or refused with a reason; none is unknown.
func TestMergeSampling_KnowsSamplingParams(t *testing.T) {
	t.Parallel()
	for _, name := range strings.Fields(`n presence_penalty frequency_penalty repetition_penalty temperature watermarking top_p top_k min_p
		seed stop stop_token_ids ignore_eos max_tokens min_tokens logprobs prompt_logprobs prompt_logprob_token_ids prompt_logprob_start
		logprob_token_ids flat_logprobs detokenize skip_special_tokens spaces_between_special_tokens include_stop_str_in_output output_kind
		stream_interval skip_clone output_text_buffer_length structured_outputs logit_bias allowed_token_ids extra_args bad_words
		skip_reading_prefix_cache thinking_token_budget repetition_detection routed_experts_prompt_start trace_decode_token_ids
		best_of use_beam_search length_penalty early_stopping logits_processors guided_decoding`) {
		_, taken := params[name]
		reason, isRefused := refused[name]
		if taken == isRefused || isRefused && reason == "" {
			t.Errorf("%s: taken %v, refused %v", name, taken, isRefused)
		}
	}
}
