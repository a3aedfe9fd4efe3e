package retention_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/retention"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/disktest"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
)

// A rig has a janitor, a store, a bucket, and a clock that tests can move by days.
type rig struct {
	*testing.T
	*retention.Janitor
	store   *bolt.Store
	clocked *clocked
	session string
	days    int           // days that have passed
	ran     time.Duration // further time that has passed
	jump    time.Duration // part of the passed time by which only the clocks have moved
	off     time.Duration // the node's clock minus the store's
	differ  error         // if set, the reason why nothing may be removed
	log     bytes.Buffer
	tidied  []string
	columns []string // columns that new jobs keep of their input

	announced   []string // jobs
	announceErr error
	stuck       map[string]bool // jobs with failing cleanup
}

func setup(t *testing.T) *rig {
	t.Helper()
	records, bucket := disktest.Open(t)
	r := &rig{T: t, store: records, session: must.Get(records.OpenSession(t.Context(), "node", time.Hour))(t), clocked: &clocked{Store: records}}
	r.clocked.now = r.now
	r.restart(bucket)
	return r
}

// now returns the time after these days, on the node and in the store.
func (r *rig) now() time.Time { return time.Now().AddDate(0, 0, r.days).Add(r.ran) }

// restart makes a new janitor, like a new process.
func (r *rig) restart(bucket blob.Bucket) {
	begun := r.now()
	r.Janitor = retention.New(retention.Config{
		Store: r.clocked, Bucket: bucket, Log: slog.New(slog.NewTextHandler(&r.log, nil)),
		Confirm: func(context.Context) error { return r.differ },
		Clock:   func() time.Time { return r.now().Add(r.off) },
		Running: func() time.Duration { return r.now().Sub(begun) - r.jump },
		Announce: func(_ context.Context, job string) error {
			r.announced = append(r.announced, job)
			return r.announceErr
		},
		Tidy: func(ctx context.Context, job string) error {
			if r.stuck[job] {
				return errors.New("cannot be deleted")
			}
			r.tidied = append(r.tidied, job)
			return r.store.MarkInputRemoved(ctx, job, r.now())
		},
		TidyAfter: 10 * time.Minute, Batch: 2, OrphanAge: 24 * time.Hour, Tolerance: 2 * time.Minute, CatchUp: 24,
	})
}

// clocked is a store with the clock of a test.
type clocked struct {
	*bolt.Store
	now func() time.Time
}

func (c clocked) Time(ctx context.Context) (time.Time, error) { return c.now(), ctx.Err() }

// clean runs rounds until retention has nothing more to do, and two more so that the
// sweep passes all folders. It returns the number of rounds of retention.
func (r *rig) clean() (rounds int) {
	r.Helper()
	for must.Get(r.Round(r.Context()))(r.T) {
		rounds++
	}
	for range 5 {
		must.Get(r.Round(r.Context()))(r.T)
	}
	return rounds + 1
}

// rounds runs rounds that may fail.
func (r *rig) rounds(n int) {
	for range n {
		_, _ = r.Round(r.Context())
	}
}

// keep sets the retention of accounts to a day.
func (r *rig) keep(accounts ...string) {
	r.Helper()
	for _, account := range accounts {
		r.keepFor(account, new(1))
	}
}

// keepFor sets the retention of an account; nil is for ever.
func (r *rig) keepFor(account string, days *int) {
	r.Helper()
	doc := must.Get(json.Marshal(store.AccountSettings{RetentionDays: days}))(r.T)
	must.Get(r.store.PutValue(r.Context(), store.SettingsValueName(account), doc, 0))(r.T)
}

// put writes an object of a job.
func (r *rig) put(id, name string) string {
	r.Helper()
	return r.putKey(layout.JobPrefix(id) + name)
}

func (r *rig) putKey(key string) string {
	r.Helper()
	must.Get(blob.Write(r.Context(), r.Bucket, key, layout.Bytes, func(w io.Writer) error {
		_, err := w.Write([]byte("x"))
		return err
	}))(r.T)
	return key
}

// objects returns the names of a job's objects, without the job's prefix.
func (r *rig) objects(id string) (names []string) {
	r.Helper()
	for _, info := range must.Get(r.Bucket.List(r.Context(), layout.JobPrefix(id)))(r.T) {
		names = append(names, strings.TrimPrefix(info.Key, layout.JobPrefix(id)))
	}
	return names
}

func (r *rig) get(id string) store.Record {
	r.Helper()
	return must.Get(r.store.Get(r.Context(), id))(r.T)
}

// open creates a running job with three rows.
func (r *rig) open(account string) (id string, fence store.Fence) {
	r.Helper()
	spec := rowmill.Spec{Account: account, Model: rowmill.Model{ID: "m"}, Inline: []string{"a", "b", "c"}, ColumnChoice: rowmill.ColumnChoice{Keep: r.columns}}
	job := rowmill.Job{ID: rowmill.NewJobID(), Status: rowmill.StatusPending, RunType: rowmill.RunFull, Model: "m", JobTimes: rowmill.JobTimes{Created: time.Now().UTC()}}
	if _, _, err := r.store.Create(r.Context(), store.Record{Job: job, Spec: spec}, nil); err != nil {
		r.Fatal(err)
	}
	rec := must.Get(r.store.Claim(r.Context(), job.ID, r.session, store.Claim{}))(r.T)
	fence = store.Fence{JobID: job.ID, Session: r.session, Epoch: rec.Epoch}
	rows := int64(3)
	must.Get(r.store.Update(r.Context(), fence, func(rec *store.Record) error {
		rec.Job.NumRows, rec.Shards = &rows, 1
		return errors.Join(rec.Job.Become(rowmill.StatusStarting, time.Now()), rec.Job.Become(rowmill.StatusRunning, time.Now()))
	}))(r.T)
	return job.ID, fence
}

// commit records a part with all rows of a job.
func (r *rig) commit(id string, fence store.Fence) {
	r.Helper()
	totals := store.RowTotals{Rows: 3}
	part := store.Part{Key: r.put(id, "parts/one.parquet"), Rows: 3, Complete: true, Totals: totals, Size: 1}
	must.Succeed(r, r.store.CommitParts(r.Context(), fence, []store.Part{part}))
}

// done creates a job that has succeeded, with two artifacts.
func (r *rig) done(account string) string {
	r.Helper()
	id := r.left(account)
	must.Succeed(r, errors.Join(r.store.DropParts(r.Context(), id), r.Bucket.DeletePrefix(r.Context(), layout.PartsPrefix(id))))
	return id
}

// left is done with an owner that died before it cleaned up.
func (r *rig) left(account string) string {
	r.Helper()
	id, fence := r.open(account)
	r.commit(id, fence)
	artifacts := map[string]store.Artifact{}
	for _, name := range []string{"full", "rows"} {
		artifacts[name] = store.Artifact{Key: r.put(id, "results/"+name+".parquet"), Size: 1}
	}
	must.Get(r.store.Finish(r.Context(), fence, func(rec *store.Record) error {
		rec.Artifacts = artifacts
		return rec.Job.Become(rowmill.StatusSucceeded, time.Now())
	}))(r.T)
	return id
}

func (r *rig) kept(ids ...string) bool {
	r.Helper()
	return !slices.ContainsFunc(ids, func(id string) bool { return r.get(id).DataRemoved != nil || len(r.objects(id)) != 2 })
}

// gone verifies that the data of jobs was removed, and nothing else.
func (r *rig) gone(ids ...string) {
	r.Helper()
	for _, id := range ids {
		rec := r.get(id)
		if objects := r.objects(id); rec.DataRemoved == nil || len(objects) > 0 {
			r.Errorf("data of %s removed: %v, and %v is left", id, rec.DataRemoved, objects)
		}
		if rec.Spec.Inline != nil || rec.Job.Status != rowmill.StatusSucceeded || *rec.Job.NumRows != 3 {
			r.Errorf("record %+v: its rows must go, the rest must stay", rec)
		}
		if held, err := r.store.RetainedJobs(r.Context(), rec.Spec.Account, r.Clock(), 10); err != nil || slices.Contains(held, id) {
			r.Errorf("held after all: %v, %v", held, err)
		}
	}
}

func TestRound_RemovesDataByTheAccountsPreset(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.keep("short")
	r.keepFor("none", new(0))
	r.keepFor("ever", nil)
	short, plain, ever := []string{r.done("short"), r.done("short"), r.done("short")}, r.done("plain"), r.done("ever")
	atOnce := r.done("none")
	if r.clean(); !r.kept(append(short, plain, ever, atOnce)...) {
		t.Fatal("data went at once: nothing is kept for less than a day")
	}
	r.days = 2
	if rounds := r.clean(); rounds < 3 {
		t.Errorf("4 jobs went in %d rounds, want 2 a round", rounds)
	}
	r.gone(append(short, atOnce)...)
	r.days = 89
	if r.clean(); !r.kept(plain, ever) {
		t.Error("data was removed before its time")
	}
	r.days = 91
	r.clean()
	r.gone(plain)
	r.days = 10_000
	if r.clean(); !r.kept(ever) {
		t.Error("data of an account that keeps it for ever was removed")
	}
}

func TestRound_SweepsAfterCrashes(t *testing.T) {
	t.Parallel()
	r := setup(t)
	done := r.done("default")
	names := r.objects(done)
	cancelled, fence := r.open("default")
	r.commit(cancelled, fence)
	must.Get(r.store.Cancel(t.Context(), cancelled, r.Clock(), nil))(t)
	running, _ := r.open("default")
	never := rowmill.NewJobID()
	r.put(never, "input/rows.jsonl")
	r.putKey(layout.SpoolingKey(never))
	r.put(running, "input/rows.jsonl")
	r.put(cancelled, "parts/unrecorded.parquet")
	for _, name := range []string{"input/shard-000000", "parts/late.parquet", "results/unrecorded.parquet"} {
		r.put(done, name)
	}
	alien := r.putKey("jobs-of-others/x")
	r.clean()
	if got := len(r.objects(never)) + len(r.objects(done)) + len(r.objects(cancelled)); got != 1+5+2 {
		t.Errorf("%d objects younger than a day are left", got)
	}
	r.days = 2
	r.clean()
	for id, want := range map[string][]string{
		never: nil, cancelled: {"parts/one.parquet"}, done: names, running: {"input/rows.jsonl"},
	} {
		if diff := cmp.Diff(want, r.objects(id)); diff != "" {
			t.Errorf("objects (-want +got):\n%s", diff)
		}
	}
	if _, err := r.Bucket.Stat(t.Context(), alien); err != nil {
		t.Errorf("an object that is not a job's: %v", err)
	}
	if !strings.Contains(r.log.String(), never) {
		t.Errorf("the log does not say so:\n%s", r.log.String())
	}
}

// Columns that a job keeps of its input stay as long as its results.
func TestRound_KeepsColumnsOfTheInput(t *testing.T) {
	t.Parallel()
	r := setup(t)
	stray := r.done("default")
	r.columns = []string{rowmill.KeepAll}
	keeps := r.done("default")
	for _, id := range []string{stray, keeps} {
		r.put(id, "kept.parquet")
	}
	r.days = 2
	r.clean()
	if got := []int{len(r.objects(stray)), len(r.objects(keeps))}; got[0] != 2 || got[1] != 3 {
		t.Errorf("%d objects of a job without columns and %d of a job with columns are left, want 2 and 3", got[0], got[1])
	}
	r.days = 91
	r.clean()
	r.gone(keeps)
}

// Objects that a worker writes while retention removes the job's data are removed later.
func TestRound_SweepsAfterRetention(t *testing.T) {
	t.Parallel()
	r := setup(t)
	id := r.done("default")
	r.days = 91
	r.clean()
	r.put(id, "parts/late.parquet")
	r.days += 2
	r.clean()
	r.gone(id)
}

// The sweep passes all folders once a day, and a batch of folders in each round.
func TestRound_SweepsABatchAtATime(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var ids []string
	for range 5 {
		ids = append(ids, r.done("default"))
		r.put(ids[len(ids)-1], "parts/late.parquet")
	}
	left := func() (n int) {
		defer func() { n -= 2 * len(ids) }()
		for _, id := range ids {
			n += len(r.objects(id))
		}
		return n
	}
	r.days = 2
	for _, want := range []int{3, 1, 0, 0} {
		if must.Get(r.Round(t.Context()))(t); left() != want {
			t.Fatalf("%d folders are left, want %d", left(), want)
		}
	}
	r.put(ids[0], "parts/late.parquet")
	if r.clean(); left() != 1 {
		t.Error("the folders were gone through again before a day was over")
	}
	r.days += 2
	if r.clean(); left() != 0 {
		t.Error("the folders were not gone through again")
	}
}

// A stubborn bucket deletes nothing of some jobs, and counts the requests to do so.
type stubborn struct {
	blob.Bucket
	asked map[string]int
}

var errStubborn = errors.New("it stays")

func (b stubborn) DeletePrefix(ctx context.Context, prefix string) error {
	id := strings.TrimSuffix(strings.TrimPrefix(prefix, layout.Jobs), "/")
	if _, stays := b.asked[id]; stays {
		b.asked[id]++
		return errStubborn
	}
	return b.Bucket.DeletePrefix(ctx, prefix)
}

// A job whose data cannot be removed delays no other job, and is tried again.
func TestRound_ContinuesAfterAnError(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.keep("a", "b")
	r.Batch = 10
	bad, good, other := r.done("a"), r.done("a"), r.done("b")
	r.days = 2
	bucket := r.Bucket
	r.Bucket = stubborn{bucket, map[string]int{bad: 0}}
	if _, err := r.Round(t.Context()); !errors.Is(err, errStubborn) || !strings.Contains(err.Error(), "account a") {
		t.Errorf("error = %v, want the bucket's, with the account", err)
	}
	r.gone(good, other)
	if rec := r.get(bad); rec.DataRemoved == nil || len(r.objects(bad)) != 2 {
		t.Errorf("record %+v: readers must know before the objects go", rec)
	}
	r.Bucket = bucket
	r.days++
	r.clean()
	r.gone(bad)
}

// If the owner of a successful job dies before it removes the parts, their objects and
// records are removed later, but not while the store may still lose the end of the job.
func TestRound_RemovesPartsOfASuccess(t *testing.T) {
	t.Parallel()
	r := setup(t)
	id, done := r.left("a"), r.done("a")
	r.clean()
	if parts := must.Get(r.store.ListParts(t.Context(), id))(t); len(parts) != 1 || len(r.objects(id)) != 3 {
		t.Errorf("parts %v and objects %v of a job that has just ended", parts, r.objects(id))
	}
	r.put(id, "input/shard-000000")
	r.days = 2
	r.clean()
	for _, id := range []string{id, done} {
		if parts := must.Get(r.store.ListParts(t.Context(), id))(t); len(parts) > 0 {
			t.Errorf("records of parts %v are left", parts)
		}
		if got := r.objects(id); len(got) != 2 {
			t.Errorf("%v is left, want the two artifacts", got)
		}
	}
}

// A node that scrubs reads the results of a limited number of jobs in each round, and
// reports all damaged objects after the last.
func TestRound_ScrubFindsDamage(t *testing.T) {
	t.Parallel()
	for _, scrub := range []int64{0, 1} {
		r := setup(t)
		r.Scrub = scrub
		for range 3 {
			r.done("default") // its results are no Parquet files
		}
		for round, want := range []int{0, 0, 6} {
			if must.Get(r.Round(t.Context()))(t); r.Findings().Damaged != want*int(scrub) {
				t.Errorf("scrub %d, round %d: %+v, want %d damaged", scrub, round, r.Findings(), want)
			}
		}
		if lines := bytes.Count(r.log.Bytes(), []byte("an object cannot be read")); lines != 6*int(scrub) {
			t.Errorf("%d lines:\n%s", lines, r.log.String())
		}
	}
}
