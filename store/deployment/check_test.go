package deployment_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/deployment"
)

// A distant bucket takes one second for each list.
type distant struct {
	blob.Bucket
	now, most atomic.Int64
}

func (b *distant) List(ctx context.Context, prefix string) ([]blob.ObjectInfo, error) {
	b.most.Store(max(b.most.Load(), b.now.Add(1)))
	defer b.now.Add(-1)
	time.Sleep(time.Second)
	return b.Bucket.List(ctx, prefix)
}

// Check examines several jobs at the same time, up to a limit, and reports them in the
// order of ids.
func TestCheck_LooksSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		p.settle()
		var unknown, lost []string
		for range 40 {
			id := rowmill.NewJobID()
			p.object(id, "results/full-1-a.parquet")
			unknown = append(unknown, id)
			id = rowmill.NewJobID()
			p.record(id)
			p.object(id, "input/shard-000000")
			lost = append(lost, id)
		}
		bucket := &distant{Bucket: p.bucket}
		pair := p.pair()
		pair.Bucket = bucket
		began := time.Now()
		report, err := pair.Check(t.Context(), deployment.CheckOptions{})
		if took := time.Since(began); err != nil || took > 5*time.Second || bucket.most.Load() != 16 {
			t.Errorf("80 jobs took %v, %d at once: %v", took, bucket.most.Load(), err)
		}
		slices.Sort(unknown)
		slices.Sort(lost)
		if !slices.EqualFunc(report.Unknown, unknown, func(n deployment.QuarantineNote, id string) bool { return n.JobID == id }) ||
			!slices.EqualFunc(report.Missing, lost, func(m deployment.MissingFile, id string) bool { return m.JobID == id }) || report.Known != 40 {
			t.Errorf("%d known, %d unknown and %d missing, or in another order", report.Known, len(report.Unknown), len(report.Missing))
		}
	})
}

// damagedRecords is a store with one damaged record.
type damagedRecords struct {
	deployment.Records
	id string
}

func (d damagedRecords) Get(ctx context.Context, id string) (store.Record, error) {
	if id == d.id {
		return store.Record{}, fmt.Errorf("record of %s: %w", id, store.ErrDamaged)
	}
	return d.Records.Get(ctx, id)
}

// A damaged record, and an object that cannot be read, are in the report and do not end
// the check.
func TestCheck_Damage(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.settle()
	bad, unread := p.job(), p.job()
	pair := p.pair()
	pair.Records = damagedRecords{p.store, bad}
	report, err := pair.Check(t.Context(), deployment.CheckOptions{Read: func(_ context.Context, rec store.Record) ([]deployment.DamagedItem, error) {
		if rec.Job.ID != unread {
			t.Errorf("job %s was read", rec.Job.ID)
		}
		return []deployment.DamagedItem{{JobID: rec.Job.ID, Key: "k", Reason: "r"}}, nil
	}})
	if err != nil || report.Matches() || report.Known != 1 || len(report.Unknown) != 0 || len(report.Damaged) != 2 {
		t.Fatalf("%+v, %v", report, err)
	}
	for _, d := range report.Damaged {
		if d.JobID == bad && d.Key != "" || d.JobID == unread && d.Key != "k" {
			t.Errorf("%+v", d)
		}
	}
}
