package redis

import (
	"context"
	"encoding/json"
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

var _ store.Movable = (*Store)(nil)

// reached are the keys whose records Export finds by others, and indexes, which
// Import makes anew. Those that end in a colon lead keys.
var reached = []string{
	"job:", "parts:", "shards:", "merged:", "waiting:", "waiters", "owned", "turns", "turn", "usage:", "keyusage:",
	"reserved:", "granted:", "held:", "due", "holders", "keys", "values", "names",
	"batches:", "files", "filelist:", "filesdue", "deliveries", "deliverylist:", "deliveriesdue:", "endpointsdue", "deliveryexpires",
	"meta", "ping",
}

// exportPage is how many records one round trip of Export asks for: of jobs with
// inputs in their records some 6 MB.
const exportPage = 100

// A survey is what a walk over all keys has found.
type survey struct {
	jobs, days, audits map[string]bool // accounts that have such
	idem               map[string]bool // what follows the prefix of their keys
}

// survey goes over all keys of the store. One that this version of the program does
// not know is an error: what it holds would be left behind.
func (s *Store) survey(ctx context.Context) (survey, error) {
	found := survey{jobs: map[string]bool{}, days: map[string]bool{}, audits: map[string]bool{}, idem: map[string]bool{}}
	err := s.eachKey(ctx, func(keys []string) error {
		for _, key := range keys {
			name := key[len(s.config.Prefix):]
			lead, rest, led := strings.Cut(name, ":")
			if led {
				lead += ":"
			}
			switch {
			case lead == "session:":
				return fmt.Errorf("a node runs, its session is %s: %w", rest, rowmill.ErrConflict)
			case lead == "jobs:":
				found.jobs[rest] = true
			case lead == "days:":
				found.days[rest] = true
			case lead == "audit:":
				found.audits[rest] = true
			case lead == "idem:":
				found.idem[rest] = true
			case !slices.Contains(reached, lead):
				return fmt.Errorf("there is a key %q: %w", key, store.ErrNewer)
			}
		}
		return nil
	})
	return found, err
}

// eachKey visits all keys of the store, some at a time. Keys that are there all the
// time come at least once.
func (s *Store) eachKey(ctx context.Context, visit func(keys []string) error) error {
	const count = 1000 // keys that the server looks at in one step, well below a millisecond
	pattern := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(s.config.Prefix) + "*"
	for cursor := uint64(0); ; {
		var keys []string
		next := cursor
		if _, err := s.try(ctx, false, func(ctx context.Context) (err error) {
			keys, next, err = s.client.Scan(ctx, cursor, pattern, count).Result()
			return err
		}); err != nil {
			return err
		}
		if err := visit(keys); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// Export calls visit with all that is kept.
func (s *Store) Export(ctx context.Context, visit func(store.Entry) error) error {
	if err := s.export(ctx, visit); err != nil {
		return fmt.Errorf("export records: %w", err)
	}
	return nil
}

func (s *Store) export(ctx context.Context, visit func(store.Entry) error) error {
	found, err := s.survey(ctx)
	if err != nil {
		return err
	}
	for account := range found.jobs {
		if err := s.exportJobs(ctx, account, visit); err != nil {
			return err
		}
	}
	for rest := range found.idem {
		if err := s.exportIdempotency(ctx, rest, visit); err != nil {
			return err
		}
	}
	for account := range found.days {
		if err := s.exportUsage(ctx, account, visit); err != nil {
			return err
		}
	}
	for account := range found.audits {
		if account == everyone {
			continue
		}
		for next, more := "", true; more; more = next != "" {
			var entries []store.AuditEntry
			if entries, next, err = s.ListAudit(ctx, account, exportPage, next); err != nil {
				return err
			}
			for i := range entries {
				if err := visit(store.Entry{Audit: &entries[i]}); err != nil {
					return err
				}
			}
		}
	}
	for _, hash := range []struct {
		name  string
		entry func(name, text string) (store.Entry, error)
	}{
		{"keys", func(_, text string) (e store.Entry, err error) { return e, json.Unmarshal([]byte(text), &e.Key) }},
		{"values", exportValue},
		{"files", func(_, text string) (e store.Entry, err error) { return e, json.Unmarshal([]byte(text), &e.File) }},
		{"deliveries", exportDelivery},
	} {
		if err := s.exportHash(ctx, hash.name, hash.entry, visit); err != nil {
			return err
		}
	}
	return nil
}

// exportJobs visits the jobs of an account.
func (s *Store) exportJobs(ctx context.Context, account string, visit func(store.Entry) error) error {
	for after := "-"; ; {
		var page *driver.StringSliceCmd
		if err := s.read(ctx, func(p driver.Pipeliner) {
			page = p.ZRangeByLex(ctx, s.key("jobs", account), &driver.ZRangeBy{Min: after, Max: "+", Count: exportPage})
		}); err != nil {
			return err
		}
		for _, place := range page.Val() {
			j, err := s.exportJob(ctx, account, place[orderDigits:])
			if err != nil {
				return err
			}
			if err := visit(store.Entry{Job: j}); err != nil {
				return err
			}
			after = "(" + place
		}
		if len(page.Val()) < exportPage {
			return nil
		}
	}
}

func (s *Store) exportJob(ctx context.Context, account, id string) (*store.MovedJob, error) {
	rec, err := s.Get(ctx, id)
	if err == nil {
		err = rec.CheckVersion()
	}
	if err != nil {
		return nil, err
	}
	rec.Session = ""
	j := &store.MovedJob{Record: rec}
	if j.Parts, err = s.ListParts(ctx, id); err != nil {
		return nil, err
	}
	var merged *driver.StringSliceCmd
	var held *driver.FloatCmd
	if err := s.read(ctx, func(p driver.Pipeliner) {
		merged = p.SMembers(ctx, s.key("merged", id))
		held = p.ZScore(ctx, s.key("held", account), order(rec.EndedAt(), id))
	}); err != nil {
		return nil, err
	}
	if len(merged.Val()) > 0 {
		j.Merged = slices.Sorted(slices.Values(merged.Val()))
	}
	j.Held = held.Err() == nil
	return j, nil
}

// exportIdempotency visits what an idempotency key led to, N:ACCOUNT:KEY.
func (s *Store) exportIdempotency(ctx context.Context, rest string, visit func(store.Entry) error) error {
	length, names, _ := strings.Cut(rest, ":")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n >= len(names) {
		return fmt.Errorf("the idempotency key %q: its account is cut off", rest)
	}
	account, name := names[:n], names[n+1:]
	var known *driver.SliceCmd
	var left *driver.DurationCmd
	var now *driver.TimeCmd
	if err := s.read(ctx, func(p driver.Pipeliner) {
		known = p.HMGet(ctx, s.idem(account, name), "job", "body")
		left = p.PTTL(ctx, s.idem(account, name))
		now = p.Time(ctx)
	}); err != nil {
		return err
	}
	a := answer(known.Val())
	if a.text(0) == "" || left.Val() <= 0 { // it has expired meanwhile
		return nil
	}
	return visit(store.Entry{Idempotency: &store.MovedIdempotency{
		Account: account, Key: name, Job: a.text(0), BodyHash: a.text(1), Expires: now.Val().Add(left.Val()).UTC().Truncate(time.Millisecond),
	}})
}

// exportUsage visits what an account used.
func (s *Store) exportUsage(ctx context.Context, account string, visit func(store.Entry) error) error {
	const chunk = 16 // days of one round trip
	return s.eachDay(ctx, account, time.Unix(0, 0), time.Unix(math.MaxInt32*daySeconds, 0), chunk, func(days []int64) error {
		all, keyed := make([]*driver.MapStringStringCmd, len(days)), make([]*driver.MapStringStringCmd, len(days))
		if err := s.read(ctx, func(p driver.Pipeliner) {
			for i, day := range days {
				all[i] = p.HGetAll(ctx, s.key("usage", decimal(day), account))
				keyed[i] = p.HGetAll(ctx, s.key("keyusage", decimal(day), account))
			}
		}); err != nil {
			return err
		}
		for i, day := range days {
			list, err := keyedOn(day, keyed[i].Val())
			if err != nil {
				return err
			}
			usage, err := usedOn(day, all[i].Val())
			if err != nil {
				return err
			}
			for _, u := range usage {
				list = append(list, store.KeyUsage{Usage: u})
			}
			for _, u := range list {
				if err := visit(store.Entry{Usage: &store.MovedUsage{Account: account, KeyUsage: u}}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// exportHash visits the entries of a hash, each once.
func (s *Store) exportHash(ctx context.Context, name string, entry func(name, text string) (store.Entry, error), visit func(store.Entry) error) error {
	seen := map[string]bool{} // a scan may come by one again
	for cursor := uint64(0); ; {
		var pairs []string
		next := cursor
		if _, err := s.try(ctx, false, func(ctx context.Context) (err error) {
			pairs, next, err = s.client.HScan(ctx, s.key(name), cursor, "", exportPage).Result()
			return err
		}); err != nil {
			return err
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			if seen[pairs[i]] {
				continue
			}
			seen[pairs[i]] = true
			e, err := entry(pairs[i], pairs[i+1])
			if err != nil {
				return fmt.Errorf("decode %q of %s: %w", pairs[i], name, err)
			}
			if err := visit(e); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// versioned takes a document apart that stands behind its version and a token.
func versioned(text string) (version int64, doc string, err error) {
	number, rest, _ := strings.Cut(text, " ")
	_, doc, _ = strings.Cut(rest, " ")
	version, err = strconv.ParseInt(number, 10, 64)
	return version, doc, err
}

func exportValue(name, text string) (store.Entry, error) {
	version, doc, err := versioned(text)
	return store.Entry{Value: &store.MovedValue{Name: name, Version: version, Doc: json.RawMessage(doc)}}, err
}

func exportDelivery(_, text string) (store.Entry, error) {
	version, doc, err := versioned(text)
	d := &store.MovedDelivery{Version: version}
	if err == nil {
		err = json.Unmarshal([]byte(doc), &d.Delivery)
	}
	d.Delivery.Version = version
	return store.Entry{Delivery: d}, err
}

// Import stores entries, in one transaction.
func (s *Store) Import(ctx context.Context, entries []store.Entry) error {
	_, err := s.try(ctx, true, func(ctx context.Context) error {
		_, err := s.client.TxPipelined(ctx, func(p driver.Pipeliner) error {
			for _, e := range entries {
				if err := s.take(ctx, p, e); err != nil {
					return fmt.Errorf("%s: %w", e.Kind(), err)
				}
			}
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("import records: %w", err)
	}
	return nil
}

// take queues the commands that store an entry.
func (s *Store) take(ctx context.Context, p driver.Pipeliner, e store.Entry) error {
	member := func(key, name string) { p.ZAdd(ctx, key, driver.Z{Member: name}) }
	at := func(key string, when *time.Time, name string) {
		if when != nil {
			p.ZAdd(ctx, key, driver.Z{Score: float64(when.UnixMilli()), Member: name})
		}
	}
	switch {
	case e.Job != nil:
		return s.takeJob(ctx, p, e.Job)
	case e.Idempotency != nil:
		key := s.idem(e.Idempotency.Account, e.Idempotency.Key)
		p.HSet(ctx, key, "job", e.Idempotency.Job, "body", e.Idempotency.BodyHash)
		p.PExpireAt(ctx, key, e.Idempotency.Expires)
	case e.Usage != nil:
		s.takeUsage(ctx, p, *e.Usage)
	case e.Key != nil:
		raw, err := json.Marshal(e.Key)
		p.HSet(ctx, s.key("keys"), e.Key.ID, raw)
		return err
	case e.Value != nil:
		p.HSet(ctx, s.key("values"), e.Value.Name, fmt.Sprintf("%d %s %s", e.Value.Version, newToken(), e.Value.Doc))
		member(s.key("names"), e.Value.Name)
	case e.File != nil:
		f := e.File
		raw, err := json.Marshal(f)
		p.HSet(ctx, s.key("files"), f.ID, raw)
		member(s.fileList(f.Account, ""), f.ID)
		member(s.fileList(f.Account, f.Purpose), f.ID)
		at(s.key("filesdue"), f.Expires, f.ID)
		return err
	case e.Delivery != nil:
		d := e.Delivery.Delivery
		raw, err := json.Marshal(d)
		p.HSet(ctx, s.key("deliveries"), d.ID, fmt.Sprintf("%d %s %s", e.Delivery.Version, newToken(), raw))
		member(s.key("deliverylist", d.Endpoint), d.ID)
		at(s.deliveryDue(d.Endpoint), d.Due, d.ID)
		at(s.key("deliveryexpires"), d.Expires, d.ID)
		if d.Due != nil { // that of the first of them
			p.ZAddLT(ctx, s.key("endpointsdue"), driver.Z{Score: float64(d.Due.UnixMilli()), Member: d.Endpoint})
		}
		return err
	case e.Audit != nil:
		raw, err := json.Marshal(e.Audit)
		line := order(e.Audit.At, e.Audit.ID) + "\x00" + string(raw)
		member(s.key("audit", e.Audit.Account), line)
		member(s.key("audit", everyone), line)
		return err
	default:
		return errors.New("an entry holds nothing that this version of the program knows")
	}
	return nil
}

func (s *Store) takeJob(ctx context.Context, p driver.Pipeliner, j *store.MovedJob) error {
	rec, id, account := j.Record, j.Record.Job.ID, j.Record.Spec.Account
	f, err := encode(rec, nil)
	if err != nil {
		return err
	}
	place := order(rec.Job.Created, id)
	pairs := append([]any{"birth", newToken(), "account", account, "order", place, "rate", rate(rec)}, f.pairs()...)
	if key := store.KeyOf(rec.Job); key != "" {
		pairs = append(pairs, "key", key)
	}
	p.HSet(ctx, s.job(id), pairs...)
	p.ZAdd(ctx, s.key("jobs", account), driver.Z{Member: place})
	if raw := rec.Spec.Raw; raw != nil {
		p.ZAdd(ctx, s.batchList(account, raw.Dialect), driver.Z{Member: id})
	}
	if !rec.Job.Status.Terminal() {
		p.ZAdd(ctx, s.key("waiting", account), driver.Z{Member: place})
		p.SAdd(ctx, s.key("waiters"), account)
	}
	if rec.Reserved != 0 {
		p.SAdd(ctx, s.key("reserved", account), id)
	}
	if at, due := rec.Due(); due {
		p.ZAdd(ctx, s.key("due"), driver.Z{Score: float64(at.UnixMilli()), Member: id})
	}
	if j.Held {
		p.ZAdd(ctx, s.key("held", account), driver.Z{Member: order(rec.EndedAt(), id)})
		p.SAdd(ctx, s.key("holders"), account)
	}
	for i, part := range j.Parts {
		text, err := writePart(part)
		if err != nil {
			return err
		}
		// As if one commit had brought them: those that follow have later versions.
		p.HSet(ctx, s.key("parts", id), part.Key, fmt.Sprintf("%d %d %s", rec.Version, i+1, text))
		p.ZAdd(ctx, s.key("shards", id), driver.Z{Score: float64(part.Shard), Member: part.Key})
	}
	for merged := range slices.Chunk(j.Merged, exportPage) {
		p.SAdd(ctx, s.key("merged", id), merged)
	}
	return nil
}

// takeUsage stores what was used at a rate of nothing, with what was charged for it.
func (s *Store) takeUsage(ctx context.Context, p driver.Pipeliner, u store.MovedUsage) {
	at := rate(store.Record{Spec: rowmill.Spec{Model: rowmill.Model{ID: u.Model}}})
	day := decimal(dayOf(u.Day))
	key := s.key("usage", day, u.Account)
	if u.Key != "" {
		key, at = s.key("keyusage", day, u.Account), fmt.Sprintf("%d:%s%s", len(u.Key), u.Key, at)
	}
	p.HSet(ctx, key, moneyCounter+at, int64(u.Cost))
	for i, n := range appendTotals(nil, u.Totals) {
		if n != int64(0) {
			p.HSet(ctx, key, counters[i]+at, n)
		}
	}
	p.ZAdd(ctx, s.key("days", u.Account), driver.Z{Score: float64(dayOf(u.Day)), Member: day})
}

// Clear removes everything, the values last: one of them says whose records these are.
func (s *Store) Clear(ctx context.Context) error {
	// The keys are gathered first: a scan while they go may miss some.
	var all []string
	last := []string{s.key("values"), s.key("names")}
	err := s.eachKey(ctx, func(keys []string) error {
		all = append(all, slices.DeleteFunc(keys, func(key string) bool { return key == s.key("meta") || slices.Contains(last, key) })...)
		return nil
	})
	all = append(all, last...)
	for keys := range slices.Chunk(all, exportPage) {
		if err == nil {
			_, err = s.try(ctx, true, func(ctx context.Context) error { return s.client.Unlink(ctx, keys...).Err() })
		}
	}
	if err != nil {
		return fmt.Errorf("remove all records: %w", err)
	}
	return nil
}
