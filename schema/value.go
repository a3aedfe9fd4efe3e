package schema

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/rowmill/rowmill/spelling"
)

// Numbers are compared as fractions of big integers, which have as many digits
// as the exponent says: 1e9999999 takes seconds, 1e-99999999 is refused by
// math/big with a nil that the library does not expect. Within these bounds
// they take microseconds.
const (
	// maxExponent bounds an exponent as it is written, either way: the smallest
	// float64 above zero is 4.9e-324, and no reader of JSON is sure to take more.
	maxExponent = 324
	// maxDigits bounds the characters of a number: the longest float64 that is
	// written out exactly has 1,077.
	maxDigits = 1100
)

// usable reports whether a number is within the bounds.
func usable(n json.Number) bool {
	if len(n) > maxDigits {
		return false
	}
	at := strings.IndexAny(string(n), "eE")
	if at < 0 {
		return true
	}
	exponent, err := strconv.Atoi(string(n[at+1:]))
	return err == nil && -maxExponent <= exponent && exponent <= maxExponent
}

// unusable returns the first number of a decoded value that is out of bounds,
// shortened, and its JSON pointer; no number where there is none.
func unusable(value any) (place, number string) {
	switch value := value.(type) {
	case json.Number:
		if !usable(value) {
			return "", spelling.Shorten(string(value), 32)
		}
	case []any:
		for i, element := range value {
			if place, number = unusable(element); number != "" {
				return "/" + strconv.Itoa(i) + place, number
			}
		}
	case map[string]any:
		for name, member := range value {
			if place, number = unusable(member); number != "" {
				return "/" + pointer.Replace(spelling.Shorten(name, 64)) + place, number
			}
		}
	}
	return "", ""
}

// pointer escapes a name as a step of a JSON pointer (RFC 6901).
var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// levels is the depth of objects and arrays in a decoded value.
func levels(value any) (deepest int) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			deepest = max(deepest, levels(element))
		}
	case map[string]any:
		for _, member := range value {
			deepest = max(deepest, levels(member))
		}
	default:
		return 0
	}
	return deepest + 1
}
