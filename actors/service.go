package actors

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
	"github.com/rowmill/rowmill/results/archive"
)

// Service returns the handler of all requests from other nodes. Its errors are
// *peer.Refusal, or the error of the context.
func (s *System) Service() peerv1connect.NodeServiceHandler { return nodeService{s} }

// A nodeService answers requests of other nodes. It passes most requests to the node actor;
// other requests it answers itself, so that these work even while the node actor is
// blocked.
type nodeService struct{ of *System }

// answerTimeout limits how long a request of another node waits for this node's actors.
// The actors answer at once, except if they must stop a worker before the answer.
const answerTimeout = 10 * time.Second

// ask sends a request to the node actor, and returns an answer of type A.
func ask[A any](ctx context.Context, s nodeService, request any) (said A, err error) {
	wait, limit := answerTimeout, false
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); left < wait {
			wait, limit = left, true
		}
	}
	answer, err := s.of.actors.Root.RequestFuture(s.of.node, request, wait).Result()
	refused, is := answer.(*peer.Refusal)
	switch {
	case is:
		return said, refused
	case err != nil && limit: // the node may still handle the request, so do not return a refusal
		<-ctx.Done()
		return said, ctx.Err()
	case err != nil:
		return said, refuse(codeBusy, "the node did not answer in time")
	}
	if said, is = answer.(A); !is {
		return said, fmt.Errorf("the request %T got an answer of type %T", request, answer)
	}
	return said, nil
}

// Invite starts a worker for a job, or gives the job's worker a new owner.
func (s nodeService) Invite(ctx context.Context, r *peerv1.InviteRequest) (*peerv1.InviteResponse, error) {
	m, err := readInvitation(r)
	if err != nil {
		return nil, err
	}
	answer, err := ask[*invited](ctx, s, nodeRequest{m, true})
	if err != nil {
		return nil, err
	}
	return &peerv1.InviteResponse{Working: answer.Working}, nil
}

// Report passes a worker's heartbeat on to the owner of its job.
func (s nodeService) Report(ctx context.Context, r *peerv1.ReportRequest) (*peerv1.ReportResponse, error) {
	m, err := readReport(r)
	if err != nil {
		return nil, err
	}
	_, err = ask[any](ctx, s, nodeRequest{m, true})
	return &peerv1.ReportResponse{}, err
}

// Assign passes an owner's assignment on to its worker.
func (s nodeService) Assign(ctx context.Context, r *peerv1.AssignRequest) (*peerv1.AssignResponse, error) {
	m, err := readAssignment(r)
	if err != nil {
		return nil, err
	}
	_, err = ask[any](ctx, s, nodeRequest{m, true})
	return &peerv1.AssignResponse{}, err
}

// Dismiss stops a worker.
func (s nodeService) Dismiss(ctx context.Context, r *peerv1.DismissRequest) (*peerv1.DismissResponse, error) {
	_, err := ask[any](ctx, s, nodeRequest{r, true})
	return &peerv1.DismissResponse{}, err
}

// Hint tells the node about a job without an owner, or about a cancelled job.
func (s nodeService) Hint(ctx context.Context, r *peerv1.HintRequest) (*peerv1.HintResponse, error) {
	_, err := ask[any](ctx, s, nodeRequest{r, true})
	return &peerv1.HintResponse{}, err
}

// Drain makes the node drain and leave the cluster.
func (s nodeService) Drain(ctx context.Context, _ *peerv1.DrainRequest) (*peerv1.DrainResponse, error) {
	_, err := ask[any](ctx, s, nodeRequest{drain{}, true})
	return &peerv1.DrainResponse{}, err
}

// IsDownloading reports whether this node is downloading the input of a job.
func (s nodeService) IsDownloading(_ context.Context, r *peerv1.IsDownloadingRequest) (*peerv1.IsDownloadingResponse, error) {
	return &peerv1.IsDownloadingResponse{Running: s.of.downloads.Running(r.GetJob())}, nil
}

// LocateRows returns how many rows of a job each node has, if this node owns the job.
func (s nodeService) LocateRows(ctx context.Context, r *peerv1.LocateRowsRequest) (*peerv1.LocateRowsResponse, error) {
	return ask[*peerv1.LocateRowsResponse](ctx, s, jobQuestion{r.GetJob(), (*node).ownerOf, r})
}

// RunCompaction returns the state of a compaction. If this node does not know the
// compaction yet, it first starts the compaction.
func (s nodeService) RunCompaction(_ context.Context, r *peerv1.RunCompactionRequest) (*peerv1.RunCompactionResponse, error) {
	m, err := readCompaction(r)
	if err != nil {
		return nil, err
	}
	state, err := s.of.serveCompaction(m)
	if err != nil {
		return nil, err
	}
	return &peerv1.RunCompactionResponse{Done: state.Done, Size: state.Size, Failed: sanitizeUTF8(state.Failed)}, nil
}

// ListActors lists the actors of this node.
func (s nodeService) ListActors(_ context.Context, r *peerv1.ListActorsRequest) (*peerv1.ListActorsResponse, error) {
	return listingOf(s.of.actorsHere(readFilter(r))), nil
}

// GetFacts returns this node's facts for operators.
func (s nodeService) GetFacts(ctx context.Context, _ *peerv1.GetFactsRequest) (*peerv1.GetFactsResponse, error) {
	doc, err := json.Marshal(s.of.cfg.Reports.Facts(ctx))
	return &peerv1.GetFactsResponse{Document: doc}, err
}

// GetFigures returns this node's figures for the API of other nodes.
func (s nodeService) GetFigures(ctx context.Context, r *peerv1.GetFiguresRequest) (*peerv1.GetFiguresResponse, error) {
	doc, err := encodeFigures(ctx, s.of, r.GetWhat())
	return &peerv1.GetFiguresResponse{Document: doc}, err
}

// serveCompaction returns the state of a compaction for a job's owner on another node.
// A new compaction is started first.
func (s *System) serveCompaction(m *compactionRequest) (state commit.CompactionState, err error) {
	switch {
	case s.Draining():
		return state, refuse(codeDraining, "this node takes no more work")
	case len(m.Compaction.Parts) == 0 && !s.compactions.Has(m.Compaction.Key):
		return state, refuse(codeUnknownJob, "the compaction is not known here")
	}
	return s.compactions.StartOrQuery(m.Job, m.Compaction.Key, func(ctx context.Context) (int64, error) {
		if m.Compaction.Heavy() {
			if !s.slots.merge.Enter(ctx, m.Account, m.Priority) {
				return 0, ctx.Err()
			}
			defer s.slots.merge.Leave(m.Account)
			defer s.metrics.observeMerge(nil, time.Now())
		}
		return m.Compaction.Run(ctx, s.cfg.Blob, func(ctx context.Context, do func() error) error {
			return s.storage.RetryUnlessElsewhere(ctx, func() error { return archive.MakeLossPermanent(do()) }) // do not wait for missing parts here: the owner does that
		})
	}), nil
}
