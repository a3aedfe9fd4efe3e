package redis

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// driverLogEvery is the shortest time between two logged driver messages of one format. The
// driver itself logs every failed dial: dozens a second while the server is unreachable.
const driverLogEvery = 10 * time.Second

// driverLog passes messages of the driver to a logger: one message of each format in
// driverLogEvery, with the number of suppressed messages before it.
type driverLog struct {
	logger *slog.Logger

	mu   sync.Mutex
	said map[string]*messageState // by format; the driver has a few dozen formats
}

// A messageState is the state of the messages with one format.
type messageState struct {
	last    time.Time
	leftOut int // number of suppressed messages since last
}

func newDriverLog(logger *slog.Logger) *driverLog {
	return &driverLog{logger: logger, said: map[string]*messageState{}}
}

// Printf is called by the driver.
func (l *driverLog) Printf(ctx context.Context, format string, args ...any) {
	leftOut, due := l.due(format, time.Now())
	if due {
		l.logger.WarnContext(ctx, "message of the redis driver", slog.String("text", fmt.Sprintf(format, args...)), slog.Int("left_out", leftOut))
	}
}

// due reports whether a message must be logged, and how many were suppressed before it.
func (l *driverLog) due(format string, now time.Time) (leftOut int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.said[format]
	switch {
	case s == nil:
		l.said[format] = &messageState{last: now}
		return 0, true
	case now.Sub(s.last) < driverLogEvery:
		s.leftOut++
		return 0, false
	}
	leftOut = s.leftOut
	*s = messageState{last: now}
	return leftOut, true
}
