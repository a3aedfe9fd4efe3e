package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
)

// Ledger holds the usage of accounts and the reservations of their open jobs.
type Ledger interface {
	// Usage returns the usage of an account from the UTC day of from to the UTC day of
	// to, both included, ordered by day and model. The day of a part is its commit time
	// by the store's clock. Estimates are free and not included. The cost of the call
	// grows with the number of days, not of jobs.
	Usage(ctx context.Context, account string, from, to time.Time) ([]Usage, error)

	// UsageByKey returns the same usage as Usage, ordered by day, model and API key
	// that submitted the job, all read at one moment. The sums over keys equal Usage:
	// usage without a key is listed under the empty key.
	UsageByKey(ctx context.Context, account string, from, to time.Time) ([]KeyUsage, error)

	// Reserve sets usd aside for a job until the job ends, replacing the job's earlier
	// reservation. limit is the most that the account may spend in a calendar month
	// (UTC). Three amounts count against it: the money spent this month, the
	// reservations of the account's other open jobs minus the cost of their committed rows,
	// and usd minus the cost of this job's committed rows. If the sum exceeds limit, the
	// error is a *CostLimitError and nothing changes. Without a limit, usd is set aside
	// without a check. A repeated call is harmless, also by the job's next owner: an
	// amount that is already reserved, or zero, is always granted.
	Reserve(ctx context.Context, f Fence, usd float64, limit *float64) (Record, error)
}

// Usage is the usage of a model by an account on a day.
type Usage struct {
	Day    time.Time // midnight, UTC
	Model  string    // model id in the catalog
	Totals RowTotals // over the rows committed on that day
	Cost   rowmill.Money
}

// KeyUsage is the part of a Usage that belongs to one API key.
type KeyUsage struct {
	Usage
	Key string // id of the key; empty for none
}

// APIKeyID returns the id of the API key that submitted a job; empty for none.
func APIKeyID(j rowmill.Job) string {
	if j.KeyID == nil {
		return ""
	}
	return *j.KeyID
}

// SplitByKey splits the usage of an account by day, model and API key. all is the whole usage,
// and keyed is the usage whose API key is known. The difference between all and keyed is
// listed under the empty key.
func SplitByKey(all []Usage, keyed []KeyUsage) []KeyUsage {
	type line struct {
		day   int64
		model string
	}
	lineOf := func(u Usage) line { return line{u.Day.Unix(), u.Model} }
	known := make(map[line]Usage, len(all))
	for _, k := range keyed {
		sum := known[lineOf(k.Usage)]
		known[lineOf(k.Usage)] = Usage{Totals: sum.Totals.Plus(k.Totals), Cost: sum.Cost.Plus(k.Cost)}
	}
	list := slices.Clone(keyed)
	for _, u := range all {
		of := known[lineOf(u)]
		rest := Usage{Day: u.Day, Model: u.Model, Totals: u.Totals.Minus(of.Totals), Cost: max(u.Cost-of.Cost, 0)}
		if rest.Totals != (RowTotals{}) {
			list = append(list, KeyUsage{Usage: rest})
		}
	}
	slices.SortFunc(list, func(a, b KeyUsage) int {
		return cmp.Or(a.Day.Compare(b.Day), strings.Compare(a.Model, b.Model), strings.Compare(a.Key, b.Key))
	})
	return list
}

// CostLimitError means that a job would exceed the monthly cost limit of its account.
type CostLimitError struct {
	Asked    rowmill.Money // reservation for this job, minus the cost of its committed rows
	Spent    rowmill.Money // cost of all jobs of the account this month
	Reserved rowmill.Money // reservations of the account's other open jobs, minus the cost of their committed rows
	Limit    rowmill.Money // monthly limit of the account
}

func (e *CostLimitError) Error() string {
	return fmt.Sprintf("the job can cost up to %v more; of the account's limit of %v a month, %v are spent and %v are reserved for other jobs",
		e.Asked, e.Limit, e.Spent, e.Reserved)
}
