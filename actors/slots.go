package actors

import (
	"context"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/fair"
)

// slots bound the work of a node that takes memory of its own, all jobs
// together. Accounts take turns.
type slots struct {
	merge *fair.Gate // merges hold a window of every part
	write *fair.Gate // parts hold a row group in columns
}

func newSlots() slots { return slots{merge: fair.NewGate(1), write: fair.NewGate(2)} }

// enter waits for a place for work of a job; it returns false when ctx ends first.
func enter(ctx context.Context, g *fair.Gate, spec *rowmill.Spec) bool {
	return g.Enter(ctx, spec.Account, spec.Priority == 0)
}
