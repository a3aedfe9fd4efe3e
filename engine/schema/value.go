package schema

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// The library compares numbers as fractions of big integers. These get as many digits
// as the exponent says: 1e9999999 takes seconds, and for 1e-99999999 math/big returns a
// nil that the library does not handle. Within these limits a number takes
// microseconds.
const (
	// maxExponent limits an exponent in both directions: the smallest positive float64
	// is 4.9e-324, and not every JSON reader accepts more.
	maxExponent = 324
	// maxDigits limits the characters of a number: the longest exact decimal form of a
	// float64 has 1,077.
	maxDigits = 1100
)

// inRange reports whether a number is within the limits.
func inRange(n json.Number) bool {
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

// firstOutOfRange returns the JSON pointer and the shortened text of the first number
// beyond the limits, in a decoded value. number is empty if there is none.
func firstOutOfRange(value any) (place, number string) {
	switch value := value.(type) {
	case json.Number:
		if !inRange(value) {
			return "", textfmt.Shorten(string(value), 32)
		}
	case []any:
		for i, element := range value {
			if place, number = firstOutOfRange(element); number != "" {
				return "/" + strconv.Itoa(i) + place, number
			}
		}
	case map[string]any:
		for name, member := range value {
			if place, number = firstOutOfRange(member); number != "" {
				return "/" + pointer.Replace(textfmt.Shorten(name, 64)) + place, number
			}
		}
	}
	return "", ""
}

// pointer escapes a name for a JSON pointer (RFC 6901).
var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// levels returns the depth of objects and arrays in a decoded value.
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
