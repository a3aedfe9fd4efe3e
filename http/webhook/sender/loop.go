package sender

import (
	"context"
	"sync"
	"time"

	"github.com/rowmill/rowmill/http/webhook"
)

// A pollLoop has the parts that a Sender and an AuditStream share: it sends requests, and
// times the polls until Stop.
type pollLoop struct {
	Config
	poster   poster
	wake     chan struct{}
	stopping context.Context // cancelled when Stop is called: no new attempt may start
	stop     context.CancelFunc
	ctx      context.Context // context of attempts; Stop cancels it after stopGrace
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

func newLoop(cfg Config) *pollLoop {
	if cfg.Schedule == nil {
		cfg.Schedule = webhook.DefaultSchedule()
	}
	if cfg.Nodes == nil {
		cfg.Nodes = func() int { return 1 }
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	l := &pollLoop{Config: cfg, wake: make(chan struct{}, 1), poster: newPoster(cfg.Transport, cfg.Clock, cfg.Reason)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.stopping, l.stop = context.WithCancel(l.ctx)
	return l
}

// Stop ends the loop. It starts no more attempts, waits stopGrace for running attempts,
// then cancels the attempts that still run, and returns when all have ended. Any node
// may repeat the cancelled attempts. Stop may be called twice.
func (l *pollLoop) Stop(context.Context) error {
	l.stop()
	grace := time.AfterFunc(stopGrace, l.cancel)
	defer grace.Stop()
	l.running.Wait()
	l.cancel()
	l.poster.client.CloseIdleConnections()
	return nil
}

// Wake makes the loop poll now.
func (l *pollLoop) Wake() {
	select {
	case l.wake <- struct{}{}:
	default: // a wake-up is pending, so the loop will poll anyway
	}
}

// waitForNextPoll waits until the time of the next poll, or until Wake or Stop is called.
func (l *pollLoop) waitForNextPoll() {
	select {
	case <-l.stopping.Done():
	case <-l.wake:
	case <-time.After(pollInterval * time.Duration(max(l.Nodes(), pollers)) / pollers):
	}
}
