package order

import (
	"math"
	"math/bits"
)

// LengthEstimator learns how many tokens the answers of a job have. The expectation depends on
// the size of the row, because long texts tend to get long answers, and on the position
// of the row, because tables are often sorted or grouped. The zero value has learned
// nothing.
//
// The logarithm of the length is modelled as a sum: mean + effect of the size class +
// effect of the region. Each effect is the mean of the difference that the other terms
// do not explain. It is reduced towards 0 while it is based on few answers.
type LengthEstimator struct {
	count  int64           // number of answers learned
	mean   float64         // mean of ln(1 + tokens of the answer)
	size   [sizes]effect   // by size class
	region [regions]effect // by region of the input

	promptBytes, promptTokens int64 // sums over all learned rows
}

// An effect is the mean difference of the answers of one size class or region, and
// their number.
type effect struct {
	count float64
	mean  float64
}

const (
	// sizes is the number of size classes: two for each doubling of the size.
	sizes = 64
	// regions is the number of equally long regions into which the input is divided.
	regions = 64
	// priorWeight is the number of answers with which half of an effect counts.
	priorWeight = 4
	// explorationBonus raises the rank of a region without answers, so that each region is
	// tried early: an unknown region may have the longest rows.
	explorationBonus = 0.5
	// memory is the maximum number of answers over which a mean is taken: if the input
	// changes, old answers lose their influence.
	memory = 4096
	// sizeSlope is the assumed effect of the size at the start: a text of twice the size gets
	// an answer that is 2^sizeSlope times as long.
	sizeSlope = 0.3
	// firstAnswer and firstRatio are assumed before the first answer: the tokens of an
	// answer, and the bytes of text per token.
	firstAnswer = 128
	firstRatio  = 4
)

// sizeClass returns the size class of a text of n bytes.
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

// Learn learns from an accepted answer: from the bytes and the position of the row, the
// tokens of the prompt as counted by the server, and the tokens of the answer. total is
// the number of rows of the job.
func (l *LengthEstimator) Learn(bytes int, position, total int64, promptTokens, outputTokens int64) {
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

// learn adds the difference y of an answer to the mean.
func (e *effect) learn(y float64) {
	e.count = min(e.count+1, memory)
	e.mean += (y - e.mean) / e.count
}

// shrunk returns the effect, reduced towards 0 while it is based on few answers.
func (e *effect) shrunk() float64 { return e.mean * e.count / (e.count + priorWeight) }

// rank returns the rank of a size class in a region: the expected logarithm of the
// answers' length, raised where few answers are known.
func (l *LengthEstimator) rank(size, region int) float64 {
	s, r := &l.size[size], &l.region[region]
	known := s.count / (s.count + priorWeight)
	prior := sizeSlope * math.Ln2 / 2 * float64(size-sizes/2)
	return l.mean + s.shrunk() + (1-known)*prior + r.shrunk() + explorationBonus*priorWeight/(priorWeight+r.count)
}

// AnswerTokens returns the expected number of tokens in the answer to a row.
func (l *LengthEstimator) AnswerTokens(bytes int, position, total int64) int64 {
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
func (l *LengthEstimator) PromptTokens(bytes int) int64 {
	if l.promptTokens == 0 || l.promptBytes == 0 {
		return int64(bytes)/firstRatio + 1
	}
	return int64(float64(bytes)*float64(l.promptTokens)/float64(l.promptBytes)) + 1
}
