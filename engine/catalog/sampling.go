package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// CodeInvalidSampling is the error code for invalid sampling parameters.
const CodeInvalidSampling = "invalid_sampling_params"

// MergeSampling checks a caller's sampling parameters and merges them with the defaults
// of model m; the caller's values win. A null counts as absent. The result is never nil.
// Its numbers are int64 for integer parameters and float64 for other parameters; stop is
// a list of strings.
//
// If max_tokens leaves no room for a prompt in the model's context, a max_tokens of the
// caller is an error, and a default max_tokens becomes half the context, with a warning.
// A context length of 0 means unknown. An embedding model has no sampling parameters:
// MergeSampling checks the caller's parameters, then drops them with a warning.
func MergeSampling(m rowmill.Model, caller map[string]any) (effective map[string]any, warnings []string, err *rowmill.InvalidError) {
	given, faults := checkSampling(caller)

	if m.Kind == rowmill.KindEmbedding {
		if len(faults) > 0 {
			return nil, nil, &rowmill.InvalidError{Code: CodeInvalidSampling, Fields: faults}
		}
		if len(given) > 0 {
			names := slices.Sorted(maps.Keys(given))
			warnings = append(warnings, fmt.Sprintf(
				"sampling_params: %s ignored: %s is an embedding model and generates no text", strings.Join(names, ", "), m.ID))
		}
		return map[string]any{}, warnings, nil
	}

	effective = maps.Clone(m.Sampling)
	if effective == nil {
		effective = map[string]any{}
	}
	maps.Copy(effective, given)
	delete(effective, "n") // n is always 1
	if effective["seed"] == int64(-1) {
		delete(effective, "seed") // for servers, -1 means no seed
	}

	if limit, isInt := effective["max_tokens"].(int64); isInt && m.ContextLength > 0 && limit >= int64(m.ContextLength) {
		if _, callers := given["max_tokens"]; callers {
			faults = append(faults, samplingFault("max_tokens",
				"%d leaves no room for a prompt in the context of %s, %d tokens; use a smaller value", limit, m.ID, m.ContextLength))
		} else {
			half := int64(m.ContextLength / 2)
			effective["max_tokens"] = half
			warnings = append(warnings, fmt.Sprintf(
				"sampling_params: the default max_tokens of %d was lowered to %d, half the context of %s", limit, half, m.ID))
		}
	}
	if fewest, isInt := effective["min_tokens"].(int64); isInt {
		if most, isInt := effective["max_tokens"].(int64); isInt && fewest > most {
			faults = append(faults, samplingFault("min_tokens", "%d must not exceed max_tokens, %d", fewest, most))
		}
	}
	if len(faults) > 0 {
		return nil, nil, &rowmill.InvalidError{Code: CodeInvalidSampling, Fields: faults}
	}
	return effective, warnings, nil
}

// checkSampling returns the valid parameters in the form that a job stores, without
// nulls. faults has an entry for each parameter that is unknown, refused or out of
// range, sorted by name.
func checkSampling(given map[string]any) (clean map[string]any, faults []rowmill.FieldError) {
	clean = make(map[string]any, len(given))
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		if reason, known := refused[name]; known {
			faults = append(faults, samplingFault(name, "is not supported: %s", reason))
			continue
		}
		rule, known := params[name]
		if !known {
			faults = append(faults, unknownParamError(name))
			continue
		}
		if value == nil {
			continue
		}
		kept, problem := rule(value)
		if problem != "" {
			faults = append(faults, samplingFault(name, "must be %s", problem))
			continue
		}
		clean[name] = kept
	}
	return clean, faults
}

// unknownParamError returns the error for an unknown parameter, with the most similar known
// name.
func unknownParamError(name string) rowmill.FieldError {
	if near := NearestName(name, slices.Sorted(maps.Keys(params))); near != "" {
		return samplingFault(name, "is not a sampling parameter; did you mean %q?", near)
	}
	return samplingFault(name, "is not a sampling parameter; known are %s", strings.Join(slices.Sorted(maps.Keys(params)), ", "))
}

// samplingFault returns an error about the sampling parameter name, with the full name
// of the request field. It shortens a long name, because the caller chose the name.
func samplingFault(name, format string, args ...any) rowmill.FieldError {
	return rowmill.FieldError{Field: "sampling_params." + textfmt.Shorten(name, 64), Message: fmt.Sprintf(format, args...)}
}

// NearestName returns the name with the smallest edit distance to word, without regard to
// case. It returns "" if more than a third of the letters of word would have to change.
func NearestName(word string, names []string) string {
	word = strings.ToLower(word)
	if len(word) > 128 {
		return ""
	}
	best, found := len(word)/3+1, ""
	for _, name := range names {
		if d := textfmt.EditDistance(word, strings.ToLower(name)); d < best {
			best, found = d, name
		}
	}
	return found
}
