package redis

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// driverLogEvery is how often the driver may say the same again. It has a line
// for every dial that fails: dozens a second while the server is away.
const driverLogEvery = 10 * time.Second

// driverLog hands the driver's lines to a logger: of those with one format, one
// each driverLogEvery, with the number of those that were left out before it.
type driverLog struct {
	logger *slog.Logger

	mu   sync.Mutex
	said map[string]*saying // by format; the driver has a few dozen
}

// A saying is what became of the lines with one format.
type saying struct {
	last    time.Time
	leftOut int // since last
}

func newDriverLog(logger *slog.Logger) *driverLog {
	return &driverLog{logger: logger, said: map[string]*saying{}}
}

// Printf is what the driver calls.
func (l *driverLog) Printf(ctx context.Context, format string, args ...any) {
	leftOut, due := l.due(format, time.Now())
	if due {
		l.logger.WarnContext(ctx, "redis driver", slog.String("text", fmt.Sprintf(format, args...)), slog.Int("left_out", leftOut))
	}
}

// due reports whether a line is to be written, and how many were not before it.
func (l *driverLog) due(format string, now time.Time) (leftOut int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.said[format]
	switch {
	case s == nil:
		l.said[format] = &saying{last: now}
		return 0, true
	case now.Sub(s.last) < driverLogEvery:
		s.leftOut++
		return 0, false
	}
	leftOut = s.leftOut
	*s = saying{last: now}
	return leftOut, true
}
