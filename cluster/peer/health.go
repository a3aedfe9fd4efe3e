package peer

import (
	"context"
	"fmt"
	"net/http"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"

	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
)

// newHealth returns the handler for health checks by grpc.health.v1. The limits of the
// responder do not apply to it, because a busy node is healthy.
func newHealth(s *Responder) http.Handler {
	_, handler := grpchealth.NewHandler(health{s}, s.options()...)
	return handler
}

// health answers health checks with SERVING while the node takes work, and with
// NOT_SERVING otherwise.
type health struct{ *Responder }

// Check returns the health of the node, or of its service by name.
func (h health) Check(_ context.Context, r *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if r.Service != "" && r.Service != peerv1connect.NodeServiceName {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no service %.200q here", r.Service))
	}
	status := grpchealth.StatusServing
	if h.service.Load() == nil || h.cfg.Ready != nil && !h.cfg.Ready() {
		status = grpchealth.StatusNotServing
	}
	return &grpchealth.CheckResponse{Status: status}, nil
}
