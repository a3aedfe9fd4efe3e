package actors

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/internal/must"
)

// A lostBucket returns err from Delete.
type lostBucket struct {
	blob.Bucket
	err error
}

func (b *lostBucket) Delete(context.Context, string) error { return b.err }

func TestWhenJobsGoToNodesThatReachTheBucket(t *testing.T) {
	t.Parallel()
	bucket := &lostBucket{}
	watch := storage.NewMonitor(storage.Config{
		Bucket: bucket, Node: "a", Clock: time.Now, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Met: func(context.Context, error) {},
	})
	member := func(node, objects string, draining bool) cluster.Member {
		state := must.Get(json.Marshal(nodes.State{Objects: objects, Draining: draining}))(t)
		return cluster.Member{ID: node, Node: node, Owns: true, State: state}
	}
	var others []cluster.Member
	r := &bucketReach{storage: watch, others: func() []cluster.Member { return others }}
	use := func(err error) {
		bucket.err = err
		_ = watch.Bucket().Delete(t.Context(), "key")
	}
	elsewhere := func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		err := watch.RetryUnlessElsewhere(ctx, func() error {
			defer cancel() // no second try
			return watch.Bucket().Delete(ctx, "key")
		})
		return errors.Is(err, storage.ErrElsewhere)
	}
	const once, later = 0, time.Hour
	use(nil)
	r.updateHandover(once)
	if r.isCutOff() || r.bucketState() != nodes.Reached {
		t.Error("a node that reaches the bucket gives its jobs away")
	}
	use(syscall.ECONNREFUSED)
	others = []cluster.Member{member("b", nodes.Away, false), member("c", nodes.Reached, true)}
	r.updateHandover(once)
	if r.isCutOff() || elsewhere() || r.bucketState() != nodes.Away {
		t.Error("jobs are given away, but no other node can run them")
	}
	others = append(others, member("d", nodes.Reached, false))
	r.updateHandover(later)
	if !r.isCutOff() || elsewhere() {
		t.Error("the node takes jobs that others could run, or gives jobs away before its patience has ended")
	}
	r.updateHandover(once)
	if !elsewhere() {
		t.Error("jobs wait for a bucket that another node reaches")
	}
	for _, job := range []string{"1", "2", "3"} {
		if first, ok := r.nextClaimer(job); !ok || first.Node != "d" {
			t.Errorf("%s goes to %s, which does not reach the bucket", job, first.Node)
		}
	}
	use(nil)
	r.updateHandover(once)
	if r.isCutOff() || elsewhere() {
		t.Error("the bucket is back, and jobs go elsewhere")
	}
}
