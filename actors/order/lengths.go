package order

import (
	"math"
	"math/bits"
)

// Lengths learns how many tokens a job's answers have: by the size of the row, because
// long texts tend to get long answers, and by the position of the row, because tables
// are often sorted or grouped. The zero value has learned nothing.
//
// The logarithm of the length is modelled as a sum: mean + effect of the size + effect
// of the region. Each effect is the mean of the difference that the other terms do
// not explain, reduced towards 0 while it is based on few answers.
type Lengths struct {
	count  int64
	mean   float64 // of ln(1 + tokens)
	size   [sizes]effect
	region [regions]effect

	promptBytes, promptTokens int64
}

// An effect is the mean difference of some answers, and the number of these answers.
type effect struct {
	count float64
	mean  float64
}

const (
	// sizes is the number of size classes, two for each doubling.
	sizes = 64
	// regions is the number of equal parts of the input.
	regions = 64
	// priorWeight is the number of answers at which half of an effect is used.
	priorWeight = 4
	// explorationBonus raises the rank of a region without answers, so that each region is
	// tried early: an unknown region may have the longest rows.
	explorationBonus = 0.5
	// memory limits the weight of old answers, as a number of answers: if the input
	// changes, old data loses its influence.
	memory = 4096
	// sizeSlope is the assumption about size at the start: a text of twice the size gets
	// an answer that is 2^sizeSlope times as long.
	sizeSlope = 0.3
	// firstAnswer and firstRatio are the assumptions before the first answer: tokens of
	// an answer, and bytes of text per token.
	firstAnswer = 128
	firstRatio  = 4
)

// sizeClass returns the class of a text of n bytes.
func sizeClass(n int) int {
	if n == 0 {
		return 0
	}
	log := bits.Len(uint(n)) // n is in [2^(log-1), 2^log)
	half := 0
	if log > 1 && n>>(log-2)&1 == 1 {
		half = 1
	}
	return min(2*log-1+half, sizes-1)
}

// regionOf returns the region of row number position in an input of total rows.
func regionOf(position, total int64) int {
	return int(min(position*regions/max(total, 1), regions-1))
}

// Learn takes an accepted answer: the row's bytes and position, the prompt's tokens as
// counted by the server, and the answer's tokens.
func (l *Lengths) Learn(bytes int, position, total int64, promptTokens, outputTokens int64) {
	y := math.Log1p(float64(outputTokens))
	l.count++
	l.mean += (y - l.mean) / float64(min(l.count, memory))
	size, region := &l.size[sizeClass(bytes)], &l.region[regionOf(position, total)]
	left := y - l.mean
	size.learn(left - region.shrunk())
	region.learn(left - size.shrunk())
	l.promptBytes += int64(bytes)
	l.promptTokens += promptTokens
}

func (e *effect) learn(y float64) {
	e.count = min(e.count+1, memory)
	e.mean += (y - e.mean) / e.count
}

// shrunk returns the effect, reduced while there are few answers.
func (e *effect) shrunk() float64 { return e.mean * e.count / (e.count + priorWeight) }

// rank returns the rank of a cell: the expected logarithm of the answers' length, raised
// where little is known.
func (l *Lengths) rank(size, region int) float64 {
	s, r := &l.size[size], &l.region[region]
	known := s.count / (s.count + priorWeight)
	prior := sizeSlope * math.Ln2 / 2 * float64(size-sizes/2)
	return l.mean + s.shrunk() + (1-known)*prior + r.shrunk() + explorationBonus*priorWeight/(priorWeight+r.count)
}

// Expect returns the expected number of tokens in the answer to a row.
func (l *Lengths) Expect(bytes int, position, total int64) int64 {
	if l.count == 0 {
		return firstAnswer
	}
	y := l.mean + l.size[sizeClass(bytes)].shrunk() + l.region[regionOf(position, total)].shrunk()
	// The mean of a lognormal variable is above exp of the mean logarithm. The ratio is
	// not measured; meanOverMedian assumes it.
	return max(1, int64(math.Expm1(min(y, 20))*meanOverMedian))
}

// meanOverMedian is the approximate ratio between the mean and the median answer:
// exp(σ²/2) for σ = 0.75.
const meanOverMedian = 1.32

// PromptTokens estimates the tokens of a prompt from the bytes of its row.
func (l *Lengths) PromptTokens(bytes int) int64 {
	if l.promptTokens == 0 || l.promptBytes == 0 {
		return int64(bytes)/firstRatio + 1
	}
	return int64(float64(bytes)*float64(l.promptTokens)/float64(l.promptBytes)) + 1
}
