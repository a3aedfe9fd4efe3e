package rowmill

import (
	"encoding/json"
	"math"
	"strconv"
)

// AsInt returns v as an integer, from any number type of the JSON and YAML decoders;
// false if v is no integer. 3.0 is an integer.
func AsInt(v any) (int64, bool) {
	switch n := v.(type) {
	case int:
		return int64(n), true
	case int64:
		return n, true
	case uint64:
		return int64(n), n <= math.MaxInt64
	case float64:
		return int64(n), n == math.Trunc(n) && math.Abs(n) < 1<<53
	case json.Number:
		if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
			return i, true
		}
		f, err := n.Float64()
		if err != nil {
			return 0, false
		}
		return AsInt(f)
	}
	return 0, false
}

// AsFloat returns v as a finite number, from any number type of the JSON and YAML
// decoders; false if v is no finite number. A sampling parameter is an int64 or a float64 before
// its Spec is stored; after that, it is a json.Number.
func AsFloat(v any) (float64, bool) {
	switch n := v.(type) {
	case int:
		return float64(n), true
	case int64:
		return float64(n), true
	case uint64:
		return float64(n), true
	case float64:
		return n, !math.IsNaN(n) && !math.IsInf(n, 0)
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	}
	return 0, false
}
