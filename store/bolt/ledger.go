package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/document"
	"github.com/rowmill/rowmill/store"
)

// A used is what one account used of one model on one day.
type used struct {
	store.Totals
	Cost rowmill.Money `json:"cost"` // trillionths of a US dollar
}

// day counts the UTC days from 1970 to at.
func day(at time.Time) uint32 {
	const seconds = 24 * 60 * 60
	return uint32(min(max(at.Unix()/seconds, 0), math.MaxUint32))
}

// usageOf is the prefix of an account's usage on a day. The model follows, and
// where it is by key, a zero and the key.
func usageOf(account string, day uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte(account+"\x00"), day)
}

// charge adds what was newly committed of a job to the ledger. An estimate is
// not the account's usage.
func (t *tx) charge(h header, added store.Totals, now time.Time) error {
	if h.Job.RunType == rowmill.RunEstimate || added == (store.Totals{}) {
		return nil
	}
	model, err := t.model(h.Job.ID)
	if err != nil {
		return err
	}
	more := used{added, model.Charge(added.InputTokens, added.OutputTokens)}
	place := append(usageOf(h.Account, day(now)), model.ID...)
	if err := t.use(bucketUsage, place, more); err != nil {
		return err
	}
	key := store.KeyOf(h.Job)
	if key == "" {
		return nil
	}
	return t.use(bucketKeyUsage, append(append(place, 0), key...), more)
}

// use adds to what was used.
func (t *tx) use(bucket, place []byte, more used) error {
	var u used
	before := t.get(bucket, place)
	if before != nil {
		if err := json.Unmarshal(before, &u); err != nil {
			return fmt.Errorf("decode the usage of an account: %w", err)
		}
	}
	u.Totals, u.Cost = u.Plus(more.Totals), u.Cost.Plus(more.Cost)
	raw, err := document.Rewrite(before, u)
	if err != nil {
		return fmt.Errorf("encode the usage of an account: %w", err)
	}
	return t.put(bucket, place, raw)
}

// model reads the model of a job, without the rest of its specification.
func (t *tx) model(jobID string) (rowmill.Model, error) {
	var small struct {
		Model rowmill.Model `json:"model"`
	}
	section, err := firstSection(t.get(bucketSpecs, []byte(jobID)))
	if err == nil {
		err = json.Unmarshal(section, &small)
	}
	if err != nil {
		err = fmt.Errorf("decode the model of job %s: %w", jobID, err)
	}
	return small.Model, err
}

// usage walks an account's usage on some days, both ends included: of each model
// in bucketUsage, of each model and key, with a zero between, in bucketKeyUsage.
func (t *tx) usage(bucket []byte, account string, from, to uint32, visit func(day uint32, of string, u used) error) error {
	c, prefix := t.Bucket(bucket).Cursor(), []byte(account+"\x00")
	for key, raw := c.Seek(usageOf(account, from)); bytes.HasPrefix(key, prefix); key, raw = c.Next() {
		rest := key[len(prefix):]
		if len(rest) < 4 {
			return fmt.Errorf("the usage of an account has a key of %d bytes that is none", len(key))
		}
		at := binary.BigEndian.Uint32(rest)
		if at > to {
			return nil
		}
		var u used
		if err := json.Unmarshal(raw, &u); err != nil {
			return fmt.Errorf("decode the usage of an account: %w", err)
		}
		if err := visit(at, string(rest[4:]), u); err != nil {
			return err
		}
	}
	return nil
}

// Usage returns what an account's jobs used, by day and model.
func (s *Store) Usage(ctx context.Context, account string, from, to time.Time) ([]store.Usage, error) {
	var found []store.Usage
	err := s.view(ctx, func(t *tx) (err error) {
		found, err = t.byModel(ctx, account, from, to)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the usage of an account: %w", err)
	}
	return found, nil
}

// UsageByKey returns what an account's jobs used, by day, model and key.
func (s *Store) UsageByKey(ctx context.Context, account string, from, to time.Time) ([]store.KeyUsage, error) {
	var all []store.Usage
	var keyed []store.KeyUsage
	err := s.view(ctx, func(t *tx) (err error) {
		if all, err = t.byModel(ctx, account, from, to); err != nil {
			return err
		}
		return t.usage(bucketKeyUsage, account, day(from), day(to), func(at uint32, of string, u used) error {
			end := strings.LastIndexByte(of, 0)
			if end < 0 {
				return fmt.Errorf("the usage of an account by key has %q where a model and a key stand", of)
			}
			keyed = append(keyed, store.KeyUsage{Usage: u.on(at, of[:end]), Key: of[end+1:]})
			return ctx.Err()
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the usage of an account by key: %w", err)
	}
	return store.ByKey(all, keyed), nil
}

// byModel reads what an account used, by day and model.
func (t *tx) byModel(ctx context.Context, account string, from, to time.Time) (found []store.Usage, err error) {
	err = t.usage(bucketUsage, account, day(from), day(to), func(at uint32, model string, u used) error {
		found = append(found, u.on(at, model))
		return ctx.Err()
	})
	return found, err
}

// on is what was used of a model on a day.
func (u used) on(day uint32, model string) store.Usage {
	return store.Usage{Day: time.Unix(0, 0).UTC().AddDate(0, 0, int(day)), Model: model, Totals: u.Totals, Cost: u.Cost}
}

// Reserve sets money aside for a job.
func (s *Store) Reserve(ctx context.Context, f store.Fence, usd float64, limit *float64) (store.Record, error) {
	if usd < 0 || math.IsNaN(usd) {
		return store.Record{}, fmt.Errorf("reserve for job %s: %v USD are no cost", f.JobID, usd)
	}
	var reserved store.Record
	err := s.write(ctx, func(t *tx) error {
		before, err := s.fenced(t, f)
		if err != nil {
			return fmt.Errorf("reserve: %w", err)
		}
		after := before
		after.Reserved = rowmill.MoneyOf(usd)
		if limit != nil && after.Reserved > before.Reserved {
			if err := t.afford(after, rowmill.MoneyOf(*limit), s.config.Clock()); err != nil {
				return err
			}
		}
		if after.Reserved != before.Reserved {
			after.Version++
			if err := t.saveHeader(before, after); err != nil {
				return err
			}
		}
		reserved, err = t.record(after)
		return err
	})
	if err != nil {
		return store.Record{}, err
	}
	return reserved, nil
}

// afford returns a *store.LimitError where the reservation of h takes its
// account beyond the limit of the month.
func (t *tx) afford(h header, limit rowmill.Money, now time.Time) error {
	e := &store.LimitError{Limit: limit}
	year, month, _ := now.UTC().Date()
	first := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
	err := t.usage(bucketUsage, h.Account, day(first), day(first.AddDate(0, 1, -1)), func(_ uint32, _ string, u used) error {
		e.Spent = e.Spent.Plus(u.Cost)
		return nil
	})
	if err != nil {
		return err
	}
	if e.Asked, err = t.unused(h); err != nil {
		return err
	}
	prefix := []byte(h.Account + "\x00")
	c := t.Bucket(bucketReserved).Cursor()
	for key, _ := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, _ = c.Next() {
		id := string(key[len(prefix):])
		if id == h.Job.ID {
			continue
		}
		other, err := t.header(id)
		if err != nil {
			return err
		}
		money, err := t.unused(other)
		if err != nil {
			return err
		}
		e.Reserved = e.Reserved.Plus(money)
	}
	if e.Spent.Plus(e.Reserved).Plus(e.Asked) > limit {
		return e
	}
	return nil
}

// unused is what a job has set aside beyond the cost of its committed rows.
func (t *tx) unused(h header) (rowmill.Money, error) {
	model, err := t.model(h.Job.ID)
	if err != nil {
		return 0, err
	}
	cost := model.Cost(&h.Job)
	if cost == nil {
		return h.Reserved, nil
	}
	return max(h.Reserved-rowmill.MoneyOf(*cost), 0), nil
}
