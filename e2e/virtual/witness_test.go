package virtual

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// A logged panic is wrong, also after a recovery. Other errors are not.
func TestWitness(t *testing.T) {
	t.Parallel()
	var wrongs []string
	var out strings.Builder
	wrong := func(format string, args ...any) { wrongs = append(wrongs, fmt.Sprintf(format, args...)) }
	for _, handler := range []slog.Handler{slog.DiscardHandler, slog.NewTextHandler(&out, nil)} {
		wrongs = nil
		log := slog.New(witness{handler, wrong}).With("node", "a").WithGroup("g")
		log.Info("job ended")
		log.Error("request of a node failed", "err", "no")
		log.Error("panic while answering a node", "kind", "report", "panic", "out of range", "stack", "…")
		log.Error("actor panicked and was stopped", "reason", "nil map")
		want := []string{`a node logs "panic while answering a node": out of range`, `a node logs "actor panicked and was stopped": nil map`}
		if !slices.Equal(wrongs, want) {
			t.Errorf("wrongs %q, want %q", wrongs, want)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 4 {
		t.Errorf("%d of 4 lines were passed on", n)
	}
}
