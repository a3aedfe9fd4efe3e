package virtual

import (
	"context"
	"log/slog"
	"strings"
)

// A witness is a log handler that reports each panic in the logs as wrong, also if the node
// recovers from the panic.
type witness struct {
	slog.Handler
	wrong func(format string, args ...any)
}

// Enabled enables all errors.
func (w witness) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError || w.Handler.Enabled(ctx, level)
}

// Handle checks a message for a panic and passes it on.
func (w witness) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "panic") {
		why := ""
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "panic" || a.Key == "reason" {
				why = a.Value.String()
			}
			return why == ""
		})
		w.wrong("a node logs %q: %s", r.Message, why)
	}
	if !w.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return w.Handler.Handle(ctx, r)
}

// WithAttrs returns a witness with attributes.
func (w witness) WithAttrs(attrs []slog.Attr) slog.Handler {
	return witness{w.Handler.WithAttrs(attrs), w.wrong}
}

// WithGroup returns a witness with a group.
func (w witness) WithGroup(name string) slog.Handler {
	return witness{w.Handler.WithGroup(name), w.wrong}
}
