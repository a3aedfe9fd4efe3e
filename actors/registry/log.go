package registry

import (
	"context"
	"log/slog"
)

// Log returns a logger that also stores warnings and errors as the actor's last
// trouble. It stores them even if log has a level that drops them.
func (e *ActorEntry) Log(log *slog.Logger) *slog.Logger {
	return slog.New(&troubleHandler{log.Handler(), e})
}

// troubleHandler is a slog.Handler that passes records on, and stores warnings and errors in an
// entry.
type troubleHandler struct {
	slog.Handler
	entry *ActorEntry
}

func (n *troubleHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || n.Handler.Enabled(ctx, level)
}

func (n *troubleHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "err" {
				text += ": " + a.Value.String()
			}
			return true
		})
		n.entry.setTrouble(text)
		if !n.Handler.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return n.Handler.Handle(ctx, r)
}

func (n *troubleHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &troubleHandler{n.Handler.WithAttrs(attrs), n.entry}
}

func (n *troubleHandler) WithGroup(name string) slog.Handler {
	return &troubleHandler{n.Handler.WithGroup(name), n.entry}
}
