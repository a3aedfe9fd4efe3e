package peer

import (
	"context"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/propagation"
)

// traced passes on the trace of a context as W3C traceparent: a client sends it, and a
// server adds it to the context of the handler.
func traced(next connect.UnaryFunc) connect.UnaryFunc {
	carry := propagation.TraceContext{}
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		header := r.Header()
		switch {
		case r.Spec().IsClient:
			carry.Inject(ctx, propagation.HeaderCarrier(header))
		case header["Traceparent"] != nil: // most requests belong to no trace
			ctx = carry.Extract(ctx, propagation.HeaderCarrier(header))
		}
		return next(ctx, r)
	}
}
