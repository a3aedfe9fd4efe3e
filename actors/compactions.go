package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/internal/tracing"
)

// A compactionTask is the work to make one object for a committer, on this node or another: a
// merged part, a joined part or a result.
type compactionTask struct {
	name    string                                                            // name of the work in logs and traces
	begin   func() *commit.Compaction                                         // called for each attempt
	record  func(ctx context.Context, m *commit.Compaction, size int64) error // records the object in the store; nil if it is not recorded
	onMade  func(c actor.Context, m *commit.Compaction, size int64)           // the committer calls onMade after the object is made and recorded
	isLocal bool                                                              // this node must make the object, because another node failed or the object is small
}

// addCompaction queues a compaction, which starts when a node has room for one more
// compaction.
func (r *committer) addCompaction(c actor.Context, e compactionTask) {
	r.compactions = append(r.compactions, e)
	r.startCompactions(c)
}

func (r *committer) startCompactions(c actor.Context) {
	for len(r.compactions) > 0 {
		e, address, ok := r.compactions[0], "", true
		if !e.isLocal {
			address, ok = r.helpers.AcquireNode()
		}
		if !ok {
			return
		}
		r.compactions = r.compactions[1:]
		r.runCompaction(c, e, address)
	}
}

// runCompaction asks the node at an address to make the object; "" means this node. If that node
// fails or is lost, another node or this one makes the object.
func (r *committer) runCompaction(c actor.Context, e compactionTask, address string) {
	m := e.begin()
	var turn func(context.Context) bool // nil if no turn is needed
	if address == "" && m.Heavy() {
		turn = r.mergeWaits.joinQueue(r.slots.merge, r.job.spec)
	}
	r.tasks.run(c, "merge parts", func(ctx context.Context) mailboxStep {
		span := r.job.trace.Begin("merge parts", slog.String("rowmill.what", e.name), slog.String("rowmill.node", address), slog.Int("rowmill.parts", len(m.Parts)))
		var size int64
		var err error
		if address == "" {
			size, err = r.compactLocally(ctx, m, turn, span)
		} else {
			size, err = r.compactRemotely(ctx, address, m)
		}
		failed := err != nil
		if !failed && e.record != nil {
			err = e.record(ctx, m, size)
		}
		span.End(err)
		return func(c actor.Context) {
			if !e.isLocal {
				r.helpers.ReleaseNode(address)
			}
			switch {
			case failed && address != "":
				r.log.Info("another node failed to make an object of the job, so the work is tried again", "what", e.name, "node", address, "err", err)
				e.isLocal = r.onHelperFailed(address, err)
				r.compactions = append([]compactionTask{e}, r.compactions...)
			case err != nil:
				r.sendError(c, fmt.Errorf("%s: %w", e.name, err))
				return
			default:
				e.onMade(c, m, size)
			}
			r.startCompactions(c)
		}
	})
}

// onHelperFailed handles the error of another node, and reports whether this node must run
// the compaction.
func (r *committer) onHelperFailed(address string, err error) (mustRunHere bool) {
	var failed compactionError
	switch {
	case errors.As(err, &failed):
		return true
	case refusalCode(err) == peer.CodeTooLarge:
		return true
	default:
		r.helpers.RemoveNode(address)
	}
	return false
}

func (r *committer) compactLocally(ctx context.Context, m *commit.Compaction, turn func(context.Context) bool, span *tracing.Span) (int64, error) {
	if turn != nil {
		if !turn(ctx) {
			return 0, ctx.Err()
		}
		defer r.slots.merge.Leave(r.job.spec.Account)
		defer r.metrics.observeMerge(span, time.Now())
	}
	return m.Run(ctx, r.cfg.Blob, r.storage.RetryUnlessElsewhere)
}

// Limits of the pause between two requests to another node for the state of a
// compaction. The pause is a quarter of the time that the compaction has taken so far.
const (
	shortestAskPause = 20 * time.Millisecond
	longestAskPause  = 500 * time.Millisecond
)

// compactionError is the error of a node that ran a compaction and failed.
type compactionError string

// Error returns the text that the node sent.
func (f compactionError) Error() string { return string(f) }

// compactRemotely lets the node at an address run a compaction, and returns the size of the
// object. It returns an error if the node does not answer for
// Config.Ownership.LeaseTTL.
func (r *committer) compactRemotely(ctx context.Context, address string, m *commit.Compaction) (int64, error) {
	ask := compactionRequest{Job: r.job.id, Account: r.job.spec.Account, Priority: r.job.spec.Priority, Compaction: m}
	known := ask
	known.Compaction = &commit.Compaction{Key: m.Key}
	begun := time.Now()
	for heard := begun; ; {
		state, err := r.askCompaction(ctx, address, ask)
		now := time.Now()
		switch {
		case err == nil && state.Failed != "":
			return 0, compactionError(state.Failed)
		case err == nil && state.Done:
			return state.Size, nil
		case err == nil:
			ask, heard = known, now
		case refusalCode(err) == codeUnknownJob && ask.Compaction != m: // the node has restarted
			ask.Compaction = m
		case refusalCode(err) != "" && refusalCode(err) != codeBusy, errors.Is(err, peer.ErrRefused), now.Sub(heard) > r.cfg.Ownership.LeaseTTL:
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(min(max(now.Sub(begun)/4, shortestAskPause), longestAskPause)):
		}
	}
}

func (r *committer) askCompaction(ctx context.Context, address string, m compactionRequest) (commit.CompactionState, error) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	return r.transport.runCompaction(ctx, address, m)
}
