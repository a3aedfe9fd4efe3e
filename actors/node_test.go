package actors

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill/actors/fair"
	"github.com/rowmill/rowmill/actors/registry"
)

// A node loses only the lease that ended, not a later lease.
func TestTheEndOfAnOldLeaseKeepsTheNewOne(t *testing.T) {
	t.Parallel()
	opened := func() *lease {
		l := &lease{}
		l.ctx, l.cancel = context.WithCancelCause(t.Context())
		return l
	}
	first, second := opened(), opened()
	part := nodePart{log: slog.New(slog.DiscardHandler), deps: &deps{metrics: newMetrics(prometheus.NewRegistry(), registry.New(time.Now))}}
	n := &nodeJobs{nodePart: part, claims: newClaims(fair.Config{Places: 1})}
	n.onLeaseChanged(nil, leaseChanged{lease: first})
	if n.lease != first {
		t.Fatal("a new lease is not used")
	}
	n.onLeaseChanged(nil, leaseChanged{lease: second})
	n.onLeaseChanged(nil, leaseChanged{lease: first, ended: true})
	if n.lease != second || second.ctx.Err() != nil {
		t.Error("the end of a former lease ends the present one")
	}
}

func TestKindOfAnActor(t *testing.T) {
	t.Parallel()
	for id, kind := range map[string]string{
		"node":                           "node",
		"node/engine-gpu-1$4":            "engine",
		"node/job-job-0190f5b2-3$7":      "job",
		"node/job-job-0190-3$7/results$": "results",
		"node/worker-job-0190-3$9":       "worker",
		"node/shard-job-0190-3$9":        "other",
		"future$12":                      "other",
	} {
		if got := kindOf(id); got != kind {
			t.Errorf("%s is of kind %s, want %s", id, got, kind)
		}
	}
}
