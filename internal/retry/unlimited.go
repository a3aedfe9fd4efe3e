package retry

import "context"

// unlimitedKey is the key of the value in a context from WithUnlimited.
type unlimitedKey struct{}

// WithUnlimited returns a context with which no policy gives up before the context ends. It
// is for the few calls that cannot restart from the beginning, such as a write of a
// running download. notify gets each error that is retried, and nil when the call has
// ended after such errors.
func WithUnlimited(ctx context.Context, notify func(error)) context.Context {
	return context.WithValue(ctx, unlimitedKey{}, notify)
}

// IsUnlimited reports whether a context comes from WithUnlimited.
func IsUnlimited(ctx context.Context) bool { return ctx.Value(unlimitedKey{}) != nil }
