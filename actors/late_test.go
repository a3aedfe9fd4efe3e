package actors_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
	"github.com/rowmill/rowmill/store"
)

// A sluggish bucket stores some objects only when the test lets it, even if the
// caller has given up. Before that the bucket holds nothing of these objects,
// because a bucket that is emptied also drops unfinished objects of its own
// process.
type sluggish struct {
	blob.Bucket
	of      string // part of the keys of these objects
	lets    chan struct{}
	waiting atomic.Int64
}

func (s *sluggish) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	if !strings.Contains(key, s.of) {
		return s.Bucket.Create(ctx, key, contentType)
	}
	return &sluggishWriter{bucket: s, ctx: context.WithoutCancel(ctx), key: key, contentType: contentType}, nil
}

type sluggishWriter struct {
	bytes.Buffer
	bucket           *sluggish
	ctx              context.Context
	key, contentType string
}

func (w *sluggishWriter) Abort() {}

func (w *sluggishWriter) Commit() (blob.ObjectInfo, error) {
	w.bucket.waiting.Add(1)
	<-w.bucket.lets
	object, err := w.bucket.Bucket.Create(w.ctx, w.key, w.contentType)
	if err != nil {
		return blob.ObjectInfo{}, err
	}
	defer object.Abort()
	if _, err := object.Write(w.Bytes()); err != nil {
		return blob.ObjectInfo{}, err
	}
	return object.Commit()
}

// A blind store returns no records while now is set.
type blind struct {
	store.Store
	now atomic.Bool
}

func (s *blind) Get(ctx context.Context, id string) (store.Record, error) {
	if s.now.Load() {
		return store.Record{}, errCut
	}
	return s.Store.Get(ctx, id)
}

// A tardy node is cut off while it stores an object for a job. It stores the object
// after another node has ended the job and removed data that the job no longer
// needs.
type tardy struct {
	*rig
	host    *host
	bucket  *sluggish
	records *blind
	let     func()
}

// joinTardy starts a tardy node: it stores objects late if their keys contain of.
// Without an engine the node only owns jobs, with one it owns none.
func (b *rig) joinTardy(net *network, e *scripted, of string) *tardy {
	l := &tardy{rig: b, bucket: &sluggish{Bucket: b.cfg.Blob, of: of, lets: make(chan struct{})}, records: &blind{}}
	l.let = sync.OnceFunc(func() { close(l.bucket.lets) })
	l.host = b.join(net, "tardy", e, func(c *actors.Config) {
		l.records.Store = c.Store
		c.Blob, c.Store, c.Ownership.OwnsNone = l.bucket, l.records, e != nil
	})
	b.t.Cleanup(l.let)
	time.Sleep(time.Second) // the nodes learn of each other, so that none is quicker by luck
	return l
}

// cut cuts the node off, or connects it again.
func (l *tardy) cut(now bool) {
	l.host.cut.Store(now)
	l.records.now.Store(now)
}

// storesLate has a job end while the node is cut off, and then connects the node
// again. It requires that objects stored after that are removed.
func (l *tardy) storesLate(id string, elsewhere func(), back func(store.Record)) {
	l.t.Helper()
	wait.For(l.t, "something is being stored", func() bool { return l.bucket.waiting.Load() > 0 })
	l.cut(true)
	elsewhere()
	rec := l.await(id, func(r store.Record) bool { return r.InputRemoved != nil })
	l.cut(false)
	back(rec)
	if n := l.objects(id); n != len(rec.Artifacts) {
		l.t.Fatalf("%d objects before the late object, want %d", n, len(rec.Artifacts))
	}
	l.let()
	wait.For(l.t, "the late object is stored", func() bool { return l.objects(id) > len(rec.Artifacts) })
	wait.For(l.t, "it is gone", func() bool { return l.objects(id) == len(rec.Artifacts) })
	for name, a := range rec.Artifacts {
		if _, err := l.cfg.Blob.Stat(l.t.Context(), a.Key); err != nil {
			l.t.Errorf("%s, which counts: %v", name, err)
		}
	}
}

// objects returns how many objects a job has.
func (b *rig) objects(id string) int {
	b.t.Helper()
	list := must.Get(b.cfg.Blob.List(b.t.Context(), layout.JobPrefix(id)))(b.t)
	return len(list)
}

// Objects that a node stores for a job after its end and its cleanup are removed
// soon: the part of a worker that ends by itself or is dismissed, and the result of
// an owner that another owner has replaced.
func TestObjectsStoredAfterTheEndAreRemoved(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]func(b *rig, net *network, spec rowmill.Spec){
		"by a worker that ends by itself": func(b *rig, net *network, spec rowmill.Spec) {
			owner, late := b.join(net, "owner", &scripted{answer: slowly(10 * time.Millisecond)}), b.joinTardy(net, &scripted{answer: slowly(100 * time.Millisecond)}, "/parts/")
			late.storesLate(b.submitTo(owner, spec), func() {}, func(store.Record) {})
		},
		"by a dismissed worker": func(b *rig, net *network, spec rowmill.Spec) {
			owner, late := b.join(net, "owner", &scripted{answer: slowly(10 * time.Millisecond)}), b.joinTardy(net, &scripted{answer: slowly(100 * time.Millisecond)}, "/parts/")
			late.storesLate(b.submitTo(owner, spec), func() {}, func(rec store.Record) {
				dismiss := &peerv1.DismissRequest{Job: rec.Job.ID, Epoch: rec.Epoch}
				if _, err := late.host.system.Service().Dismiss(b.t.Context(), dismiss); err == nil {
					b.t.Error("the worker is gone before all is stored")
				}
			})
		},
		"by an owner": func(b *rig, net *network, spec rowmill.Spec) {
			late := b.joinTardy(net, nil, "/results/")
			worker := b.join(net, "worker", &scripted{answer: echo}, func(c *actors.Config) { c.Ownership.OwnsNone = true })
			late.storesLate(b.submitTo(late.host, spec), func() {
				b.join(net, "other", nil)
				_ = worker.system.Stop(b.t.Context()) // this worker would clean up too
			}, func(store.Record) {})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				t.Cleanup(func() { time.Sleep(time.Second) }) // remaining goroutines of the nodes end
				b := setup(t, nil)
				b.cfg.Ownership.Settle = 2 * time.Second
				play(b, newNetwork(), rowmill.Spec{Spooled: b.spool(numbered(300))})
			})
		})
	}
}
