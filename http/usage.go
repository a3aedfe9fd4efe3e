package http

import (
	nethttp "net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// maxUsageDays bounds how many days one request may ask for.
const maxUsageDays = 366

// figures are what rows used. Rows that failed used no tokens.
type figures struct {
	Rows         int64   `json:"rows"`
	FailedRows   int64   `json:"failed_rows"`
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
	Cost         decimal `json:"cost_usd"`
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
		Cost: decimal(cost.USD()),
	}
}

// getUsage answers GET /v1/usage: what the account used, by day and model.
func (s *Server) getUsage(c *gin.Context) {
	from, to, err := s.usageDays(c)
	account := caller(c).account
	if named := c.Query("account"); err == nil && named != "" && named != account {
		account, err = administered(c, named)
	}
	var used []store.Usage
	if err == nil {
		used, err = s.Store.Usage(c.Request.Context(), account, from, to)
	}
	if err != nil {
		s.fail(c, err)
		return
	}
	days := make([]modelDay, len(used))
	var totals store.Totals
	var cost rowmill.Money
	for i, u := range used {
		days[i] = modelDay{u.Day.Format(time.DateOnly), u.Model, figuresOf(u.Totals, u.Cost)}
		totals, cost = totals.Plus(u.Totals), cost.Plus(u.Cost)
	}
	answer(c, nethttp.StatusOK, gin.H{
		"account": account, "from": from.Format(time.DateOnly), "to": to.Format(time.DateOnly),
		"usage": days, "total": figuresOf(totals, cost),
	})
}

// usageDays reads from and to, UTC days that are both included. By default
// they are today and the first of its month.
func (s *Server) usageDays(c *gin.Context) (from, to time.Time, err error) {
	var problems problems
	day := func(field string, otherwise time.Time) time.Time {
		text, given := c.GetQuery(field)
		if !given {
			return otherwise
		}
		at, err := time.Parse(time.DateOnly, text)
		if err != nil {
			problems.add(field, "is %q; it must be a day such as 2026-01-31", shorten(text, 32))
		}
		return at
	}
	now := s.Now().UTC()
	to = day("to", now.Truncate(24*time.Hour))
	from = day("from", time.Date(to.Year(), to.Month(), 1, 0, 0, 0, 0, time.UTC))
	if len(problems.fields) > 0 {
		return from, to, problems.err()
	}
	switch days := int(to.Sub(from)/(24*time.Hour)) + 1; {
	case days < 1:
		problems.add("from", "is %s, after to, which is %s", from.Format(time.DateOnly), to.Format(time.DateOnly))
	case days > maxUsageDays:
		problems.add("from", "is %s, %d days up to to; ask for at most %d at once", from.Format(time.DateOnly), days, maxUsageDays)
	}
	if err := problems.err(); err != nil {
		return from, to, err
	}
	return from, to, nil
}
