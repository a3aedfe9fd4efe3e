package deployment_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/disktest"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/deployment"
)

// A place is a store and a bucket, which can be paired with others.
type place struct {
	*testing.T
	store  *bolt.Store
	bucket blob.Bucket
}

func newPlace(t *testing.T) place {
	t.Helper()
	records, bucket := disktest.Open(t)
	if err := bucket.Delete(t.Context(), layout.Deployment); err != nil { // no node has started here
		t.Fatal(err)
	}
	return place{t, records, bucket}
}

func (p place) pair() deployment.Storage {
	return deployment.Storage{
		Records: p.store, RecordsName: "redis://records", Bucket: p.bucket, BucketName: "s3://objects", Clock: time.Now,
	}
}

// job creates a job with a result file, in the records and in the bucket.
func (p place) job() string {
	p.Helper()
	id := rowmill.NewJobID()
	p.record(id)
	p.object(id, "results/full-1-a.parquet")
	return id
}

func (p place) record(id string) {
	p.Helper()
	job := rowmill.Job{ID: id, Status: rowmill.StatusPending, RunType: rowmill.RunEstimate, JobTimes: rowmill.JobTimes{Created: time.Now()}}
	spec := rowmill.Spec{Account: "default"}
	if _, _, err := p.store.Create(p.Context(), store.Record{Job: job, Spec: spec}, nil); err != nil {
		p.Fatal(err)
	}
	session := must.Get(p.store.OpenSession(p.Context(), "node", time.Hour))(p)
	rec := must.Get(p.store.Claim(p.Context(), id, session, store.Claim{}))(p)
	fence := store.Fence{JobID: id, Session: session, Epoch: rec.Epoch}
	must.Get(p.store.Finish(p.Context(), fence, func(rec *store.Record) error {
		rec.Artifacts = map[string]store.Artifact{layout.Full: {Key: layout.JobPrefix(id) + "results/full-1-a.parquet", Size: 1}}
		return errors.Join(rec.Job.Become(rowmill.StatusStarting, time.Now()), rec.Job.Become(rowmill.StatusRunning, time.Now()),
			rec.Job.Become(rowmill.StatusSucceeded, time.Now()))
	}))(p)
}

func (p place) object(id, name string) {
	p.Helper()
	w, err := p.bucket.Create(p.Context(), layout.JobPrefix(id)+name, layout.Parquet)
	if err == nil {
		_, err = w.Write([]byte("x"))
	}
	if err == nil {
		_, err = w.Commit()
	}
	must.Succeed(p, err)
}

func (p place) settle() deployment.Identity {
	p.Helper()
	found := must.Get(p.pair().EnsureIdentity(p.Context()))(p)
	return found
}

// refused checks that EnsureIdentity fails, that the error names both places and the
// remedy, and that nothing changes.
func (p place) refused() *deployment.MismatchError {
	p.Helper()
	_, bucketBefore := p.said()
	_, err := p.pair().EnsureIdentity(p.Context())
	var differ *deployment.MismatchError
	if !errors.As(err, &differ) {
		p.Fatalf("error = %v, want a *DifferError", err)
	}
	for _, part := range []string{"redis://records", "s3://objects", "rowmill storage adopt"} {
		if !strings.Contains(err.Error(), part) {
			p.Errorf("%q does not name %s", err, part)
		}
	}
	if _, after := p.said(); after != bucketBefore {
		p.Errorf("the bucket said %q, and says %q after a refusal", bucketBefore, after)
	}
	return differ
}

// said returns the stored identities, empty for none.
func (p place) said() (records, bucket string) {
	if doc, _, err := p.store.GetValue(p.Context(), deployment.ValueName); err == nil {
		records = string(doc)
	}
	if o, openErr := p.bucket.Open(p.Context(), layout.Deployment); openErr == nil {
		defer o.Close()
		text := make([]byte, o.Size())
		_, _ = blob.NewReader(o).Read(text)
		bucket = string(text)
	}
	return records, bucket
}

func TestSettle_NewIdentityIsKept(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	first := p.settle()
	p.job()
	if again := p.settle(); again != first || first.ID == "" || first.Format != deployment.Format {
		t.Errorf("%+v, then %+v", first, again)
	}
	if err := p.pair().ConfirmIdentity(t.Context(), first); err != nil {
		t.Error(err)
	}
}

// Records and objects of a version without deployments belong together when one knows a
// job of the other.
func TestSettle_MarksUnmarked(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.object(rowmill.NewJobID(), "input/rows.jsonl") // of a submission that crashed
	p.job()
	first := p.settle()
	if again := p.settle(); again != first {
		t.Errorf("%+v, then %+v", first, again)
	}
}

// Two deployments on one bucket: the second does not start, even when the first has not
// run any jobs.
func TestSettle_SecondDeploymentOnABucket(t *testing.T) {
	t.Parallel()
	for name, jobs := range map[string]int{"that has just begun": 0, "that has jobs": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, two := newPlace(t), newPlace(t)
			own := one.settle()
			for range jobs {
				one.job()
			}
			two.bucket = one.bucket
			if differ := two.refused(); differ.Bucket == nil || differ.Bucket.ID != own.ID || differ.Records != nil {
				t.Errorf("%+v", differ)
			}
			two.bucket = newPlace(t).bucket
			two.settle()
			two.bucket = one.bucket
			if differ := two.refused(); differ.Records == nil || differ.Records.ID == own.ID {
				t.Errorf("%+v", differ)
			}
			if again := one.settle(); again != own {
				t.Errorf("the first one's bucket became that of %v", again)
			}
		})
	}
}

// A bucket with objects of a version without deployments does not match an empty store.
func TestSettle_EmptyStoreBesideAFullBucket(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.job()
	p.store = newPlace(t).store
	p.refused()
}

// After FLUSHALL, or in another database, the records have no identity and no jobs.
func TestSettle_EmptiedStore(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	own := p.settle()
	p.job()
	full := p.store
	p.store = newPlace(t).store
	if differ := p.refused(); differ.Bucket == nil || differ.Bucket.ID != own.ID {
		t.Errorf("%+v", differ)
	}
	if err := p.pair().ConfirmIdentity(t.Context(), own); err == nil {
		t.Error("a node that runs does not notice")
	}
	p.store = full
	if err := p.pair().ConfirmIdentity(t.Context(), own); err != nil {
		t.Errorf("after the restore: %v", err)
	}
}

// A restored snapshot from before the mark is recognized by its jobs.
func TestSettle_RestoredStore(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	older := newPlace(t)
	id := rowmill.NewJobID()
	older.record(id)
	p.record(id)
	p.object(id, "results/full-1-a.parquet")
	own := p.settle()
	p.store = older.store
	if got := p.settle(); got != own {
		t.Errorf("it became %v, was %v", got, own)
	}
}

// An empty object store that replaced another lacks the files that the records name.
func TestSettle_ExchangedBucket(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	own := p.settle()
	p.job()
	p.bucket = newPlace(t).bucket
	p.refused()
	if err := p.pair().ConfirmIdentity(t.Context(), own); err == nil {
		t.Error("a node that runs does not notice")
	}
}

// After a crash between the two marks, the next start completes the second mark.
func TestSettle_CrashBetweenTheMarks(t *testing.T) {
	t.Parallel()
	for name, upgrade := range map[string]bool{"of a new deployment": false, "of a deployment that is marked later": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			if upgrade {
				p.job()
			}
			pair := p.pair()
			pair.Bucket = readOnly{p.bucket}
			if _, err := pair.EnsureIdentity(t.Context()); !errors.Is(err, errReadOnly) {
				t.Fatalf("error = %v", err)
			}
			found := p.settle()
			if records, bucket := p.said(); !strings.Contains(records, found.ID) || !strings.Contains(bucket, found.ID) {
				t.Errorf("the records say %s, the bucket %s, want %v", records, bucket, found)
			}
		})
	}
}

var errReadOnly = errors.New("read only")

type readOnly struct{ blob.Bucket }

func (readOnly) Create(context.Context, string, string) (blob.Writer, error) { return nil, errReadOnly }

// Nodes that start at once on a fresh pair agree on one deployment.
func TestSettle_ManyFirstNodes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	var group sync.WaitGroup
	found := make([]deployment.Identity, 8)
	errs := make([]error, len(found))
	for i := range found {
		group.Go(func() { found[i], errs[i] = p.pair().EnsureIdentity(t.Context()) })
	}
	group.Wait()
	for i := range found {
		if errs[i] != nil || found[i] != found[0] {
			t.Errorf("%v, %v, others are of %v", found[i], errs[i], found[0])
		}
	}
}

// A node that starts while another marks a fresh pair must not take the two for
// different deployments.
func TestSettle_WhileAnotherNodeSettles(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(deployment.Storage, func()) deployment.Storage{
		"before the bucket is read": func(p deployment.Storage, do func()) deployment.Storage { p.Bucket = firstOpen{p.Bucket, do}; return p },
		"before the records are read": func(p deployment.Storage, do func()) deployment.Storage {
			p.Records = firstValue{p.Records, do}
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			var other deployment.Identity
			pair := between(p.pair(), sync.OnceFunc(func() { other = p.settle() }))
			if found, err := pair.EnsureIdentity(t.Context()); err != nil || found != other {
				t.Errorf("%v, %v, the other is of %v", found, err, other)
			}
		})
	}
}

// firstOpen calls do before the first object is opened, firstValue before the first
// value is read.
type (
	firstOpen struct {
		blob.Bucket
		do func()
	}
	firstValue struct {
		deployment.Records
		do func()
	}
)

func (f firstOpen) Open(ctx context.Context, key string) (blob.Object, error) {
	f.do()
	return f.Bucket.Open(ctx, key)
}

func (f firstValue) GetValue(ctx context.Context, name string) (json.RawMessage, int64, error) {
	f.do()
	return f.Records.GetValue(ctx, name)
}

// When two deployments start on one fresh bucket at once, at most one continues.
func TestSettle_TwoDeploymentsBeginAtOnce(t *testing.T) {
	t.Parallel()
	one, two := newPlace(t), newPlace(t)
	two.bucket = one.bucket
	var group sync.WaitGroup
	found := make([]deployment.Identity, 2)
	for i, p := range []place{one, two} {
		group.Go(func() { found[i], _ = p.pair().EnsureIdentity(t.Context()) })
	}
	group.Wait()
	good := 0
	for i, p := range []place{one, two} {
		if p.pair().ConfirmIdentity(t.Context(), found[i]) == nil {
			good++
		}
	}
	if good != 1 {
		t.Errorf("%d of both may remove what lies in the bucket", good)
	}
}

func TestSettle_LaterFormat(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	w, err := p.bucket.Create(t.Context(), layout.Deployment, layout.JSON)
	if err == nil {
		_, err = w.Write([]byte(`{"id": "deployment-x", "format": 3, "more": true}`))
	}
	if err == nil {
		_, err = w.Commit()
	}
	must.Succeed(t, err)
	var format *deployment.NewerFormatError
	if _, err := p.pair().EnsureIdentity(t.Context()); !errors.As(err, &format) || !strings.Contains(err.Error(), "s3://objects") {
		t.Errorf("error = %v", err)
	}
	if _, _, _, err := p.pair().AdoptIdentity(t.Context()); !errors.As(err, &format) {
		t.Errorf("adopt: %v", err)
	}
}

// AdoptIdentity ends every kind of refusal. Another deployment that uses the store or the
// bucket then notices the change.
func TestAdopt(t *testing.T) {
	t.Parallel()
	adopt := func(p place) deployment.Identity {
		p.Helper()
		found, _, _, err := p.pair().AdoptIdentity(t.Context())
		must.Succeed(p, err)
		if settled := p.settle(); settled != found {
			p.Errorf("adopted %v, settled %v", found, settled)
		}
		return found
	}
	for name, lose := range map[string]func(p *place, other place){
		"an emptied store": func(p *place, other place) { p.store = other.store },
		"another bucket":   func(p *place, other place) { p.bucket = other.bucket },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			own := p.settle()
			p.job()
			lose(&p, newPlace(t))
			if got := adopt(p); got != own {
				t.Errorf("it became %v", got)
			}
		})
	}
	t.Run("both of others", func(t *testing.T) {
		t.Parallel()
		one, two := newPlace(t), newPlace(t)
		first, second := one.settle(), two.settle()
		both := place{t, one.store, two.bucket}
		if got := adopt(both); got == first || got == second {
			t.Errorf("it became %v, which another may be", got)
		}
		if one.pair().ConfirmIdentity(t.Context(), first) == nil || two.pair().ConfirmIdentity(t.Context(), second) == nil {
			t.Error("the others do not notice")
		}
	})
}

// A damaged record does not keep a node from starting while an identity is missing: the
// job is known, and other jobs show which result files exist.
func TestSettle_DamagedRecord(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	bad := p.job()
	pair := p.pair()
	pair.Records = damagedRecords{p.store, bad}
	if own, err := pair.EnsureIdentity(t.Context()); err != nil || own.ID == "" {
		t.Fatalf("%+v, %v", own, err)
	}
}
