package virtual

import (
	"context"
	"log/slog"
	"strings"
)

// A witness reads what the nodes log: a panic is wrong, though whoever met it
// lives on and its peer or client is answered.
type witness struct {
	slog.Handler
	wrong func(format string, args ...any)
}

// Enabled lets all errors through to the witness.
func (w witness) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError || w.Handler.Enabled(ctx, level)
}

// Handle looks at a message and passes it on.
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

// WithAttrs returns a witness of what is logged with attributes.
func (w witness) WithAttrs(attrs []slog.Attr) slog.Handler {
	return witness{w.Handler.WithAttrs(attrs), w.wrong}
}

// WithGroup returns a witness of what is logged in a group.
func (w witness) WithGroup(name string) slog.Handler {
	return witness{w.Handler.WithGroup(name), w.wrong}
}
