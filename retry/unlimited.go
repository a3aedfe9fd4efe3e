package retry

import "context"

// patience is the key of a context whose calls are worth any wait.
type patience struct{}

// Patient returns a context under which no policy gives up before it ends. It is
// for the few calls that cannot be made again from their beginning, such as one
// that writes on what is being downloaded. told hears of each error after which
// there will be another try, and nil after those once they have ended.
func Patient(ctx context.Context, told func(error)) context.Context {
	return context.WithValue(ctx, patience{}, told)
}

// IsPatient reports whether a context is one of Patient.
func IsPatient(ctx context.Context) bool { return ctx.Value(patience{}) != nil }
