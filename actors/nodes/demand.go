package nodes

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A Demand describes the unfinished rows of jobs with the same model.
type Demand struct {
	Model  string    `json:"model"`            // ID of the model
	Names  []string  `json:"names,omitempty"`  // further names that servers may use for the model
	Urgent bool      `json:"urgent,omitempty"` // some of the rows have priority 0
	Tokens int64     `json:"tokens"`           // about the number of tokens of the rows and their answers
	Since  time.Time `json:"since,omitzero"`   // since when the oldest of the jobs has had no server; zero if all have servers
}

// demandStep is the smallest change of the number of tokens that a node sends to other nodes,
// as a fraction.
const demandStep = 0.1

// IsCloseTo reports whether d differs from the earlier demand sent only by a small change of
// the number of tokens.
func (d Demand) IsCloseTo(sent Demand) bool {
	return d.Model == sent.Model && slices.Equal(d.Names, sent.Names) && d.Urgent == sent.Urgent && d.Since.Equal(sent.Since) &&
		(d.Tokens == 0) == (sent.Tokens == 0) && math.Abs(float64(d.Tokens-sent.Tokens)) <= demandStep*float64(sent.Tokens)
}

// SumDemand returns one Demand for each model in list, sorted by model.
func SumDemand(list []Demand) (sums []Demand) {
	for _, d := range list {
		i, found := slices.BinarySearchFunc(sums, d.Model, func(s Demand, model string) int { return cmp.Compare(s.Model, model) })
		if !found {
			sums = slices.Insert(sums, i, d)
			continue
		}
		s := &sums[i]
		s.Tokens += d.Tokens
		s.Urgent = s.Urgent || d.Urgent
		if s.Since.IsZero() || !d.Since.IsZero() && d.Since.Before(s.Since) {
			s.Since = d.Since
		}
	}
	return sums
}
