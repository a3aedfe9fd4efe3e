package actors_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/store"
)

// A calendar is a clock that days can be added to.
type calendar struct{ days atomic.Int64 }

func (c *calendar) now() time.Time { return time.Now().AddDate(0, 0, int(c.days.Load())) }

// tidy starts a rig whose janitor comes often.
func tidy(t *testing.T) (*rig, *calendar) {
	t.Helper()
	var c calendar
	return setup(t, &scripted{answer: echo}, func(cfg *actors.Config) {
		cfg.Clock, cfg.JanitorInterval, cfg.JanitorBatch = c.now, 5*time.Millisecond, 2
	}), &c
}

// keep sets the retention of an account.
func (b *rig) keep(account string, days *int) {
	b.t.Helper()
	doc, err := json.Marshal(store.Settings{RetentionDays: days})
	if err == nil {
		_, err = b.store.PutValue(b.t.Context(), store.SettingsValue(account), doc, 0)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *rig) put(key string) string {
	b.t.Helper()
	w, err := b.cfg.Blob.Create(b.t.Context(), key, "text/plain")
	if err == nil {
		_, err = w.Write([]byte("x"))
	}
	if err == nil {
		_, err = w.Commit()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return key
}

// objects are the names of a job's objects, without the job.
func (b *rig) objects(id string) []string {
	b.t.Helper()
	prefix := "jobs/" + id + "/"
	infos, err := b.cfg.Blob.List(b.t.Context(), prefix)
	if err != nil {
		b.t.Fatal(err)
	}
	names := []string{}
	for _, info := range infos {
		names = append(names, strings.TrimPrefix(info.Key, prefix))
	}
	return names
}

// eventually polls until ok.
func (b *rig) eventually(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("%s: that has not come true", what)
		}
	}
}

// settled waits until nothing but results is left of jobs that succeeded.
func (b *rig) settled(ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		b.eventually("inputs and parts are gone", func() bool { return len(b.objects(id)) == 2 })
	}
}

func TestRetentionRemovesDataByTheAccountsPreset(t *testing.T) {
	t.Parallel()
	b, clock := tidy(t)
	day := 1
	b.keep("short", &day)
	b.keep("ever", nil)
	job := func(account string) string {
		return b.end(b.submit(rowmill.Spec{Account: account, Inline: numbered(3)})).Job.ID
	}
	ids := map[string][]string{"short": {job("short"), job("short"), job("short")}, "plain": {job("plain")}, "ever": {job("ever")}}
	for _, list := range ids {
		b.settled(list...)
	}
	kept := func(id string) bool { return b.await(id, anyRecord).DataRemoved == nil && len(b.objects(id)) == 2 }
	gone := func(account string) {
		t.Helper()
		for _, id := range ids[account] {
			b.eventually("the data is gone", func() bool { return len(b.objects(id)) == 0 })
			rec := b.await(id, func(r store.Record) bool { return r.DataRemoved != nil })
			if rec.Spec.Inline != nil || rec.Job.Status != rowmill.StatusSucceeded || *rec.Job.NumRows != 3 {
				t.Errorf("record %+v: its rows must go, the rest must stay", rec)
			}
		}
		b.eventually("nothing is held", func() bool {
			held, err := b.store.Held(t.Context(), account, clock.now(), 10)
			return err == nil && len(held) == 0
		})
	}
	clock.days.Store(2)
	gone("short")
	clock.days.Store(89)
	b.end(b.submit(rowmill.Spec{Inline: numbered(1)}))
	if !kept(ids["plain"][0]) || !kept(ids["ever"][0]) {
		t.Error("data was removed before its time")
	}
	clock.days.Store(91)
	gone("plain")
	clock.days.Store(10_000)
	if !kept(ids["ever"][0]) {
		t.Error("data of an account that keeps it for ever was removed")
	}
}

func anyRecord(store.Record) bool { return true }

func TestOrphansOfCrashesAreRemoved(t *testing.T) {
	t.Parallel()
	b, clock := tidy(t)
	done := b.end(b.submit(rowmill.Spec{Inline: numbered(3)})).Job.ID
	b.settled(done)
	names := b.objects(done)
	cancelled := b.submit(rowmill.Spec{Model: rowmill.Model{ID: "nobody-has-it", Kind: rowmill.KindGeneration, ContextLength: 10}, Inline: numbered(3)})
	if _, err := b.store.Cancel(t.Context(), cancelled, clock.now(), nil); err != nil {
		t.Fatal(err)
	}
	open := b.submit(rowmill.Spec{Model: rowmill.Model{ID: "nobody-has-it", Kind: rowmill.KindGeneration, ContextLength: 10}, Inline: numbered(3)})
	never := rowmill.NewJobID()
	b.put("jobs/" + never + "/input/rows.jsonl")
	b.put("jobs/" + open + "/input/rows.jsonl")
	b.put("jobs/" + cancelled + "/parts/unrecorded.parquet")
	for _, name := range []string{"input/shard-000000", "parts/late.parquet", "results/unrecorded.parquet"} {
		b.put("jobs/" + done + "/" + name)
	}
	alien := b.put("jobs-of-others/x")

	if got := len(b.objects(never)) + len(b.objects(done)) + len(b.objects(cancelled)); got != 1+5+1 {
		t.Errorf("%d objects are left of those that are younger than a day", got)
	}
	clock.days.Store(2)
	for _, id := range []string{never, cancelled} {
		b.eventually("the orphans are gone", func() bool { return len(b.objects(id)) == 0 })
	}
	b.eventually("the leftovers are gone", func() bool { return cmp.Equal(names, b.objects(done)) })
	if got := b.objects(open); !slices.Contains(got, "input/rows.jsonl") {
		t.Errorf("an open job has %v", got)
	}
	if _, err := b.cfg.Blob.Stat(t.Context(), alien); err != nil {
		t.Errorf("an object that is not a job's: %v", err)
	}
	b.checkEcho(b.await(done, anyRecord), numbered(3))
}

// Whoever has opened the results reads them whole, or gets an error.
func TestRemovalWhileResultsAreRead(t *testing.T) {
	t.Parallel()
	b, clock := tidy(t)
	rec := b.end(b.submit(rowmill.Spec{Inline: numbered(3)}))
	object, err := b.cfg.Blob.Open(t.Context(), rec.Artifacts["full"].Key)
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	clock.days.Store(100)
	b.eventually("the data is gone", func() bool { return len(b.objects(rec.Job.ID)) == 0 })
	text := make([]byte, object.Size())
	if n, err := blob.NewReader(object).Read(text); err != nil || n != len(text) || string(text[:4]) != "PAR1" {
		t.Errorf("%d of %d bytes, %v", n, len(text), err)
	}
}

// askedStore counts how often its node looks for data to remove.
type askedStore struct {
	store.Store
	asked *atomic.Int64
}

func (s askedStore) Holders(ctx context.Context) ([]string, error) {
	s.asked.Add(1)
	return s.Store.Holders(ctx)
}

func TestOneNodeRemovesData(t *testing.T) {
	t.Parallel()
	b, net := setup(t, nil), newNetwork()
	asked := map[*host]*atomic.Int64{}
	for _, name := range []string{"one", "two", "three"} {
		var n atomic.Int64
		h := b.join(net, name, nil, func(c *actors.Config) {
			c.JanitorInterval, c.Store = 5*time.Millisecond, askedStore{c.Store, &n}
		})
		asked[h] = &n
	}
	busy := func() (found *host) {
		t.Helper()
		for _, n := range asked {
			n.Store(0)
		}
		b.eventually("a node looks for data to remove", func() bool {
			for h, n := range asked {
				if n.Load() >= 10 {
					found = h
				}
			}
			return found != nil
		})
		return found
	}
	busy() // until all know each other
	first := busy()
	for h, n := range asked {
		if h != first && n.Load() > 1 { // one may have been at it
			t.Errorf("%s looks %d times beside %s", h.member.ID, n.Load(), first.member.ID)
		}
	}
	first.gone.Store(true)
	delete(asked, first)
	if next := busy(); next == first {
		t.Error("nobody else took over")
	}
}
