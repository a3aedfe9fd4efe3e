package catalog

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
)

// reservedArgs are the names in extra_args that vLLM's own components use. vLLM does
// not check the type of their values, and a wrong type crashes the server.
var reservedArgs = []string{"kv_transfer_params", "ec_transfer_params", "kv_cache_report_mode"}

// reservedArgPrefix is the prefix of the names in extra_args that vLLM's diffusion
// models use.
const reservedArgPrefix = "diffusion_"

// parseStructuredOutputs checks the parameter structured_outputs, which must have exactly
// one rule. It does not accept a JSON Schema, which belongs in the job's json_schema.
// Package schema checks the content of the rule.
func parseStructuredOutputs(v any) (any, string) {
	const must = "an object with one of regex (a string), choice (a list of strings) and grammar (a string); a JSON Schema is the job's json_schema"
	table, ok := v.(map[string]any)
	if !ok || len(table) != 1 {
		return nil, must
	}
	for name, rule := range table {
		switch rule := rule.(type) {
		case string:
			ok = name == "regex" || name == "grammar"
		case []any:
			ok = name == "choice" && !slices.ContainsFunc(rule, func(v any) bool { _, is := v.(string); return !is })
		default:
			ok = false
		}
	}
	if !ok {
		return nil, must
	}
	return table, ""
}

// parseExtraArgs checks the parameter extra_args. It accepts the values that vLLM accepts as
// vllm_xargs: strings, numbers, and lists of strings and numbers.
func parseExtraArgs(v any) (any, string) {
	must := fmt.Sprintf("an object of at most %d names, with strings, numbers, or lists of at most %d of them; names and strings have at most %d bytes, integers 64 bits",
		maxExtraArgs, maxExtraArgs, maxExtraBytes)
	table, ok := v.(map[string]any)
	if !ok || len(table) > maxExtraArgs {
		return nil, must
	}
	clean := make(map[string]any, len(table))
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if slices.Contains(reservedArgs, name) || strings.HasPrefix(name, reservedArgPrefix) {
			return nil, "without " + name + ", which servers reserve for their own components; leave it out"
		}
		list, isList := table[name].([]any)
		if !isList {
			list = []any{table[name]}
		}
		if name == "" || len(name) > maxExtraBytes || len(list) > maxExtraArgs {
			return nil, must
		}
		values := make([]any, len(list))
		for i, entry := range list {
			if values[i] = parseScalar(entry); values[i] == nil {
				return nil, must
			}
		}
		if clean[name] = values; !isList {
			clean[name] = values[0]
		}
	}
	return clean, ""
}

// parseScalar returns a string or a number in the form that a job stores; nil for any other
// value.
func parseScalar(v any) any {
	if text, is := v.(string); is {
		if len(text) > maxExtraBytes || !utf8.ValidString(text) {
			return nil
		}
		return text
	}
	if i, is := rowmill.AsInt(v); is {
		return i
	}
	if f, is := rowmill.AsFloat(v); is && (math.Abs(f) < 1<<53 || f != math.Trunc(f)) { // refuses a whole number that is too large for rowmill.AsInt
		return f
	}
	return nil
}

// parseRepetitionDetection checks the parameter repetition_detection.
func parseRepetitionDetection(v any) (any, string) {
	const (
		least, most, count = "min_pattern_size", "max_pattern_size", "min_count"
		must               = "an object of " + most + ", " + least + " and " + count + " with integers of at least 0"
	)
	table, ok := v.(map[string]any)
	if !ok || len(table) == 0 {
		return nil, must
	}
	sizes, clean := map[string]int64{}, make(map[string]any, len(table))
	for name, value := range table {
		i, isInt := rowmill.AsInt(value)
		known := name == least || name == most || name == count
		if !known || !isInt || i < 0 || i > math.MaxInt32 {
			return nil, must
		}
		sizes[name], clean[name] = i, i
	}
	if sizes[least] > sizes[most] || sizes[count] < 2 && sizes[most] > 0 {
		return nil, must + ", " + least + " at most " + most + ", and " + count + " at least 2"
	}
	return clean, ""
}
