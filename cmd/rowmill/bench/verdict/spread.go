package verdict

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// A Spread is the median of repeated measurements, with the smallest and the largest
// value.
type Spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"min"`
	Most   float64 `json:"max"`
	N      int     `json:"n"` // number of repetitions; 0 if there is no value
}

// NewSpread returns the Spread of these values, which may be in any order.
func NewSpread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + median) / 2
	}
	return Spread{Median: median, Least: sorted[0], Most: sorted[len(sorted)-1], N: len(sorted)}
}

// Format formats the Spread for people. formatValue formats a single value.
func (s Spread) Format(formatValue func(float64) string) string {
	if s.N == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%s (%s–%s, n=%d)", formatValue(s.Median), formatValue(s.Least), formatValue(s.Most), s.N)
}

// MarshalJSON returns null if there is no value.
func (s Spread) MarshalJSON() ([]byte, error) {
	if s.N == 0 {
		return []byte("null"), nil
	}
	type plain Spread
	return json.Marshal(plain(s))
}

// divideRounds divides each value of the first list by the value of the same round in the
// second list. It leaves out rounds in which the second value is 0.
func divideRounds(numerators, denominators []float64) []float64 {
	var all []float64
	for i := range min(len(numerators), len(denominators)) {
		if denominators[i] > 0 {
			all = append(all, numerators[i]/denominators[i])
		}
	}
	return all
}

// slowestPart returns the PartCapacity with the lowest rows per second. It ignores parts
// without a known rate.
func slowestPart(parts []PartCapacity) (slowest PartCapacity, found bool) {
	for _, p := range parts {
		if p.Rows > 0 && (!found || cmp.Less(p.Rows, slowest.Rows)) {
			slowest, found = p, true
		}
	}
	return slowest, found
}
