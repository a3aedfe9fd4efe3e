package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	driver "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// counters lead the names of fields in an account's usage of a day, in the
// order of store.Totals; the rate follows.
var counters = []string{"r", "f", "c", "o", "i", "x", "d"}

// moneyCounter leads the sum of what was charged by a store that this one's records
// were moved from, trillionths of a US dollar. The rest of a rate is charged at it.
const moneyCounter = "m"

// A sum is what was used at one rate.
type sum struct {
	store.Totals
	charged rowmill.Money // beside what the rate makes of the tokens
}

// rate is what a job's tokens cost and to which model they count: prices and
// the model's id. It is empty for an estimate, which is nobody's usage. The
// ledger counts tokens at a rate and not money, so that the server never has to
// multiply.
func rate(rec store.Record) string {
	if rec.Job.RunType == rowmill.RunEstimate {
		return ""
	}
	price := func(usd float64) string { return strconv.FormatFloat(usd, 'g', -1, 64) }
	m := rec.Spec.Model
	return price(m.InputPrice) + ":" + price(m.OutputPrice) + ":" + m.ID
}

// readRate undoes rate.
func readRate(text string) (rowmill.Model, error) {
	words := strings.SplitN(text, ":", 3)
	if len(words) < 3 {
		return rowmill.Model{}, fmt.Errorf("%q is no rate", text)
	}
	input, err := strconv.ParseFloat(words[0], 64)
	if err != nil {
		return rowmill.Model{}, fmt.Errorf("the price of input: %w", err)
	}
	output, err := strconv.ParseFloat(words[1], 64)
	if err != nil {
		return rowmill.Model{}, fmt.Errorf("the price of output: %w", err)
	}
	return rowmill.Model{ID: words[2], InputPrice: input, OutputPrice: output}, nil
}

// totalsOf gathers the sums of a day by what follows the counter in their names.
func totalsOf(sums map[string]string) (map[string]sum, error) {
	gathered := map[string]sum{}
	for name, text := range sums {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || name == "" {
			return nil, fmt.Errorf("the sum %q of usage is %q", name, text)
		}
		t := gathered[name[1:]]
		switch name[:1] {
		case "r":
			t.Rows = n
		case "f":
			t.Failed = n
		case "c":
			t.TruncatedRows = n
		case "o":
			t.TruncatedOutputs = n
		case "i":
			t.InputTokens = n
		case "x":
			t.OutputTokens = n
		case "d":
			t.Deduplicated = n
		case moneyCounter:
			t.charged = rowmill.Money(n)
		}
		gathered[name[1:]] = t
	}
	return gathered, nil
}

// charge adds to a day's usage of a model what a sum at a rate is.
func charge(u store.Usage, day int64, m rowmill.Model, s sum) store.Usage {
	return store.Usage{
		Day: time.Unix(0, 0).UTC().AddDate(0, 0, int(day)), Model: m.ID,
		Totals: u.Totals.Plus(s.Totals), Cost: u.Cost.Plus(s.charged).Plus(m.Charge(s.InputTokens, s.OutputTokens)),
	}
}

// usedOn reads an account's usage of a day, by model.
func usedOn(day int64, sums map[string]string) ([]store.Usage, error) {
	byRate, err := totalsOf(sums)
	if err != nil {
		return nil, err
	}
	byModel := map[string]store.Usage{}
	for text, totals := range byRate {
		m, err := readRate(text)
		if err != nil {
			return nil, err
		}
		byModel[m.ID] = charge(byModel[m.ID], day, m, totals)
	}
	var list []store.Usage
	for _, u := range byModel {
		list = append(list, u)
	}
	slices.SortFunc(list, func(u, v store.Usage) int { return strings.Compare(u.Model, v.Model) })
	return list, nil
}

// keyedOn reads, in any order, an account's usage of a day by model and key.
func keyedOn(day int64, sums map[string]string) ([]store.KeyUsage, error) {
	byRate, err := totalsOf(sums)
	if err != nil {
		return nil, err
	}
	type of struct{ model, key string }
	found := map[of]store.Usage{}
	for text, totals := range byRate {
		length, rest, _ := strings.Cut(text, ":")
		n, err := strconv.Atoi(length)
		if err != nil || n < 0 || n > len(rest) {
			return nil, fmt.Errorf("%q are no key and rate", text)
		}
		m, err := readRate(rest[n:])
		if err != nil {
			return nil, err
		}
		at := of{m.ID, rest[:n]}
		found[at] = charge(found[at], day, m, totals)
	}
	var list []store.KeyUsage
	for at, u := range found {
		list = append(list, store.KeyUsage{Usage: u, Key: at.key})
	}
	return list, nil
}

const daySeconds = 24 * 60 * 60

// dayOf counts the UTC days from 1970 to at, 0 for any before.
func dayOf(at time.Time) int64 { return max(at.Unix()/daySeconds, 0) }

// Usage returns what an account's jobs used, by day and model.
func (s *Store) Usage(ctx context.Context, account string, from, to time.Time) ([]store.Usage, error) {
	var found []store.Usage
	const chunk = 512 // days of one round trip: an answer of some 100 KB
	err := s.eachDay(ctx, account, from, to, chunk, func(days []int64) error {
		sums := make([]*driver.MapStringStringCmd, len(days))
		if err := s.read(ctx, func(p driver.Pipeliner) {
			for i, day := range days {
				sums[i] = p.HGetAll(ctx, s.key("usage", decimal(day), account))
			}
		}); err != nil {
			return err
		}
		for i, day := range days {
			list, err := usedOn(day, sums[i].Val())
			if err != nil {
				return err
			}
			found = append(found, list...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the usage of an account: %w", err)
	}
	return found, nil
}

// hashesScript reads the hashes KEYS at one moment. It answers a list of names
// and values for each.
var hashesScript = driver.NewScript(`
local found = {}
for i, key in ipairs(KEYS) do found[i] = redis.call('HGETALL', key) end
return found
`)

// UsageByKey returns what an account's jobs used, by day, model and key.
func (s *Store) UsageByKey(ctx context.Context, account string, from, to time.Time) ([]store.KeyUsage, error) {
	var found []store.KeyUsage
	const chunk = 16 // days of one round trip: of a hundred keys an answer of some 1 MB
	err := s.eachDay(ctx, account, from, to, chunk, func(days []int64) error {
		var hashes []string
		for _, day := range days {
			hashes = append(hashes, s.key("usage", decimal(day), account), s.key("keyusage", decimal(day), account))
		}
		var a answer
		_, err := s.try(ctx, false, func(ctx context.Context) (err error) {
			a, err = hashesScript.Run(ctx, s.client, hashes).Slice()
			return err
		})
		if err != nil {
			return err
		}
		for i, day := range days {
			all, err := usedOn(day, a.list(2*i).pairs())
			if err != nil {
				return err
			}
			keyed, err := keyedOn(day, a.list(2*i+1).pairs())
			if err != nil {
				return err
			}
			found = append(found, store.ByKey(all, keyed)...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the usage of an account by key: %w", err)
	}
	return found, nil
}

// eachDay visits the days from one to another on which an account used anything,
// a chunk at a time.
func (s *Store) eachDay(ctx context.Context, account string, from, to time.Time, chunk int, visit func(days []int64) error) error {
	var listed *driver.StringSliceCmd
	err := s.read(ctx, func(p driver.Pipeliner) {
		listed = p.ZRangeByScore(ctx, s.key("days", account), &driver.ZRangeBy{Min: decimal(dayOf(from)), Max: decimal(dayOf(to))})
	})
	if err != nil {
		return err
	}
	for some := range slices.Chunk(listed.Val(), chunk) {
		days := make([]int64, len(some))
		for i, text := range some {
			if days[i], err = strconv.ParseInt(text, 10, 64); err != nil {
				return err
			}
		}
		if err := visit(days); err != nil {
			return err
		}
	}
	return nil
}

// moneyScript reads, at one moment, all that a reservation depends on.
//
// It checks the fence. It answers missing, lease or over; or ok, and
//
//	2  what the account was granted so far, millionths of a US dollar
//	3  today, in days since 1970
//	4  for each day of the last 31 with usage: the day and a list of its sums
//	5  for each job of the account with a reservation, and this one: its id,
//	   reservation, input tokens, output tokens and rate
var moneyScript = jobScript(`
local job = redis.call('HMGET', JOB, 'status', 'session', 'epoch', 'account')
local no = refused(job[1], job[2], job[3])
if no then return no end
local account = job[4]
local today = math.floor(redis.call('TIME')[1] / 86400)
local usage, jobs = {}, {}
for _, day in ipairs(redis.call('ZRANGEBYSCORE', P .. 'days:' .. account, today - 31, '+inf')) do
  usage[#usage + 1] = {day, redis.call('HGETALL', P .. 'usage:' .. day .. ':' .. account)}
end
local function add(id)
  local money = redis.call('HMGET', P .. 'job:' .. id, 'reserved', 'input', 'output', 'rate')
  jobs[#jobs + 1] = {id, money[1], money[2] or '0', money[3] or '0', money[4]}
end
for _, id in ipairs(redis.call('SMEMBERS', P .. 'reserved:' .. account)) do
  if id ~= ID then add(id) end
end
add(ID)
return {'ok', redis.call('GET', P .. 'granted:' .. account) or '0', tostring(today), usage, jobs}
`)

// reserveScript sets money aside.
//
//	ARGV[6]  money, trillionths of a US dollar
//	ARGV[7]  what the job had set aside when the caller looked, likewise
//	ARGV[8]  how much more that is, millionths of a US dollar, rounded up
//	ARGV[9]  what the account had been granted when the caller looked, likewise
//	ARGV[10] what was left then beside this, rounded down, or empty without a limit
//	ARGV[11] names of the fields of a record
//
// It checks the fence. It answers ok and the fields' values, missing, lease,
// over, or stale where others were granted more since than was left.
//
// What the account was granted only grows, so the difference is the most that
// others can have set aside meanwhile, and many that come at once need no
// second look while there is room for all. Jobs that end only leave more, and
// commits move money from what is set aside to what is spent.
var reserveScript = jobScript(`
local job = redis.call('HMGET', JOB, 'status', 'session', 'epoch', 'account', 'reserved', 'token')
if job[6] ~= TOKEN then
  local no = refused(job[1], job[2], job[3])
  if no then return no end
  local account, money = job[4], ARGV[6]
  local granted = P .. 'granted:' .. account
  local since = (redis.call('GET', granted) or '0') - ARGV[9]
  if job[5] ~= ARGV[7] or ARGV[10] ~= '' and (since < 0 or since > tonumber(ARGV[10])) then return {'stale'} end
  redis.call('HSET', JOB, 'reserved', money, 'token', TOKEN)
  redis.call('HINCRBY', JOB, 'version', 1)
  redis.call('INCRBY', granted, ARGV[8])
  if money == '0' then
    redis.call('SREM', P .. 'reserved:' .. account, ID)
  else
    redis.call('SADD', P .. 'reserved:' .. account, ID)
  end
  wrote()
end
return {'ok', holds(), redis.call('HMGET', JOB, unpack(ARGV, 11))}
`)

// Reserve sets money aside for a job.
func (s *Store) Reserve(ctx context.Context, f store.Fence, usd float64, limit *float64) (rec store.Record, err error) {
	if usd < 0 || math.IsNaN(usd) {
		return store.Record{}, fmt.Errorf("reserve for job %s: %v USD are no cost", f.JobID, usd)
	}
	err = s.untilFresh(ctx, func() error {
		rec, err = s.reserve(ctx, f, rowmill.MoneyOf(usd), limit)
		return err
	})
	var over *store.LimitError
	if err == nil || errors.As(err, &over) {
		return rec, err
	}
	return store.Record{}, fmt.Errorf("reserve for job %s: %w", f.JobID, err)
}

// reserve looks once and sets money aside; errStale where that must be looked
// at again.
func (s *Store) reserve(ctx context.Context, f store.Fence, asked rowmill.Money, limit *float64) (store.Record, error) {
	a, _, err := s.send(ctx, false, moneyScript, f, "")
	if err == nil {
		err = fenced(f, a)
	}
	if err != nil {
		return store.Record{}, err
	}
	m, err := readMoney(f.JobID, a)
	if err != nil {
		return store.Record{}, err
	}
	if asked == m.had {
		return s.Get(ctx, f.JobID)
	}
	left := "" // nobody asks
	if limit != nil && asked > m.had {
		room, err := m.afford(asked, rowmill.MoneyOf(*limit))
		if err != nil {
			return store.Record{}, err
		}
		left = decimal(int64(room / micro))
	}
	more := max(asked-m.had, 0)
	args := []any{int64(asked), int64(m.had), int64(more/micro) + min(int64(more%micro), 1), m.granted, left}
	for _, name := range recordFields {
		args = append(args, name)
	}
	a, _, err = s.run(ctx, reserveScript, f, newToken(), args...)
	switch {
	case err != nil:
		return store.Record{}, err
	case a.word() == wordStale:
		return store.Record{}, errStale
	case a.word() != wordOK:
		return store.Record{}, fenced(f, a)
	}
	return collect(recordFields, a.list(2)).record()
}

// micro is a millionth of a US dollar.
const micro = 1_000_000

// Money is what a reservation depends on.
type money struct {
	granted string        // to the account so far, millionths of a US dollar
	spent   rowmill.Money // this month
	others  rowmill.Money // set aside for other open jobs, beyond their cost
	had     rowmill.Money // set aside for this job
	cost    rowmill.Money // of this job's committed rows
}

// readMoney reads the answer of moneyScript for a job.
func readMoney(jobID string, a answer) (money, error) {
	m := money{granted: a.text(1)}
	today, err := strconv.ParseInt(a.text(2), 10, 64)
	if err != nil {
		return m, fmt.Errorf("today: %w", err)
	}
	now := time.Unix(today*daySeconds, 0).UTC()
	first := dayOf(time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC))
	usage, jobs := a.list(3), a.list(4)
	for i := range usage {
		day, err := strconv.ParseInt(usage.list(i).text(0), 10, 64)
		if err != nil {
			return m, fmt.Errorf("a day of usage: %w", err)
		}
		if day < first || day > today {
			continue
		}
		list, err := usedOn(day, usage.list(i).list(1).pairs())
		if err != nil {
			return m, err
		}
		for _, u := range list {
			m.spent = m.spent.Plus(u.Cost)
		}
	}
	for i := range jobs {
		reserved, cost, err := readReservation(jobs.list(i))
		if err != nil {
			return m, err
		}
		if jobs.list(i).text(0) == jobID {
			m.had, m.cost = reserved, cost
		} else {
			m.others = m.others.Plus(max(reserved-cost, 0))
		}
	}
	return m, nil
}

// readReservation reads what a job has set aside and what its committed rows
// cost.
func readReservation(job answer) (reserved, cost rowmill.Money, err error) {
	var n [3]int64
	for i := range n {
		if n[i], err = strconv.ParseInt(job.text(1+i), 10, 64); err != nil {
			return 0, 0, fmt.Errorf("the reservation of job %s: %w", job.text(0), err)
		}
	}
	text := job.text(4)
	if text == "" { // an estimate
		return rowmill.Money(n[0]), 0, nil
	}
	m, err := readRate(text)
	if err != nil {
		return 0, 0, fmt.Errorf("the rate of job %s: %w", job.text(0), err)
	}
	return rowmill.Money(n[0]), m.Charge(n[1], n[2]), nil
}

// afford returns what is left of the limit of the month beside what a job asks,
// or a *store.LimitError where that takes its account beyond.
func (m money) afford(asked, limit rowmill.Money) (left rowmill.Money, err error) {
	e := &store.LimitError{Asked: max(asked-m.cost, 0), Spent: m.spent, Reserved: m.others, Limit: limit}
	sum := e.Spent.Plus(e.Reserved).Plus(e.Asked)
	if sum > limit {
		return 0, e
	}
	return limit - sum, nil
}
