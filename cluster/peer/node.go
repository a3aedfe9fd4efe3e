package peer

import (
	"context"

	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
)

// Node returns the service of the node at an address, HOST:PORT. When the peer refuses,
// a method returns a *Refusal. When the peer does not answer, it returns ErrRefused or
// ErrUnreachable. When the caller cancels, it returns the error of the context. A
// method waits until the context ends, but at most for HandleTimeout.
func (c *Client) Node(address string) peerv1connect.NodeServiceClient {
	return node{c.service, address}
}

// node calls the service of the node at one address.
type node struct {
	service peerv1connect.NodeServiceClient
	address string
}

func (n node) to(ctx context.Context) context.Context {
	return context.WithValue(ctx, callKey{}, &call{address: n.address, ctx: ctx})
}

// Invite calls the method.
func (n node) Invite(ctx context.Context, r *peerv1.InviteRequest) (*peerv1.InviteResponse, error) {
	return n.service.Invite(n.to(ctx), r)
}

// Report calls the method.
func (n node) Report(ctx context.Context, r *peerv1.ReportRequest) (*peerv1.ReportResponse, error) {
	return n.service.Report(n.to(ctx), r)
}

// Assign calls the method.
func (n node) Assign(ctx context.Context, r *peerv1.AssignRequest) (*peerv1.AssignResponse, error) {
	return n.service.Assign(n.to(ctx), r)
}

// Dismiss calls the method.
func (n node) Dismiss(ctx context.Context, r *peerv1.DismissRequest) (*peerv1.DismissResponse, error) {
	return n.service.Dismiss(n.to(ctx), r)
}

// Hint calls the method.
func (n node) Hint(ctx context.Context, r *peerv1.HintRequest) (*peerv1.HintResponse, error) {
	return n.service.Hint(n.to(ctx), r)
}

// Drain calls the method.
func (n node) Drain(ctx context.Context, r *peerv1.DrainRequest) (*peerv1.DrainResponse, error) {
	return n.service.Drain(n.to(ctx), r)
}

// IsDownloading calls the method.
func (n node) IsDownloading(ctx context.Context, r *peerv1.IsDownloadingRequest) (*peerv1.IsDownloadingResponse, error) {
	return n.service.IsDownloading(n.to(ctx), r)
}

// RunCompaction calls the method.
func (n node) RunCompaction(ctx context.Context, r *peerv1.RunCompactionRequest) (*peerv1.RunCompactionResponse, error) {
	return n.service.RunCompaction(n.to(ctx), r)
}

// LocateRows calls the method.
func (n node) LocateRows(ctx context.Context, r *peerv1.LocateRowsRequest) (*peerv1.LocateRowsResponse, error) {
	return n.service.LocateRows(n.to(ctx), r)
}

// ListActors calls the method.
func (n node) ListActors(ctx context.Context, r *peerv1.ListActorsRequest) (*peerv1.ListActorsResponse, error) {
	return n.service.ListActors(n.to(ctx), r)
}

// GetFacts calls the method.
func (n node) GetFacts(ctx context.Context, r *peerv1.GetFactsRequest) (*peerv1.GetFactsResponse, error) {
	return n.service.GetFacts(n.to(ctx), r)
}

// GetFigures calls the method.
func (n node) GetFigures(ctx context.Context, r *peerv1.GetFiguresRequest) (*peerv1.GetFiguresResponse, error) {
	return n.service.GetFigures(n.to(ctx), r)
}
