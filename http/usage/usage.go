// Package usage answers requests about the usage of accounts, by day, model and key.
package usage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/access"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/store"
)

// maxUsageDays limits the days between from and to in a request for the usage.
const maxUsageDays = 366

// usageTotals has the number of rows and tokens of a group, and their cost. The token
// counts do not include failed rows.
type usageTotals struct {
	Rows         int64            `json:"rows"`
	FailedRows   int64            `json:"failed_rows"`
	Deduplicated int64            `json:"deduplicated_rows"` // rows that got the answer of an equal row and did not run
	InputTokens  int64            `json:"input_tokens"`
	OutputTokens int64            `json:"output_tokens"`
	Cost         exchange.Decimal `json:"cost_usd"`
}

// Values of group_by.
const (
	byDay   = "day"
	byModel = "model"
	byKey   = "key"
)

// A usageGrouping says by which fields the usage is grouped. Each group becomes one line of
// the answer.
type usageGrouping struct{ day, model, key bool }

// usageLine is the usage of one group, for example of one day and model.
type usageLine struct {
	Day   string `json:"day,omitempty"`
	Model string `json:"model,omitempty"`
	// Account is set if the usage is that of all accounts.
	Account string `json:"account,omitempty"`
	*usageKey
	usageTotals
}

// usageKey is the API key of a group, if the usage is grouped by key.
type usageKey struct {
	ID   *string `json:"key_id"`   // null if the key is unknown
	Name *string `json:"key_name"` // null if the key has no name or was revoked
}

func newUsageTotals(t store.RowTotals, cost rowmill.Money) usageTotals {
	return usageTotals{
		Rows: t.Rows, FailedRows: t.Failed, Deduplicated: t.Deduplicated, InputTokens: t.InputTokens, OutputTokens: t.OutputTokens,
		Cost: exchange.Decimal(cost.USD()),
	}
}

// Usage answers requests about the usage of accounts.
type Usage struct {
	*exchange.Exchange
	Store store.Store
	Now   func() time.Time
}

// Route adds the route of usage.
func (u *Usage) Route(v1 gin.IRoutes) { v1.GET("/usage", u.Handle(u.show)) }

// show answers GET /v1/usage: the usage of an account, by day and model unless group_by
// is given.
func (u *Usage) show(c *gin.Context) (any, error) {
	var problems request.Problems
	from, to := usageDays(c, &problems, u.Now())
	by, key := queryGrouping(c, &problems), queryKey(c, &problems)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	account, err := caller.ResolveReadAccountOrAll(c)
	if err != nil {
		return nil, err
	}
	ctx := c.Request.Context()
	accounts := []string{account}
	if account == "" {
		if accounts, err = u.Store.Accounts(ctx); err != nil {
			return nil, err
		}
	}
	lines := []usageLine{}
	var totals store.RowTotals
	var cost rowmill.Money
	for _, of := range accounts {
		used, err := u.readUsage(ctx, of, from, to, by.key || key != "")
		if err != nil {
			return nil, err
		}
		if key != "" {
			used = slices.DeleteFunc(used, func(k store.KeyUsage) bool { return k.Key != key })
		}
		names := map[string]string{}
		if by.key {
			if names, err = u.keyNames(ctx, of); err != nil {
				return nil, err
			}
		}
		for _, g := range by.sumGroups(used) {
			line := by.newUsageLine(g, names)
			if account == "" {
				line.Account = of
			}
			lines = append(lines, line)
			totals, cost = totals.Plus(g.Totals), cost.Plus(g.Cost)
		}
	}
	if account == "" {
		slices.SortStableFunc(lines, func(a, b usageLine) int { return strings.Compare(a.Day, b.Day) })
	}
	return gin.H{
		"account": cmp.Or(account, caller.AllAccounts), "from": from.Format(time.DateOnly), "to": to.Format(time.DateOnly),
		"usage": lines, "total": newUsageTotals(totals, cost),
	}, nil
}

// readUsage reads the usage of an account from the store. The usage is split by API key only
// if splitByKey is true.
func (u *Usage) readUsage(ctx context.Context, account string, from, to time.Time, splitByKey bool) ([]store.KeyUsage, error) {
	if splitByKey {
		return u.Store.UsageByKey(ctx, account, from, to)
	}
	all, err := u.Store.Usage(ctx, account, from, to)
	return store.SplitByKey(all, nil), err
}

// keyNames returns the names of the account's keys, by id.
func (u *Usage) keyNames(ctx context.Context, account string) (map[string]string, error) {
	keys, err := u.Store.ListKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the API keys for the names in the usage: %w", err)
	}
	names := map[string]string{}
	for _, k := range keys {
		if k.Account == account {
			names[k.ID] = k.Name
		}
	}
	return names, nil
}

// sumGroups adds up the usage in each group, and returns the groups sorted by day, model and
// key.
func (g usageGrouping) sumGroups(used []store.KeyUsage) []store.KeyUsage {
	type group struct {
		day        int64
		model, key string
	}
	at := map[group]int{} // index in groups
	var groups []store.KeyUsage
	for _, u := range used {
		if !g.day {
			u.Day = time.Time{}
		}
		if !g.model {
			u.Model = ""
		}
		if !g.key {
			u.Key = ""
		}
		p := group{u.Day.Unix(), u.Model, u.Key}
		i, known := at[p]
		if !known {
			at[p] = len(groups)
			groups = append(groups, u)
			continue
		}
		groups[i].Totals, groups[i].Cost = groups[i].Totals.Plus(u.Totals), groups[i].Cost.Plus(u.Cost)
	}
	slices.SortFunc(groups, func(a, b store.KeyUsage) int {
		return cmp.Or(a.Day.Compare(b.Day), strings.Compare(a.Model, b.Model), strings.Compare(a.Key, b.Key))
	})
	return groups
}

// newUsageLine returns the line of the answer for a group. names maps key ids to key names.
func (g usageGrouping) newUsageLine(u store.KeyUsage, names map[string]string) usageLine {
	line := usageLine{Model: u.Model, usageTotals: newUsageTotals(u.Totals, u.Cost)}
	if g.day {
		line.Day = u.Day.Format(time.DateOnly)
	}
	if g.key {
		line.usageKey = &usageKey{ID: exchange.NilIfZero(u.Key), Name: exchange.NilIfZero(names[u.Key])}
	}
	return line
}

// queryGrouping reads the query parameter group_by. By default the usage is grouped by
// day and model.
func queryGrouping(c *gin.Context, problems *request.Problems) (g usageGrouping) {
	asked, given := c.GetQuery("group_by")
	if !given {
		return usageGrouping{day: true, model: true}
	}
	for by := range strings.SplitSeq(asked, ",") {
		switch by {
		case byDay:
			g.day = true
		case byModel:
			g.model = true
		case byKey:
			g.key = true
		default:
			problems.Add("group_by", "has %q; it must be one or more of %s, %s and %s, with commas between", textfmt.Shorten(by, 32), byDay, byModel, byKey)
			return g
		}
	}
	return g
}

// queryKey reads the query parameter key_id; empty means all keys.
func queryKey(c *gin.Context, problems *request.Problems) string {
	id, given := c.GetQuery("key_id")
	if given && !access.IsKeyID(id) {
		problems.Add("key_id", "is %q; it must be the ID of a key, such as 0123456789ab, as GET /v1/keys and `rowmill keys list` show it", textfmt.Shorten(id, 64))
	}
	return id
}

// usageDays reads the query parameters from and to: days in UTC, both included. By
// default to is today, and from is the first day of the month of to.
func usageDays(c *gin.Context, problems *request.Problems, now time.Time) (from, to time.Time) {
	before := problems.Len()
	day := func(field string, otherwise time.Time) time.Time {
		asked, given := c.GetQuery(field)
		if !given {
			return otherwise
		}
		at, err := time.Parse(time.DateOnly, asked)
		if err != nil {
			problems.Add(field, "is %q; it must be a day such as 2026-01-31", textfmt.Shorten(asked, 32))
		}
		return at
	}
	now = now.UTC()
	to = day("to", now.Truncate(24*time.Hour))
	from = day("from", time.Date(to.Year(), to.Month(), 1, 0, 0, 0, 0, time.UTC))
	if problems.Len() > before {
		return from, to
	}
	switch days := int(to.Sub(from)/(24*time.Hour)) + 1; {
	case days < 1:
		problems.Add("from", "is %s, which is after to (%s)", from.Format(time.DateOnly), to.Format(time.DateOnly))
	case days > maxUsageDays:
		problems.Add("from", "is %s, and the time to %s has %d days; ask for at most %d at once", from.Format(time.DateOnly), to.Format(time.DateOnly), days, maxUsageDays)
	}
	return from, to
}
