package openai

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// commonParams are the sampling parameters that every kind of server supports under the
// same name as Rowmill.
var commonParams = []string{
	"temperature", "top_p", "stop", "presence_penalty", "frequency_penalty",
}

// paramsByKind maps a kind of server to its further sampling parameters, and each
// parameter to the name that the server uses. Sources: the protocols of vLLM, SGLang,
// llama.cpp and Ollama as of August 2026; Rowmill's simulated server follows vLLM.
var paramsByKind = map[string]map[string]string{
	kindVLLM: vllmParams,
	kindSim:  vllmParams,
	kindSGLang: {
		"top_k": "top_k", "min_p": "min_p", "repetition_penalty": "repetition_penalty",
		"logit_bias": "logit_bias", "ignore_eos": "ignore_eos",
		"stop_token_ids": "stop_token_ids", "min_tokens": "min_tokens",
		"skip_special_tokens": "skip_special_tokens", "include_stop_str_in_output": "no_stop_trim",
	},
	kindLlama: {
		"top_k": "top_k", "min_p": "min_p", "repetition_penalty": "repeat_penalty",
		"logit_bias": "logit_bias", "ignore_eos": "ignore_eos",
	},
	kindOllama: {},
	kindOther:  {"logit_bias": "logit_bias"},
}

// vllmParams maps sampling parameters to the names that vLLM uses.
var vllmParams = map[string]string{
	"top_k": "top_k", "min_p": "min_p", "repetition_penalty": "repetition_penalty",
	"logit_bias": "logit_bias", "ignore_eos": "ignore_eos",
	"stop_token_ids": "stop_token_ids", "min_tokens": "min_tokens", "bad_words": "bad_words",
	"allowed_token_ids": "allowed_token_ids", "skip_special_tokens": "skip_special_tokens",
	"spaces_between_special_tokens": "spaces_between_special_tokens",
	"include_stop_str_in_output":    "include_stop_str_in_output",
	"thinking_token_budget":         "thinking_token_budget",
	"repetition_detection":          "repetition_detection",
	"watermarking":                  "watermarking",
	"extra_args":                    "vllm_xargs",
}

// paramSince maps a sampling parameter to the first vLLM release that supports it.
// Older releases ignore the parameter without an error. Every supported release (0.11
// and newer) has the parameters that are missing here. Sources: vLLM pull request
// 35451, released in 0.17, and the releases that Dynamo requires for the thinking
// budget. watermarking was seen in 0.32; its first release is unknown.
var paramSince = map[string]releaseVersion{
	"repetition_detection":  {0, 17, 0},
	"thinking_token_budget": {0, 20, 0},
	"watermarking":          {0, 32, 0},
}

// logprobsWithoutAlternatives lists the kinds of server that return only the log probability of each
// chosen token if a request sets logprobs without top_logprobs. This is the cheapest
// request: Ollama sorts its whole vocabulary for the first alternative. For the same
// request llama.cpp returns 20 alternatives, and for top_logprobs 0 it returns no log
// probabilities; llama-cpp-python (kind openai) also returns none. bench/engines.md
// lists the costs.
var logprobsWithoutAlternatives = map[string]bool{kindVLLM: true, kindSGLang: true, kindOllama: true, kindSim: true}

// ollamaLogprobs is the first Ollama release with log probabilities.
var ollamaLogprobs = releaseVersion{0, 12, 11}

// inDefaults are the sampling parameters that models of the catalog set by default. If
// a server does not support such a parameter, the job runs with a warning. Any other
// unsupported parameter is an error, because a caller must have set it.
var inDefaults = map[string]bool{"top_k": true, "min_p": true, "repetition_penalty": true}

// explicitDefaults maps a kind of server to the values that Rowmill sends for
// parameters that the job does not set. The server's own defaults would truncate the
// distribution (llama.cpp: top_k 40, min_p 0.05).
var explicitDefaults = map[string]map[string]any{
	kindLlama: {"top_k": 0, "min_p": 0},
}

// handledElsewhere are sampling parameters that other code puts into the request.
var handledElsewhere = map[string]bool{"max_tokens": true, "seed": true, "logprobs": true, "n": true, "structured_outputs": true}

// reserved are request fields that only Rowmill sets; request_extras must not set them.
var reserved = map[string]bool{
	"model": true, "messages": true, "input": true, "encoding_format": true, "stream": true,
	"response_format": true, "logprobs": true, "top_logprobs": true, "seed": true, "n": true,
	"stream_options": true, "structured_outputs": true,
}

// A requestField is one field of a request's body.
type requestField struct {
	name  string
	value any
}

// translateSampling returns the sampling parameters as request fields, with the names that the
// server t uses, in a fixed order. For an unsupported parameter it returns an error or
// a warning.
func translateSampling(t modelTarget, sampling map[string]any) (fields []requestField, warnings []string, err error) {
	kind := t.kind
	for _, name := range slices.Sorted(maps.Keys(sampling)) {
		value := sampling[name]
		switch {
		case handledElsewhere[name] || value == nil || mustOmitParam(name, value):
			continue
		case slices.Contains(commonParams, name):
			fields = append(fields, requestField{name, value})
			continue
		}
		if from := paramSince[name]; kind == kindVLLM && t.isOlderThan(from) && !hasNoEffect(name, value) {
			return nil, nil, fmt.Errorf("sampling parameter %s needs vLLM %v, the server runs %s: remove it, or update the server", name, from, t.version)
		}
		if name == "logit_bias" && kind == kindOther {
			value = withDecimalPoint(value)
		}
		if as, ok := paramsByKind[kind][name]; ok {
			fields = append(fields, requestField{as, value})
			continue
		}
		if _, known := vllmParams[name]; !known {
			return nil, nil, fmt.Errorf("sampling parameter %s is not known: remove it", name)
		}
		if hasNoEffect(name, value) && kind != kindOllama {
			continue // the value has no effect, so the field is not needed
		}
		if !inDefaults[name] {
			return nil, nil, fmt.Errorf("sampling parameter %s cannot be honoured by a server of kind %s: remove it, or use vLLM", name, kind)
		}
		warnings = append(warnings, fmt.Sprintf("%s is not supported by a server of kind %s: the server's own setting applies", name, kind))
	}
	for _, name := range slices.Sorted(maps.Keys(explicitDefaults[kind])) {
		if value, set := sampling[name]; !set || value == nil {
			fields = append(fields, requestField{paramsByKind[kind][name], explicitDefaults[kind][name]})
		}
	}
	if n, ok := rowmill.AsInt(sampling["n"]); sampling["n"] != nil && (!ok || n != 1) {
		return nil, nil, fmt.Errorf("sampling parameter n must be 1: a row has one answer")
	}
	return fields, warnings, nil
}

// withDecimalPoint returns a copy of a map with its integers written with a decimal
// point: transformers serve 5.19 answers HTTP 500 to a logit_bias of 1, but accepts
// 1.0.
func withDecimalPoint(value any) any {
	given, ok := value.(map[string]any)
	if !ok {
		return value
	}
	written := make(map[string]any, len(given))
	for key, value := range given {
		written[key] = value
		if n, ok := rowmill.AsInt(value); ok {
			written[key] = json.RawMessage(strconv.FormatInt(n, 10) + ".0")
		}
	}
	return written
}

// mustOmitParam reports whether a parameter's value has no effect and must not be sent,
// because some servers refuse it: vLLM refuses an empty allowed_token_ids.
func mustOmitParam(name string, value any) bool {
	budget, isInt := rowmill.AsInt(value)
	list, isList := value.([]any)
	return name == "thinking_token_budget" && isInt && budget < 0 || name == "allowed_token_ids" && isList && len(list) == 0
}

// hasNoEffect reports whether a parameter's value has no effect on servers that support the
// parameter.
func hasNoEffect(name string, value any) bool {
	number, isNumber := rowmill.AsFloat(value)
	switch name {
	case "top_k":
		return isNumber && number <= 0
	case "min_p", "min_tokens":
		return isNumber && number == 0
	case "repetition_penalty":
		return isNumber && number == 1
	case "ignore_eos", "include_stop_str_in_output":
		return value == false
	case "skip_special_tokens", "spaces_between_special_tokens":
		return value == true
	case "logit_bias", "extra_args":
		m, ok := value.(map[string]any)
		return ok && len(m) == 0
	case "stop_token_ids", "bad_words", "allowed_token_ids":
		list, ok := value.([]any)
		return ok && len(list) == 0
	}
	return false
}

// modelExtraFields checks a model's request_extras and returns them as fields in a fixed
// order. It leaves out the names in taken, which sampling parameters have already set.
func modelExtraFields(kind string, extras map[string]any, taken []requestField) (fields []requestField, warnings []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(extras)) {
		if reserved[name] {
			return nil, nil, fmt.Errorf("request_extras of the model must not set %s: Rowmill sets this field itself", name)
		}
		if slices.ContainsFunc(taken, func(p requestField) bool { return p.name == name }) {
			continue // the sampling parameter has priority
		}
		if kind == kindOllama && name == "chat_template_kwargs" {
			// Ollama has no chat_template_kwargs; reasoning_effort "none" switches thinking off.
			kwargs, _ := extras[name].(map[string]any)
			switch {
			case kwargs["enable_thinking"] == false && extras["reasoning_effort"] == nil:
				fields = append(fields, requestField{"reasoning_effort", "none"})
			case kwargs["enable_thinking"] != true || len(kwargs) > 1:
				warnings = append(warnings, "chat_template_kwargs is not supported by Ollama: Ollama's own template settings apply")
			}
			continue
		}
		fields = append(fields, requestField{name, extras[name]})
	}
	return fields, warnings, nil
}

// appendFields appends each field to dst as ,"name":value.
func appendFields(dst []byte, fields []requestField) ([]byte, error) {
	for _, f := range fields {
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, fmt.Errorf("field %s cannot be written as JSON: %w", f.name, err)
		}
		dst = append(dst, ',')
		dst = textfmt.AppendString(dst, []byte(f.name))
		dst = append(dst, ':')
		dst = append(dst, value...)
	}
	return dst, nil
}
