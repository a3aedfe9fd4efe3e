package sender

import (
	"context"
	"sync"
	"time"

	"github.com/rowmill/rowmill/http/webhook"
)

// A loop has the parts that a Sender and a Stream share: it sends requests, and times the
// polls until Stop.
type loop struct {
	Config
	poster   poster
	wake     chan struct{}
	stopping context.Context // cancelled by Stop
	stop     context.CancelFunc
	ctx      context.Context // cancelled by Stop after stopGrace
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

func newLoop(cfg Config) *loop {
	if cfg.Schedule == nil {
		cfg.Schedule = webhook.DefaultSchedule()
	}
	if cfg.Nodes == nil {
		cfg.Nodes = func() int { return 1 }
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	l := &loop{Config: cfg, wake: make(chan struct{}, 1), poster: newPoster(cfg.Transport, cfg.Clock, cfg.Reason)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.stopping, l.stop = context.WithCancel(l.ctx)
	return l
}

// Stop starts no more attempts. It waits stopGrace for running attempts, then cancels the
// rest, and returns when all have ended. Any node may repeat the cancelled attempts. Stop
// may be called twice.
func (l *loop) Stop(context.Context) error {
	l.stop()
	grace := time.AfterFunc(stopGrace, l.cancel)
	defer grace.Stop()
	l.running.Wait()
	l.cancel()
	l.poster.client.CloseIdleConnections()
	return nil
}

// Wake makes the loop poll now.
func (l *loop) Wake() {
	select {
	case l.wake <- struct{}{}:
	default: // a poll is pending
	}
}

// pause waits for the next poll, for Wake or for Stop.
func (l *loop) pause() {
	select {
	case <-l.stopping.Done():
	case <-l.wake:
	case <-time.After(pollInterval * time.Duration(max(l.Nodes(), pollers)) / pollers):
	}
}
