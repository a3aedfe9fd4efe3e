package peer

import (
	"context"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/propagation"
)

// traced passes on the trace that a context is part of, as W3C's traceparent: a client
// sends it, and a server's handler has it in its context.
func traced(next connect.UnaryFunc) connect.UnaryFunc {
	carry := propagation.TraceContext{}
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		header := r.Header()
		switch {
		case r.Spec().IsClient:
			carry.Inject(ctx, propagation.HeaderCarrier(header))
		case header["Traceparent"] != nil: // most are part of none
			ctx = carry.Extract(ctx, propagation.HeaderCarrier(header))
		}
		return next(ctx, r)
	}
}
