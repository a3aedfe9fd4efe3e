package rowmill

import (
	"math"
	"math/bits"
	"strconv"
)

// Money is an amount of US dollars in trillionths. It is an integer, so that a sum does
// not depend on the order of the amounts or on how they are split. The largest amount is
// about 9.2 million dollars: larger sums and products become this amount.
type Money int64

// dollar is one US dollar in units of Money.
const dollar = 1e12

// MoneyFromUSD returns the amount nearest to usd. NaN becomes zero.
func MoneyFromUSD(usd float64) Money {
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

// USD returns the amount in dollars.
func (m Money) USD() float64 { return float64(m) / dollar }

// Plus returns the sum of two amounts, which must not be negative.
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

// tokenCost returns the cost of n tokens at a price in USD per million tokens. It rounds
// the price to a millionth of a dollar.
func tokenCost(n int64, price float64) Money {
	each := MoneyFromUSD(price / 1e6)
	high, low := bits.Mul64(uint64(max(n, 0)), uint64(max(each, 0)))
	if high != 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return Money(low)
}

// TokenCost returns the cost of this many input and output tokens; zero if the model has
// no price.
func (m Model) TokenCost(input, output int64) Money {
	return tokenCost(input, m.InputPrice).Plus(tokenCost(output, m.OutputPrice))
}

// Cost returns the cost of j's committed rows in USD; nil if the model has no price. An
// estimate job costs nothing.
func (m Model) Cost(j *Job) *float64 {
	var usd float64
	switch {
	case j.RunType == RunEstimate:
	case m.NoPrice:
		return nil
	default:
		usd = m.TokenCost(valueOrZero(j.InputTokens), valueOrZero(j.OutputTokens)).USD()
	}
	return &usd
}

// valueOrZero returns the count at n, or 0 if the count is not known yet (nil).
func valueOrZero(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}
