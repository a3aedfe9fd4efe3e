package settings

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// types returns the types of all settings and sections. The key is the name; a list and
// its settings have names such as engines and engines[].url.
var types = sync.OnceValue(func() map[string]reflect.Type {
	types := map[string]reflect.Type{}
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		for name, field := range settingFields(t) {
			key := joinPath(path, name)
			types[key] = field.Type
			switch {
			case field.Type.Kind() == reflect.Struct:
				walk(field.Type, key)
			case field.Type.Kind() == reflect.Slice:
				walk(field.Type.Elem(), key+"[]")
			case field.Type == secretType:
				for _, suffix := range suffixes {
					types[key+suffix] = secretType
				}
			}
		}
	}
	walk(reflect.TypeFor[Settings](), "")
	return types
})

// settingNames lists the names of all settings, sorted.
func settingNames() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(types())), func(key string) bool { return types()[key].Kind() == reflect.Struct })
}

// settingType returns the type of a setting or section. The second result is false for an
// unknown key and for a key within a list. A key that says where a secret is, such as
// api_key_file, has the type of secrets.
func settingType(key string) (reflect.Type, bool) {
	t, known := types()[key]
	return t, known && !strings.Contains(key, "[")
}

// envName returns the environment variable of a setting.
func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// formatSuggestion returns "; did you mean x?" for the candidate that is most similar to name,
// or a hint at `rowmill config print` if none is similar.
func formatSuggestion(name string, candidates []string) string {
	best, bestDistance := "", 3+len(name)/8
	for _, candidate := range candidates {
		if d := textfmt.EditDistance(stripIndexes(name), candidate); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	// A right name in the wrong section differs in too many letters, so compare only
	// the end of the name.
	if best == "" {
		last := strings.TrimPrefix(name[strings.LastIndexByte(name, '.')+1:], envPrefix)
		for _, candidate := range candidates {
			within := strings.HasSuffix(candidate, "."+last) || strings.HasSuffix(candidate, "_"+last)
			if within && (best == "" || len(candidate) < len(best)) {
				best = candidate
			}
		}
	}
	if best == "" {
		return "; `rowmill config print` lists all keys"
	}
	return "; did you mean " + best + "?"
}

// index matches an index in a name, such as [3] in engines[3].url.
var index = regexp.MustCompile(`\[\d*\]`)

// stripIndexes turns engines[3].url into engines[].url.
func stripIndexes(path string) string { return index.ReplaceAllLiteralString(path, "[]") }
