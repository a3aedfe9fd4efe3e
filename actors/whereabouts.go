package actors

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/store"
)

// whereTimeout is how long the owner of a job may take to say where its rows are: it
// has only to look into its book.
const whereTimeout = time.Second

// Whereabouts is where the rows of a job are, as its owner knows.
type Whereabouts struct {
	Shards   int
	Complete int        // shards of which all rows are committed
	Nodes    []NodeRows // that work for the job, by name
}

// NodeRows are the rows of a job on one node.
type NodeRows struct {
	Node     string   // its name; the address where it has left
	Assigned int64    // and not committed
	Done     int64    // committed since the owner took the job
	Rate     *float64 // committed a second over the last minute; nil before that is known
}

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

// onWhereRows answers from the book: it costs the same however many rows there are.
func (j *job) onWhereRows(c actor.Context, m whereRows) {
	if j.owner == nil || !j.whole {
		answer(c, notCounted(m.Job))
		return
	}
	w := Whereabouts{Nodes: []NodeRows{}}
	w.Complete, w.Shards = j.owner.Complete()
	for _, s := range j.owner.Shares(time.Now()) {
		w.Nodes = append(w.Nodes, NodeRows{Node: j.nameOf(s.Address), Assigned: s.Assigned, Done: s.Done, Rate: s.Rate})
	}
	slices.SortStableFunc(w.Nodes, func(a, b NodeRows) int { return cmp.Compare(a.Node, b.Node) })
	answer(c, w)
}

// nameOf is the name of the node at an address; the address where it has left.
func (j *job) nameOf(address string) string {
	if address == "" {
		return j.cfg.Node
	}
	for _, m := range j.transport.others() {
		if m.Peer == address {
			return m.Node
		}
	}
	return address
}

func notCounted(job string) *peer.Refusal {
	return refuse(codeUnknownJob, "the rows of job %s are not counted yet", job)
}
