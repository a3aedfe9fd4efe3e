package peer

import (
	"context"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/propagation"
)

// traceCalls is the interceptor that passes traces on, in the header traceparent of W3C: a
// client sends the trace of its context, and a server adds the received trace to the
// context of the handler.
func traceCalls(next connect.UnaryFunc) connect.UnaryFunc {
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
