package retention_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// readerOf creates a pending job of the account "default" that reads the data of another job.
func (r *rig) readerOf(lineage rowmill.Lineage) (id string) {
	r.Helper()
	job := rowmill.Job{ID: rowmill.NewJobID(), Status: rowmill.StatusPending, RunType: rowmill.RunFull, JobTimes: rowmill.JobTimes{Created: time.Now().UTC()}, Lineage: lineage}
	_, _, err := r.store.Create(r.Context(), store.Record{Job: job, Spec: rowmill.Spec{Account: "default", Inline: []string{"a"}}}, nil)
	must.Succeed(r, err)
	return job.ID
}

// The data of a job stays while an open job reads it, even a paused job, and is removed after the open
// job has ended. It delays no other removal.
func TestNeeded_DataStaysForOpenJobs(t *testing.T) {
	t.Parallel()
	for name, lineage := range map[string]func(id string) rowmill.Lineage{
		"input":    func(id string) rowmill.Lineage { return rowmill.Lineage{InputOf: &id} },
		"continue": func(id string) rowmill.Lineage { return rowmill.Lineage{Continues: &id} },
		"reuse": func(id string) rowmill.Lineage {
			return rowmill.Lineage{Reuse: &rowmill.Reuse{Jobs: []string{"job-x", id}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			r.keep("default")
			var needed, readers []string
			for range 5 { // more than a round examines, and they ended first
				needed = append(needed, r.done("default"))
				readers = append(readers, r.readerOf(lineage(needed[len(needed)-1])))
			}
			must.Get(r.store.Reschedule(t.Context(), readers[0], store.Schedule{Paused: new(true)}))(t)
			other := r.done("default")
			r.days = 2
			r.clean()
			if !r.kept(needed...) {
				t.Fatal("the data was removed while an open job reads it")
			}
			r.gone(other)
			for _, reader := range readers[1:] {
				must.Get(r.store.Cancel(t.Context(), reader, time.Now(), nil))(t)
			}
			r.ran += time.Hour
			r.clean()
			if !r.kept(needed[0]) {
				t.Error("the data was removed while a paused job reads it")
			}
			r.gone(needed[1:]...)
		})
	}
}

// A client can remove data that an open job reads.
func TestNeeded_NotAfterARequestToRemove(t *testing.T) {
	t.Parallel()
	r := setup(t)
	id := r.done("default")
	r.readerOf(rowmill.Lineage{InputOf: &id})
	must.Get(r.store.RemoveData(t.Context(), id, r.now()))(t)
	r.ran = time.Hour
	r.clean()
	r.gone(id)
}

// The kept input of a job stays, too.
func TestNeeded_KeptInputStaysForOpenJobs(t *testing.T) {
	t.Parallel()
	r := setup(t)
	read, free := r.cancelled(), r.cancelled()
	for _, id := range []string{read, free} {
		must.Succeed(t, r.store.KeepInput(t.Context(), id, r.now().AddDate(0, 0, 7)))
	}
	reader := r.readerOf(rowmill.Lineage{InputOf: &read})
	r.days = 6
	r.clean()
	if len(r.tidied) > 0 {
		t.Fatalf("%v were tidied before their time", r.tidied)
	}
	r.days = 8
	r.clean()
	if !slices.Equal(r.tidied, []string{free}) {
		t.Fatalf("%v were tidied, want only %s", r.tidied, free)
	}
	must.Get(r.store.Cancel(t.Context(), reader, r.now(), nil))(t)
	r.ran += time.Hour
	r.clean()
	if !slices.Contains(r.tidied, read) {
		t.Errorf("%v were tidied, want %s too", r.tidied, read)
	}
}

// A busyStore has an account with very many open jobs.
type busyStore struct{ *clocked }

func (busyStore) ListActiveJobs(_ context.Context, _ []string, _ time.Time, limit int) ([][]string, error) {
	open := make([]string, limit)
	for i := range open {
		open[i] = fmt.Sprintf("job-%d", i)
	}
	return [][]string{open}, nil
}

// With more open jobs than the janitor reads, it removes nothing of the account and says so.
func TestNeeded_ManyOpenJobs(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.keep("default")
	id := r.done("default")
	r.Store = busyStore{r.clocked}
	r.days = 2
	_, err := r.Round(t.Context())
	if err == nil || !strings.Contains(err.Error(), "account default: 10000 or more jobs are open") || !r.kept(id) {
		t.Errorf("error %v, data kept: %v", err, r.kept(id))
	}
	r.Store = r.clocked
	r.clean()
	r.gone(id)
}
