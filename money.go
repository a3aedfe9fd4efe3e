package rowmill

import (
	"math"
	"math/bits"
	"strconv"
)

// Money is an amount of US dollars in whole trillionths. Being an integer, it
// sums to the same amount in any order and over any number of parts. It ends
// at about 9.2 million dollars: sums and products beyond stay there.
type Money int64

// dollar is one US dollar.
const dollar = 1e12

// MoneyOf returns the amount nearest to usd. What is not a number is zero.
func MoneyOf(usd float64) Money {
	switch scaled := math.Round(usd * dollar); {
	case math.IsNaN(scaled):
		return 0
	case scaled >= math.MaxInt64:
		return math.MaxInt64
	case scaled <= math.MinInt64:
		return math.MinInt64
	default:
		return Money(scaled)
	}
}

// USD returns the amount as dollars.
func (m Money) USD() float64 { return float64(m) / dollar }

// Plus returns the sum of two amounts that are not negative.
func (m Money) Plus(n Money) Money {
	if m > math.MaxInt64-n {
		return math.MaxInt64
	}
	return m + n
}

// String writes dollars without trailing zeros, such as "0.25 USD".
func (m Money) String() string {
	return strconv.FormatFloat(m.USD(), 'f', -1, 64) + " USD"
}

// times returns n tokens at a price in USD per million of them. A price counts
// to a millionth of a dollar.
func times(n int64, price float64) Money {
	each := MoneyOf(price / 1e6)
	high, low := bits.Mul64(uint64(max(n, 0)), uint64(max(each, 0)))
	if high != 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return Money(low)
}

// Charge returns what tokens of completed rows cost on the model: nothing where
// it has no price.
func (m Model) Charge(input, output int64) Money {
	return times(input, m.InputPrice).Plus(times(output, m.OutputPrice))
}

// Cost returns what j's committed rows cost on the model, USD; nil where it has
// no price. An estimate costs nothing.
func (m Model) Cost(j *Job) *float64 {
	var usd float64
	switch {
	case j.RunType == RunEstimate:
	case m.NoPrice:
		return nil
	default:
		usd = m.Charge(value(j.InputTokens), value(j.OutputTokens)).USD()
	}
	return &usd
}

// value reads a count that may not be known yet.
func value(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}
