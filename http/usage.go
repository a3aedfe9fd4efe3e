package http

import (
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/spelling"
	"github.com/rowmill/rowmill/store"
)

// maxUsageDays bounds how many days one request may ask for.
const maxUsageDays = 366

// figures are what rows used. Rows that failed used no tokens.
type figures struct {
	Rows         int64            `json:"rows"`
	FailedRows   int64            `json:"failed_rows"`
	InputTokens  int64            `json:"input_tokens"`
	OutputTokens int64            `json:"output_tokens"`
	Cost         exchange.Decimal `json:"cost_usd"`
}

// modelDay is what an account used of a model on a day.
type modelDay struct {
	Day   string `json:"day"`
	Model string `json:"model"`
	figures
}

func figuresOf(t store.Totals, cost rowmill.Money) figures {
	return figures{
		Rows: t.Rows, FailedRows: t.Failed, InputTokens: t.InputTokens, OutputTokens: t.OutputTokens,
		Cost: exchange.Decimal(cost.USD()),
	}
}

// usage is what accounts used.
type usage struct {
	store store.Ledger
	now   func() time.Time
}

// show answers GET /v1/usage: what the account used, by day and model.
func (u *usage) show(c *gin.Context) (any, error) {
	from, to, err := usageDays(c, u.now())
	if err != nil {
		return nil, err
	}
	account, err := readAccount(c)
	if err != nil {
		return nil, err
	}
	used, err := u.store.Usage(c.Request.Context(), account, from, to)
	if err != nil {
		return nil, err
	}
	days := make([]modelDay, len(used))
	var totals store.Totals
	var cost rowmill.Money
	for i, u := range used {
		days[i] = modelDay{u.Day.Format(time.DateOnly), u.Model, figuresOf(u.Totals, u.Cost)}
		totals, cost = totals.Plus(u.Totals), cost.Plus(u.Cost)
	}
	return gin.H{
		"account": account, "from": from.Format(time.DateOnly), "to": to.Format(time.DateOnly),
		"usage": days, "total": figuresOf(totals, cost),
	}, nil
}

// usageDays reads from and to, UTC days that are both included. By default
// they are today and the first of its month.
func usageDays(c *gin.Context, now time.Time) (from, to time.Time, err error) {
	var problems request.Problems
	day := func(field string, otherwise time.Time) time.Time {
		asked, given := c.GetQuery(field)
		if !given {
			return otherwise
		}
		at, err := time.Parse(time.DateOnly, asked)
		if err != nil {
			problems.Add(field, "is %q; it must be a day such as 2026-01-31", spelling.Shorten(asked, 32))
		}
		return at
	}
	now = now.UTC()
	to = day("to", now.Truncate(24*time.Hour))
	from = day("from", time.Date(to.Year(), to.Month(), 1, 0, 0, 0, 0, time.UTC))
	if problems.Len() > 0 {
		return from, to, problems.Err()
	}
	switch days := int(to.Sub(from)/(24*time.Hour)) + 1; {
	case days < 1:
		problems.Add("from", "is %s, after to, which is %s", from.Format(time.DateOnly), to.Format(time.DateOnly))
	case days > maxUsageDays:
		problems.Add("from", "is %s, %d days up to to; ask for at most %d at once", from.Format(time.DateOnly), days, maxUsageDays)
	}
	return from, to, problems.Err()
}
