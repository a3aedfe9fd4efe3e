package settings

import (
	"reflect"
	"regexp"
	"sort"
	"strings"

	"github.com/rowmill/rowmill/internal/spelling"
)

// keys lists the names of all settings, sorted. A list and its settings appear as
// engines and engines[].url.
func keys() []string {
	var keys []string
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		for name, field := range fieldsOf(t) {
			key, fieldType := join(path, name), field.Type
			switch {
			case fieldType.Kind() == reflect.Struct:
				walk(fieldType, key)
				continue
			case fieldType == secretType:
				keys = append(keys, key+fileSuffix, key+envSuffix, key+credentialSuffix)
			case fieldType.Kind() == reflect.Slice:
				walk(fieldType.Elem(), key+"[]")
			}
			keys = append(keys, key)
		}
	}
	walk(reflect.TypeFor[Settings](), "")
	sort.Strings(keys)
	return keys
}

// typeOf returns the type of a setting outside lists. For a key that names the place of
// a secret it returns the type of secrets.
func typeOf(key string) (reflect.Type, bool) {
	t := reflect.TypeFor[Settings]()
	for part := range strings.SplitSeq(key, ".") {
		if t.Kind() != reflect.Struct {
			return nil, false
		}
		fields := fieldsOf(t)
		field, known := fields[part]
		secret, _ := elsewhere(part, fields)
		switch {
		case known:
			t = field.Type
		case secret != "":
			t = secretType
		default:
			return nil, false
		}
	}
	return t, true
}

// envName returns the environment variable of a setting.
func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// suggest returns "; did you mean x?" for the candidate nearest to name, or nothing if
// none is near.
func suggest(name string, candidates []string) string {
	best, bestDistance := "", 3+len(name)/8
	for _, candidate := range candidates {
		if d := spelling.Distance(unindexed(name), candidate); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	// The right name in the wrong section differs in more letters than a typing error.
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

// index matches the index in engines[3].url.
var index = regexp.MustCompile(`\[\d*\]`)

// unindexed turns engines[3].url into engines[].url.
func unindexed(path string) string { return index.ReplaceAllLiteralString(path, "[]") }
