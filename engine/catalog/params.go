package catalog

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
)

// Limits of list-valued parameters. Servers compare every entry with every token, so a
// long list slows each row down.
const (
	maxStopStrings = 64     // entries of stop and of bad_words
	maxStopBytes   = 1024   // bytes of one entry of stop or bad_words
	maxTokenIDs    = 16_384 // entries of stop_token_ids, allowed_token_ids and logit_bias
	maxLogprobs    = 20     // alternatives per token: vLLM's default limit
	maxExtraArgs   = 64     // entries of extra_args and of each list in it
	maxExtraBytes  = 1024   // bytes of a name or a string in extra_args
)

// A parseFunc checks the value of a sampling parameter and converts it from
// decoded JSON or YAML into the form that a job stores (int64, float64, bool, string,
// []any, map[string]any). For a wrong value, problem describes a right value, such as
// "a number from 0 to 1".
type parseFunc func(v any) (clean any, problem string)

// params maps each sampling parameter that a caller may set to its parse function. They
// are the fields of vLLM's SamplingParams that make sense for a single row, with vLLM's
// ranges.
var params = map[string]parseFunc{
	"temperature":        numberParser(0, math.MaxFloat64, "a number of at least 0"),
	"top_p":              positiveParser(1, "a number above 0 and at most 1"),
	"top_k":              integerParser(-1, math.MaxInt32, "an integer of at least -1 (0 and -1 consider all tokens)"),
	"min_p":              numberParser(0, 1, "a number from 0 to 1"),
	"repetition_penalty": positiveParser(math.MaxFloat64, "a number above 0"),
	"presence_penalty":   numberParser(-2, 2, "a number from -2 to 2"),
	"frequency_penalty":  numberParser(-2, 2, "a number from -2 to 2"),
	"max_tokens":         integerParser(1, math.MaxInt32, "an integer of at least 1"),
	"min_tokens":         integerParser(0, math.MaxInt32, "an integer of at least 0"),
	"seed":               integerParser(math.MinInt64, math.MaxInt64, "an integer of at most 64 bits"),
	"logprobs":           parseLogprobs,

	"thinking_token_budget": integerParser(-1, math.MaxInt32, "an integer of at least -1 (-1 means no limit)"),

	"stop":      parseStopStrings,
	"bad_words": parseWordList,

	"stop_token_ids":    parseTokenIDs,
	"allowed_token_ids": parseTokenIDs,
	"logit_bias":        parseLogitBias,

	"ignore_eos":                    parseBool,
	"skip_special_tokens":           parseBool,
	"spaces_between_special_tokens": parseBool,
	"include_stop_str_in_output":    parseBool,

	"watermarking": parseBool,

	"repetition_detection": parseRepetitionDetection,
	"structured_outputs":   parseStructuredOutputs,
	"extra_args":           parseExtraArgs,

	"n": parseExactlyOne,
}

// refused maps parameters of vLLM or of other APIs that callers must not set to the
// reason. For these parameters the reason helps a caller more than the error for an
// unknown parameter.
var refused = map[string]string{
	"stream":                      "a batch job has no stream",
	"echo":                        "ask for the inputs with include_inputs when you fetch the results",
	"best_of":                     "one answer per row is generated; submit the row several times instead",
	"use_beam_search":             "servers no longer offer beam search",
	"length_penalty":              "servers no longer offer beam search",
	"early_stopping":              "servers no longer offer beam search",
	"top_logprobs":                "log probabilities cover the chosen tokens only; they are recorded without it",
	"prompt_logprobs":             "log probabilities cover the answer only",
	"prompt_logprob_token_ids":    "log probabilities cover the answer only",
	"prompt_logprob_start":        "log probabilities cover the answer only",
	"logprob_token_ids":           "log probabilities cover the chosen tokens only",
	"flat_logprobs":               "the service chooses the form of log probabilities",
	"logits_processors":           "code cannot be sent to the server",
	"output_kind":                 "the service decides how answers are sent",
	"stream_interval":             "the service decides how answers are sent",
	"skip_clone":                  "the server sets it itself",
	"output_text_buffer_length":   "the server sets it itself",
	"detokenize":                  "answers are text",
	"skip_reading_prefix_cache":   "the service decides how the server caches",
	"routed_experts_prompt_start": "results do not contain the routing of experts",
	"trace_decode_token_ids":      "the model must choose the tokens",
	"response_format":             "use json_schema, beside sampling_params, or structured_outputs",
	"guided_json":                 "use json_schema, beside sampling_params",
	"guided_regex":                "use structured_outputs, as {\"regex\": …}",
	"guided_choice":               "use structured_outputs, as {\"choice\": […]}",
	"guided_grammar":              "use structured_outputs, as {\"grammar\": …}",
	"guided_decoding":             "use structured_outputs",
	"guided_decoding_backend":     "the server chooses the backend; leave it out",
	"guided_whitespace_pattern":   "it is a setting of the server; leave it out",
	"structural_tag":              "it is for tool calls, which rows do not have; use structured_outputs, as {\"grammar\": …}",
	"regex":                       "use structured_outputs, as {\"regex\": …}",
	"grammar":                     "use structured_outputs, as {\"grammar\": …}",
	"ebnf":                        "use structured_outputs, as {\"grammar\": …}",
	"vllm_xargs":                  "use extra_args",
	"max_completion_tokens":       "use max_tokens",
	"max_new_tokens":              "use max_tokens",
	"min_new_tokens":              "use min_tokens",
	"repeat_penalty":              "use repetition_penalty",
	"no_stop_trim":                "use include_stop_str_in_output",
	"stop_sequences":              "use stop",
}

// numberParser returns a parse function that accepts numbers from low to high.
func numberParser(low, high float64, rule string) parseFunc {
	return func(v any) (any, string) {
		f, ok := rowmill.AsFloat(v)
		if !ok || f < low || f > high {
			return nil, rule
		}
		return f, ""
	}
}

// positiveParser returns a parse function that accepts numbers above 0 up to high.
func positiveParser(high float64, rule string) parseFunc {
	return func(v any) (any, string) {
		f, ok := rowmill.AsFloat(v)
		if !ok || f <= 0 || f > high {
			return nil, rule
		}
		return f, ""
	}
}

// integerParser returns a parse function that accepts integers from low to high.
func integerParser(low, high int64, rule string) parseFunc {
	return func(v any) (any, string) {
		i, ok := rowmill.AsInt(v)
		if !ok || i < low || i > high {
			return nil, rule
		}
		return i, ""
	}
}

// parseLogprobs checks the parameter logprobs: a number of alternatives as in vLLM, or a
// boolean as in the chat completions API.
func parseLogprobs(v any) (any, string) {
	if _, is := v.(bool); is {
		return v, ""
	}
	return integerParser(0, maxLogprobs, fmt.Sprintf("true, false, or an integer from 0 to %d", maxLogprobs))(v)
}

func parseBool(v any) (any, string) {
	if _, ok := v.(bool); !ok {
		return nil, "true or false"
	}
	return v, ""
}

func parseExactlyOne(v any) (any, string) {
	if i, ok := rowmill.AsInt(v); !ok || i != 1 {
		return nil, "1: a row has one answer; for more, send the row several times, with random_seed_per_input"
	}
	return int64(1), ""
}

func parseStopStrings(v any) (any, string) {
	if text, ok := v.(string); ok {
		v = []any{text}
	}
	clean, problem := parseWordList(v)
	if problem != "" {
		return nil, "a string or " + problem
	}
	return clean, ""
}

func parseWordList(v any) (any, string) {
	rule := fmt.Sprintf("a list of at most %d strings of 1 to %d bytes each", maxStopStrings, maxStopBytes)
	list, ok := v.([]any)
	if !ok || len(list) > maxStopStrings {
		return nil, rule
	}
	for _, entry := range list {
		text, ok := entry.(string)
		if !ok || text == "" || len(text) > maxStopBytes || !utf8.ValidString(text) {
			return nil, rule
		}
	}
	return list, ""
}

func parseTokenIDs(v any) (any, string) {
	rule := fmt.Sprintf("a list of at most %d token ids, integers of at least 0", maxTokenIDs)
	list, ok := v.([]any)
	if !ok || len(list) > maxTokenIDs {
		return nil, rule
	}
	clean := make([]any, len(list))
	for i, entry := range list {
		id, ok := rowmill.AsInt(entry)
		if !ok || id < 0 || id > math.MaxInt32 {
			return nil, rule
		}
		clean[i] = id
	}
	return clean, ""
}

func parseLogitBias(v any) (any, string) {
	rule := fmt.Sprintf("an object of at most %d token ids with numbers from -100 to 100", maxTokenIDs)
	table, ok := v.(map[string]any)
	if !ok || len(table) > maxTokenIDs {
		return nil, rule
	}
	clean := make(map[string]any, len(table))
	for id, bias := range table {
		f, isNumber := rowmill.AsFloat(bias)
		if _, err := strconv.ParseUint(id, 10, 31); err != nil || !isNumber || f < -100 || f > 100 {
			return nil, rule
		}
		clean[id] = f
	}
	return clean, ""
}
