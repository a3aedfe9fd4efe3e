package actors

import (
	"context"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/store"
)

// whereTimeout is how long the owner of a job may take to say where its rows are: it
// has only to look into its book.
const whereTimeout = time.Second

// Whereabouts asks the owner of a job where its rows are. rowmill.ErrNotFound where
// the record names no owner that is here, or that does not know: it has not counted
// the rows yet, has lost the job meanwhile, or is of a version that cannot say.
func (s *System) Whereabouts(ctx context.Context, rec *store.Record) (w Whereabouts, err error) {
	job := rec.Job.ID
	question := whereRows{job}
	owner, err := s.ownerOf(rec)
	switch {
	case err != nil:
		return w, err
	case owner.Self:
		w, err = s.ownWhereabouts(question)
	default:
		ctx, cancel := context.WithTimeout(ctx, whereTimeout)
		defer cancel()
		w, err = s.transport.locateRows(ctx, owner.Peer, question)
	}
	if refused := code(err); refused == codeUnknownJob || refused == peer.CodeUnknownKind {
		err = fmt.Errorf("%w: %w", rowmill.ErrNotFound, err)
	}
	return w, err
}

// ownerOf is the node of a job's owner, as the record names it; this one where it
// stands alone.
func (s *System) ownerOf(rec *store.Record) (cluster.Member, error) {
	if s.cfg.Peers == nil {
		return cluster.Member{Self: true}, nil
	}
	claim, _ := rec.Owner()
	for _, m := range s.cfg.Peers.Members() {
		if m.ID == claim.Process && (m.Self || m.Protocol == Protocol) {
			return m, nil
		}
	}
	return cluster.Member{}, fmt.Errorf("%w: no owner of job %s is here", rowmill.ErrNotFound, rec.Job.ID)
}

// ownWhereabouts asks a job of this node.
func (s *System) ownWhereabouts(question whereRows) (w Whereabouts, err error) {
	body, err := s.actors.Root.RequestFuture(s.node, nodeRequest{body: question}, whereTimeout).Result()
	if err = asError(body, err); err != nil {
		return w, err
	}
	return body.(Whereabouts), nil
}
