package catalog

import (
	"maps"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
)

// families are the default sampling parameters of model families. A model belongs to a
// family if its name begins with one of the prefixes. plain are the defaults of the
// family. thinking are the defaults of its reasoning models; if thinking is nil, plain
// applies to them too.
var families = []struct {
	prefixes        []string
	plain, thinking map[string]any
}{
	{[]string{"llama"}, newFamilyDefaults(0.75, 1, 0), nil},
	{[]string{"qwen-3", "qwen3"}, newFamilyDefaults(0.7, 0.8, 20), newFamilyDefaults(0.6, 0.95, 20)},
	{[]string{"gemma"}, newFamilyDefaults(0.95, 0.95, 64), nil},
}

func newFamilyDefaults(temperature, topP float64, topK int64) map[string]any {
	d := map[string]any{"temperature": temperature, "top_p": topP, "max_tokens": int64(4096), "repetition_penalty": 1.0}
	if topK > 0 {
		d["top_k"] = topK
	}
	return d
}

// FamilyDefaults returns the sampling defaults of a model's family in a new map. The
// map is empty for an unknown family and for an embedding model. FamilyDefaults ignores
// the case of the name and the part of the name up to its last slash.
func FamilyDefaults(name string, kind rowmill.Kind) map[string]any {
	name = strings.ToLower(name[strings.LastIndexByte(name, '/')+1:])
	for _, family := range families {
		for _, prefix := range family.prefixes {
			switch {
			case !strings.HasPrefix(name, prefix) || kind == rowmill.KindEmbedding:
			case kind == rowmill.KindReasoning && family.thinking != nil:
				return maps.Clone(family.thinking)
			default:
				return maps.Clone(family.plain)
			}
		}
	}
	return map[string]any{}
}

// reasoningWords are parts of a model's name that suggest that the model reasons.
var reasoningWords = []string{"thinking", "reason", "gpt-oss", "deepseek-r1", "-r1-", "qwq", "magistral"}

// HasReasoningName reports whether a model's name suggests that the model reasons.
func HasReasoningName(name string) bool {
	name = strings.ToLower(name)
	return strings.HasSuffix(name, "-r1") ||
		slices.ContainsFunc(reasoningWords, func(word string) bool { return strings.Contains(name, word) })
}
