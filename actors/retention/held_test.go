package retention_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/retention"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/deployment"
)

// Jobs with objects that cannot be deleted are set aside: they delay neither other jobs
// of their account nor other accounts, however many they are.
func TestRound_FailedRemovalsDelayNoOthers(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.keep("a", "b")
	bad := stubborn{r.Bucket, map[string]int{}}
	for range 7 { // more than a round examines, and they ended first
		bad.asked[r.done("a")] = 0
	}
	good, other := r.done("a"), r.done("b")
	r.Bucket = bad
	r.days = 2
	r.rounds(6)
	r.gone(good, other)
	for id, asked := range bad.asked {
		if asked < 1 || asked > 2 { // the sweep tries too, once a day
			t.Errorf("job %s was tried %d times within a minute", id, asked)
		}
	}
	before := maps.Clone(bad.asked)
	r.days += 2
	r.rounds(6)
	for id, asked := range bad.asked {
		if again := asked - before[id]; again < 1 || again > 2 {
			t.Errorf("job %s was tried %d times after its rest", id, again)
		}
	}
}

// A removal that always fails is tried less and less often, and other jobs are not
// delayed.
func TestRound_RemovalThatFailsForEver(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.keep("a")
	bad := stubborn{r.Bucket, map[string]int{r.done("a"): 0}}
	r.Bucket = bad
	r.days = 2
	begun := r.clocked.now
	var passed time.Duration
	r.clocked.now = func() time.Time { return begun().Add(passed) }
	r.Clock, r.Running = r.clocked.now, func() time.Duration { return 48*time.Hour + passed }
	for ; passed < 48*time.Hour; passed += time.Minute {
		_, _ = r.Round(t.Context())
	}
	for id, asked := range bad.asked {
		if asked < 8 || asked > 20 {
			t.Errorf("job %s was tried %d times in two days, want again and again, ever more rarely", id, asked)
		}
	}
}

// A brokenStore cannot record that the data of some jobs is being removed.
type brokenStore struct {
	*clocked
	broken []string
}

func (b brokenStore) RemoveData(ctx context.Context, id string, now time.Time) (store.Record, error) {
	if slices.Contains(b.broken, id) {
		return store.Record{}, errStubborn
	}
	return b.clocked.RemoveData(ctx, id, now)
}

// A record that cannot be changed delays no other job.
func TestRound_RecordsThatCannotBeChangedDelayNoOthers(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.keep("a")
	broken := []string{r.done("a"), r.done("a"), r.done("a")}
	good := r.done("a")
	r.Store = brokenStore{r.clocked, broken}
	r.days = 2
	r.rounds(4)
	r.gone(good)
	if !r.kept(broken...) {
		t.Error("data was removed, but the record still names it")
	}
}

// An account with unreadable settings keeps its data, and delays no other account.
func TestRound_SettingsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.keep("b")
	must.Get(r.store.PutValue(t.Context(), store.SettingsValueName("a"), []byte(`"broken"`), 0))(t)
	stays, goes := r.done("a"), r.done("b")
	r.days = 200
	r.clean()
	r.gone(goes)
	if !r.kept(stays) {
		t.Error("the data of an account with unknown settings was removed")
	}
}

// A node with a wrong clock, ahead or behind, removes nothing and says so. Retention
// follows the store's time.
func TestRound_WrongClockRemovesNothing(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{
		"100 days ahead": 100 * 24 * time.Hour, "100 days behind": -100 * 24 * time.Hour, "3 minutes ahead": 3 * time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			r.keep("a")
			old := r.done("a")
			r.days = 2
			fresh := r.done("a")
			r.put(fresh, "parts/late.parquet")
			r.off = off
			var skew *retention.SkewError
			if _, err := r.Round(t.Context()); !errors.As(err, &skew) || (skew.Skew-off).Abs() > time.Minute {
				t.Errorf("error = %v, want one that tells %v", err, off)
			}
			if len(r.objects(old)) != 2 || len(r.objects(fresh)) != 3 {
				t.Error("objects went by a clock that is wrong")
			}
			r.off = 0
			r.clean()
			r.gone(old)
		})
	}
}

// If all clocks jump by a hundred days, as with an embedded store, no data is removed
// for days, and a warning is logged.
func TestRound_ClockThatJumpsRemovesNothing(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.clean()
	kept := r.done("default")
	r.days, r.jump = 100, 100*24*time.Hour
	if r.clean(); !r.kept(kept) {
		t.Fatal("a jump of the clock has removed new data")
	}
	if !strings.Contains(r.log.String(), "the clock is wrong") {
		t.Errorf("the log does not say so:\n%s", r.log.String())
	}
	r.days++ // the process runs during this day
	if r.clean(); !r.kept(kept) {
		t.Fatal("the data was removed before anybody could set the clock")
	}
	r.days, r.jump = 2, 0 // the clock was set right
	if r.clean(); !r.kept(kept) {
		t.Fatal("data went after the clock was set")
	}
}

// The same if a node starts with a wrong clock.
func TestRound_StartWithAWrongClockRemovesNothing(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.clean()
	kept := r.done("default")
	for range 3 { // each start has a new process
		r.days = 100
		r.restart(r.Bucket)
		if r.clean(); !r.kept(kept) {
			t.Fatal("the data of a job that has just ended went")
		}
	}
}

// A service that was suspended for long removes expired data within days.
func TestRound_CatchesUp(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.clean()
	due := r.done("default")
	r.days = 100
	r.restart(r.Bucket)
	if r.clean(); !r.kept(due) {
		t.Fatal("it caught up at once")
	}
	r.days += 5 // a day per hour: this takes 100 hours
	r.clean()
	r.gone(due)
	if !strings.Contains(r.log.String(), "caught up") {
		t.Errorf("the log does not say so:\n%s", r.log.String())
	}
}

// Nothing is removed if records and bucket do not belong together.
func TestRound_RemovesNothingOfAnotherDeployment(t *testing.T) {
	t.Parallel()
	r := setup(t)
	due, late, unknown := r.done("default"), r.done("default"), rowmill.NewJobID()
	r.put(late, "parts/late.parquet")
	r.put(unknown, "input/rows.jsonl")
	r.putKey(layout.SpoolingKey(unknown))
	r.days = 100
	r.differ = errors.New("they do not belong together")
	if _, err := r.Round(t.Context()); !errors.Is(err, r.differ) {
		t.Errorf("error = %v", err)
	}
	if got := len(r.objects(due)) + len(r.objects(late)) + len(r.objects(unknown)); got != 2+3+1 {
		t.Errorf("%d objects are left", got)
	}
}

// Objects that no record names stay at any age and are reported, because the records may
// be incomplete.
func TestRound_UnknownJobsAreSetAside(t *testing.T) {
	t.Parallel()
	r := setup(t)
	lost, spooled := rowmill.NewJobID(), rowmill.NewJobID()
	for _, name := range []string{"results/full-1-a.parquet", "results/rows-1-b.parquet"} {
		r.put(lost, name)
	}
	r.put(spooled, "input/rows.jsonl") // rows without a mark of their submission
	inner := r.putKey(layout.Jobs + "inner/jobs/" + rowmill.NewJobID() + "/results/full-1-a.parquet")
	r.days = 100
	r.clean()
	r.days = 200
	r.clean()
	if len(r.objects(lost)) != 2 || len(r.objects(spooled)) != 1 {
		t.Fatal("objects were removed that no record knows")
	}
	must.Get(r.Bucket.Stat(t.Context(), inner))(t) // an object of a deployment inside this one
	if got := r.Findings(); got.Jobs != 2 || got.Objects != 3 || got.Bytes != 3 {
		t.Errorf("reported %+v", got)
	}
	note, err := deployment.ReadQuarantineNote(t.Context(), r.Bucket, lost)
	if err != nil || note.Objects != 2 || note.Bytes != 2 || note.Found.Sub(r.now()).Abs() < 50*24*time.Hour {
		t.Errorf("note %+v, %v, want one of the first time", note, err)
	}
	if lines := bytes.Count(r.log.Bytes(), []byte("jobs without a record")); lines != 2 {
		t.Errorf("%d lines for two passes:\n%s", lines, r.log.String())
	}
}

// If records come back, for example from a backup, their jobs are known again.
func TestRound_RecordsThatComeBack(t *testing.T) {
	t.Parallel()
	r := setup(t)
	id := r.done("default")
	whole := r.Store
	r.Store = forgetful{r.clocked}
	r.days = 2
	r.clean()
	if noted := must.Get(deployment.ListQuarantinedJobs(t.Context(), r.Bucket))(t); !slices.Equal(noted, []string{id}) {
		t.Fatalf("set aside: %v", noted)
	}
	r.Store = whole
	r.days = 4
	r.clean()
	if noted := must.Get(deployment.ListQuarantinedJobs(t.Context(), r.Bucket))(t); len(noted) > 0 || r.Findings().Jobs != 0 {
		t.Errorf("set aside: %v, %+v", noted, r.Findings())
	}
	if !r.kept(id) {
		t.Error("its data went")
	}
}

// A forgetful store knows no job.
type forgetful struct{ *clocked }

func (forgetful) Get(context.Context, string) (store.Record, error) {
	return store.Record{}, rowmill.ErrNotFound
}

func (forgetful) AccountsWithData(context.Context) ([]string, error) { return nil, nil }

// Spooled rows are waste only if the client got no answer. If the job has shards, it was
// running, and its record is lost.
func TestRound_SpooledRowsOfALostJobStay(t *testing.T) {
	t.Parallel()
	r := setup(t)
	id := rowmill.NewJobID()
	r.put(id, "input/rows.jsonl")
	r.put(id, "input/shard-000000")
	r.putKey(layout.SpoolingKey(id)) // the removal of the mark failed
	r.days = 2
	r.clean()
	if len(r.objects(id)) != 2 || r.Findings().Jobs != 1 {
		t.Errorf("%v are left, %+v", r.objects(id), r.Findings())
	}
}
