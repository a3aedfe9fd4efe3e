package peer

import (
	"context"

	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
)

// Node returns a client for the node at an address, HOST:PORT. When the peer refuses, a
// method returns a *Refusal. When the peer does not answer, it returns ErrRefused or
// ErrUnreachable. When the caller cancels, it returns the error of the context. A
// method waits until the context ends, but at most for HandleTimeout.
func (c *Client) Node(address string) peerv1connect.NodeServiceClient {
	return nodeClient{c.service, address}
}

// nodeClient is the client for the node at one address.
type nodeClient struct {
	service peerv1connect.NodeServiceClient
	address string
}

// withCall returns a context with a new call to this node, for the interceptors and the sender.
func (n nodeClient) withCall(ctx context.Context) context.Context {
	return context.WithValue(ctx, callKey{}, &nodeCall{address: n.address, ctx: ctx})
}

// Invite asks the node to work for a job.
func (n nodeClient) Invite(ctx context.Context, r *peerv1.InviteRequest) (*peerv1.InviteResponse, error) {
	return n.service.Invite(n.withCall(ctx), r)
}

// Report sends the heartbeat of a worker to the node that owns the job.
func (n nodeClient) Report(ctx context.Context, r *peerv1.ReportRequest) (*peerv1.ReportResponse, error) {
	return n.service.Report(n.withCall(ctx), r)
}

// Assign sends an assignment of rows to a worker on the node.
func (n nodeClient) Assign(ctx context.Context, r *peerv1.AssignRequest) (*peerv1.AssignResponse, error) {
	return n.service.Assign(n.withCall(ctx), r)
}

// Dismiss asks the node to stop the worker of a job that has ended.
func (n nodeClient) Dismiss(ctx context.Context, r *peerv1.DismissRequest) (*peerv1.DismissResponse, error) {
	return n.service.Dismiss(n.withCall(ctx), r)
}

// Hint tells the node about a job without an owner, or about a cancelled job.
func (n nodeClient) Hint(ctx context.Context, r *peerv1.HintRequest) (*peerv1.HintResponse, error) {
	return n.service.Hint(n.withCall(ctx), r)
}

// Drain asks the node to drain and to leave the cluster.
func (n nodeClient) Drain(ctx context.Context, r *peerv1.DrainRequest) (*peerv1.DrainResponse, error) {
	return n.service.Drain(n.withCall(ctx), r)
}

// IsDownloading asks the node whether it is downloading the input of a job.
func (n nodeClient) IsDownloading(ctx context.Context, r *peerv1.IsDownloadingRequest) (*peerv1.IsDownloadingResponse, error) {
	return n.service.IsDownloading(n.withCall(ctx), r)
}

// RunCompaction asks the node to make an object of a job, or for the state of this work.
func (n nodeClient) RunCompaction(ctx context.Context, r *peerv1.RunCompactionRequest) (*peerv1.RunCompactionResponse, error) {
	return n.service.RunCompaction(n.withCall(ctx), r)
}

// LocateRows asks the owner of a job how many rows each node has.
func (n nodeClient) LocateRows(ctx context.Context, r *peerv1.LocateRowsRequest) (*peerv1.LocateRowsResponse, error) {
	return n.service.LocateRows(n.withCall(ctx), r)
}

// ListActors asks the node for a list of its actors.
func (n nodeClient) ListActors(ctx context.Context, r *peerv1.ListActorsRequest) (*peerv1.ListActorsResponse, error) {
	return n.service.ListActors(n.withCall(ctx), r)
}

// GetFacts asks the node for its facts for operators, a JSON document.
func (n nodeClient) GetFacts(ctx context.Context, r *peerv1.GetFactsRequest) (*peerv1.GetFactsResponse, error) {
	return n.service.GetFacts(n.withCall(ctx), r)
}

// GetFigures asks the node for its figures for the API, a JSON document.
func (n nodeClient) GetFigures(ctx context.Context, r *peerv1.GetFiguresRequest) (*peerv1.GetFiguresResponse, error) {
	return n.service.GetFigures(n.withCall(ctx), r)
}
