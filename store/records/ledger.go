package records

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

// modelUsage is the usage of one model by one account on one day. The store keeps it as
// counters, in the order that the method counters returns.
type modelUsage struct {
	store.RowTotals
	Cost rowmill.Money // trillionths of a US dollar
}

func (u modelUsage) counters() []int64 {
	t := u.RowTotals
	return []int64{t.Rows, t.Failed, t.TruncatedRows, t.TruncatedOutputs, t.InputTokens, t.OutputTokens, t.Deduplicated, int64(u.Cost)}
}

func decodeModelUsage(value []byte) (modelUsage, error) {
	n, err := kv.DecodeCounters(value)
	if err == nil && len(n) < 8 {
		err = errors.New("counters are missing")
	}
	if err != nil {
		return modelUsage{}, fmt.Errorf("decode the usage of an account: %w", err)
	}
	return modelUsage{store.RowTotals{
		Rows: n[0], Failed: n[1], TruncatedRows: n[2], TruncatedOutputs: n[3], InputTokens: n[4], OutputTokens: n[5], Deduplicated: n[6],
	}, rowmill.Money(n[7])}, nil
}

// dayNumber returns the number of whole UTC days from 1970-01-01 to at; 0 for earlier times.
func dayNumber(at time.Time) uint32 {
	const seconds = 24 * 60 * 60
	return uint32(min(max(at.Unix()/seconds, 0), math.MaxUint32))
}

// usagePrefix returns the key prefix of an account's usage on a day. In a key, the model
// follows the prefix. In tableKeyUsage, a zero and the id of the API key follow the model.
func usagePrefix(account string, day uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte(account+"\x00"), day)
}

// addToLedger adds the totals of newly committed rows of a job to the ledger. It ignores
// estimates, because they are free.
func (t *tx) addToLedger(h jobHeader, added store.RowTotals) {
	if h.Job.RunType == rowmill.RunEstimate || added == (store.RowTotals{}) {
		return
	}
	model := h.Price.asModel()
	more := modelUsage{added, model.TokenCost(added.InputTokens, added.OutputTokens)}.counters()
	place := append(usagePrefix(h.Account, dayNumber(t.Now())), model.ID...)
	t.AddToCounters(tableUsage, place, more...)
	if key := store.APIKeyID(h.Job); key != "" {
		t.AddToCounters(tableKeyUsage, append(append(place, 0), key...), more...)
	}
}

// A modelPrice holds the id and the prices of a job's model, in US dollars per million tokens.
// It is stored in the header, so that a commit of parts does not read the specification.
type modelPrice struct {
	Model   string  `json:"model"`
	Input   float64 `json:"input,omitempty"`
	Output  float64 `json:"output,omitempty"`
	NoPrice bool    `json:"none,omitempty"`
}

func priceOf(m rowmill.Model) *modelPrice {
	return &modelPrice{m.ID, m.InputPrice, m.OutputPrice, m.NoPrice}
}

// asModel returns a model that has only the id and the prices in p.
func (p *modelPrice) asModel() rowmill.Model {
	return rowmill.Model{ID: p.Model, InputPrice: p.Input, OutputPrice: p.Output, NoPrice: p.NoPrice}
}

// A usageEntry is one entry of the ledger.
type usageEntry struct {
	table kv.Table
	day   uint32
	name  string // model id; in tableKeyUsage the model id, a zero byte and the id of the API key
	modelUsage
}

// scanUsage iterates over an account's usage on the days from from to to, both included.
// tableUsage has lines by model, tableKeyUsage has lines by model and API key. All lines
// are read at one moment.
func (t *tx) scanUsage(account string, from, to time.Time, tables ...kv.Table) iter.Seq2[usageEntry, error] {
	prefix := []byte(account + "\x00")
	var ranges []kv.Range
	for _, table := range tables {
		ranges = append(ranges, kv.Range{Table: table, From: usagePrefix(account, dayNumber(from)), To: kv.PrefixEnd(usagePrefix(account, dayNumber(to)))})
	}
	return func(yield func(usageEntry, error) bool) {
		for e, err := range t.Scan(ranges...) {
			l := usageEntry{table: e.Table}
			if err == nil && len(e.Key) < len(prefix)+4 {
				err = fmt.Errorf("a key of table %s is cut off", e.Table)
			}
			if err == nil {
				rest := e.Key[len(prefix):]
				l.day, l.name = binary.BigEndian.Uint32(rest), string(rest[4:])
				l.modelUsage, err = decodeModelUsage(e.Value)
			}
			if !yield(l, err) {
				return
			}
		}
	}
}

// Usage returns an account's usage by day and model.
func (s *Store) Usage(ctx context.Context, account string, from, to time.Time) ([]store.Usage, error) {
	return viewList(ctx, s, "read the usage of an account", func(t *tx) (found []store.Usage, err error) {
		for l, err := range t.scanUsage(account, from, to, tableUsage) {
			if err := cmp.Or(err, ctx.Err()); err != nil {
				return nil, err
			}
			found = append(found, l.toUsage(l.day, l.name))
		}
		return found, nil
	})
}

// UsageByKey returns an account's usage by day, model and API key.
func (s *Store) UsageByKey(ctx context.Context, account string, from, to time.Time) ([]store.KeyUsage, error) {
	return viewList(ctx, s, "read the usage of an account by key", func(t *tx) ([]store.KeyUsage, error) {
		var all []store.Usage
		var keyed []store.KeyUsage
		for l, err := range t.scanUsage(account, from, to, tableUsage, tableKeyUsage) {
			if err := cmp.Or(err, ctx.Err()); err != nil {
				return nil, err
			}
			if l.table == tableUsage {
				all = append(all, l.toUsage(l.day, l.name))
				continue
			}
			end := strings.LastIndexByte(l.name, 0)
			if end < 0 {
				return nil, fmt.Errorf("a key of table %s names no API key: %q", l.table, l.name)
			}
			keyed = append(keyed, store.KeyUsage{Usage: l.toUsage(l.day, l.name[:end]), Key: l.name[end+1:]})
		}
		return store.SplitByKey(all, keyed), nil
	})
}

// toUsage returns u as the store.Usage of a model on a day. day is the number of days since
// 1970.
func (u modelUsage) toUsage(day uint32, model string) store.Usage {
	return store.Usage{Day: time.Unix(0, 0).UTC().AddDate(0, 0, int(day)), Model: model, Totals: u.RowTotals, Cost: u.Cost}
}

// Reserve sets money aside for a job.
func (s *Store) Reserve(ctx context.Context, f store.Fence, usd float64, limit *float64) (store.Record, error) {
	if usd < 0 || math.IsNaN(usd) {
		return store.Record{}, fmt.Errorf("reserve for job %s: %v USD is not a valid amount", f.JobID, usd)
	}
	return writeResult(ctx, s, func(t *tx) (rec store.Record, err error) {
		t.prefetchRecord(f.JobID)
		before, err := t.readOwnedHeader(f)
		if err != nil {
			return rec, fmt.Errorf("reserve: %w", err)
		}
		after := before
		after.Reserved = rowmill.MoneyFromUSD(usd)
		if limit != nil && after.Reserved > before.Reserved {
			if err := t.checkCostLimit(after, rowmill.MoneyFromUSD(*limit)); err != nil {
				return rec, err
			}
		}
		if after.Reserved != before.Reserved {
			if err := t.saveHeader(before, &after); err != nil {
				return rec, err
			}
		}
		return t.completeRecord(after)
	})
}

// checkCostLimit returns a *store.CostLimitError when the reservation of h exceeds the monthly
// limit of its account. Both of two simultaneous reservations of an account write the
// account's key in tableGranted, so that one conflicts and runs again. A reservation also
// runs again when another job of the account with a reservation commits parts meanwhile:
// checkCostLimit wants the headers of these jobs before it scans the usage.
func (t *tx) checkCostLimit(h jobHeader, limit rowmill.Money) (err error) {
	e := &store.CostLimitError{Limit: limit, Asked: h.unspentReservation()}
	year, month, _ := t.Now().UTC().Date()
	begin := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
	account, prefix := []byte(h.Account), []byte(h.Account+"\x00")
	t.Prefetch(tableGranted, account)
	jobs, err := t.scanIDs(kv.PrefixRange(tableReserved, prefix), len(prefix), math.MaxInt)
	if err != nil {
		return err
	}
	if _, err := t.Get(tableGranted, account); err != nil {
		return err
	}
	t.Put(tableGranted, account, nil)
	t.prefetchIDs(jobs, tableJobs)
	for l, err := range t.scanUsage(h.Account, begin, begin.AddDate(0, 1, -1), tableUsage) {
		if err != nil {
			return err
		}
		e.Spent = e.Spent.Plus(l.Cost)
	}
	for _, id := range jobs {
		if id == h.Job.ID {
			continue
		}
		other, err := t.readHeader(id)
		switch {
		case t.logIfDamaged(err), errors.Is(err, rowmill.ErrNotFound): // no further rows of this job can be committed
			continue
		case err != nil:
			return err
		}
		e.Reserved = e.Reserved.Plus(other.unspentReservation())
	}
	if e.Spent.Plus(e.Reserved).Plus(e.Asked) > limit {
		return e
	}
	return nil
}

// unspentReservation returns the job's reservation minus the cost of its committed rows, at least 0.
func (h *jobHeader) unspentReservation() rowmill.Money {
	cost := h.Price.asModel().Cost(&h.Job)
	if cost == nil {
		return h.Reserved
	}
	return max(h.Reserved-rowmill.MoneyFromUSD(*cost), 0)
}
