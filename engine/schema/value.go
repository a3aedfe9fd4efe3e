package schema

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// The validation library compares numbers as fractions of big integers, which have as
// many digits as the exponent says. So 1e9999999 takes seconds, and for 1e-99999999
// math/big returns nil, which the library does not handle. A number within these limits
// takes microseconds.
const (
	// maxExponent limits an exponent in both directions. The smallest positive float64
	// is 4.9e-324, and some JSON readers refuse more.
	maxExponent = 324
	// maxDigits limits the characters of a number. The longest exact decimal form of a
	// float64 has 1,077.
	maxDigits = 1100
)

// isInRange reports whether n is within maxDigits and maxExponent.
func isInRange(n json.Number) bool {
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

// findOutOfRange finds the first number in a decoded JSON value that is not isInRange.
// It returns the JSON pointer to the number and its shortened text. number is empty if
// all numbers are in range.
func findOutOfRange(value any) (place, number string) {
	switch value := value.(type) {
	case json.Number:
		if !isInRange(value) {
			return "", textfmt.Shorten(string(value), 32)
		}
	case []any:
		for i, element := range value {
			if place, number = findOutOfRange(element); number != "" {
				return "/" + strconv.Itoa(i) + place, number
			}
		}
	case map[string]any:
		for name, member := range value {
			if place, number = findOutOfRange(member); number != "" {
				return "/" + pointer.Replace(textfmt.Shorten(name, 64)) + place, number
			}
		}
	}
	return "", ""
}

// pointer escapes a name for use in a JSON pointer (RFC 6901).
var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// nestingDepth returns how deep objects and arrays are nested in a decoded JSON value.
func nestingDepth(value any) (deepest int) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			deepest = max(deepest, nestingDepth(element))
		}
	case map[string]any:
		for _, member := range value {
			deepest = max(deepest, nestingDepth(member))
		}
	default:
		return 0
	}
	return deepest + 1
}
