package redis

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/rowmill/rowmill/internal/loglimit"
)

// driverLogEvery is the shortest time between two logged driver messages of one format. The
// driver itself logs every failed dial: dozens a second while the server is unreachable.
const driverLogEvery = 10 * time.Second

// driverLog passes messages of the driver to a logger: one message of each format in
// driverLogEvery, with the number of messages that were left out before it. The driver
// has a few dozen formats.
type driverLog struct {
	logger *slog.Logger
	limit  loglimit.Limit
}

func newDriverLog(logger *slog.Logger) *driverLog {
	return &driverLog{logger: logger, limit: loglimit.Limit{Every: driverLogEvery}}
}

// Printf logs a message of the driver, or leaves it out. The driver calls Printf.
func (l *driverLog) Printf(ctx context.Context, format string, args ...any) {
	leftOut, due := l.limit.ShouldLog(format, time.Now())
	if due {
		l.logger.WarnContext(ctx, "message of the redis driver", slog.String("text", fmt.Sprintf(format, args...)), slog.Int("left_out", leftOut))
	}
}
