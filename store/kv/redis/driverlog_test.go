package redis

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestDriverLogLimitsRepeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := newDriverLog(slog.New(slog.NewTextHandler(&out, nil)))
		for range 1000 { // 20 s
			l.Printf(t.Context(), "dial failed after %d attempts", 1)
			time.Sleep(20 * time.Millisecond)
		}
		l.Printf(t.Context(), "new master %q", "b")
		l.Printf(t.Context(), "dial failed after %d attempts", 1)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 4 {
			t.Fatalf("%d lines: %s", len(lines), out.String())
		}
		for i, want := range []string{`1 attempts" left_out=0`, `1 attempts" left_out=499`, `new master \"b\"" left_out=0`, `1 attempts" left_out=499`} {
			if !strings.Contains(lines[i], want) || !strings.Contains(lines[i], "level=WARN") {
				t.Errorf("line %d is %s, want %s", i, lines[i], want)
			}
		}
	})
}
