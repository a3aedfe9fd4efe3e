package catalog

import (
	"maps"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
)

// families are the default parameters of model families, by prefix of the model's name.
// For a family with a thinking variant, thinking holds the defaults of its reasoning
// models.
var families = []struct {
	prefixes        []string
	plain, thinking map[string]any
}{
	{[]string{"llama"}, defaults(0.75, 1, 0), nil},
	{[]string{"qwen-3", "qwen3"}, defaults(0.7, 0.8, 20), defaults(0.6, 0.95, 20)},
	{[]string{"gemma"}, defaults(0.95, 0.95, 64), nil},
}

func defaults(temperature, topP float64, topK int64) map[string]any {
	d := map[string]any{"temperature": temperature, "top_p": topP, "max_tokens": int64(4096), "repetition_penalty": 1.0}
	if topK > 0 {
		d["top_k"] = topK
	}
	return d
}

// FamilyDefaults returns the sampling defaults of a model's family as a new map. The map
// is empty for unknown families and for embedding models. FamilyDefaults ignores case, and
// the part of the name up to the last slash.
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

// reasoningWords are parts of the names of reasoning models.
var reasoningWords = []string{"thinking", "reason", "gpt-oss", "deepseek-r1", "-r1-", "qwq", "magistral"}

// HasReasoningName reports whether the name of a model suggests that it reasons.
func HasReasoningName(name string) bool {
	name = strings.ToLower(name)
	return strings.HasSuffix(name, "-r1") ||
		slices.ContainsFunc(reasoningWords, func(word string) bool { return strings.Contains(name, word) })
}
