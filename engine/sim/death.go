package sim

import (
	"context"
	"log/slog"
	"time"
)

// life is whether the server is alive, as Faults.DieAfter and ReviveAfter want
// it. It is guarded by Server.mu.
type life struct {
	timer *time.Timer // of the next change; nil for none
	plan  int         // counts the plans, so that a timer of an old one changes nothing
}

// planDeath replaces the plan for the server's life. A dead server revives.
func (s *Server) planDeath(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetDeath()
	if s.dead.Load() {
		s.revive()
	}
	if f.DieAfter > 0 {
		s.later(time.Duration(f.DieAfter), func() { s.die(time.Duration(f.ReviveAfter)) })
	}
}

// forgetDeath ends the present plan; the lock is held.
func (s *Server) forgetDeath() {
	s.life.plan++
	if s.life.timer != nil {
		s.life.timer.Stop()
		s.life.timer = nil
	}
}

// later calls change with the lock held, unless the plan is another by then.
func (s *Server) later(d time.Duration, change func()) {
	plan := s.life.plan
	s.life.timer = time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if plan == s.life.plan {
			change()
		}
	})
}

// die breaks all connections off; the lock is held. Without a listener
// of ours, as in tests, requests that come are broken off from now on.
func (s *Server) die(reviveAfter time.Duration) {
	s.dead.Store(true)
	if s.listener != nil {
		s.listener.die()
	}
	if s.gpu != nil {
		s.gpu.Forget()
	}
	s.log.Info("simulated inference server died, as its faults demand", slog.Duration("revives_after", reviveAfter))
	if reviveAfter > 0 {
		s.later(reviveAfter, s.revive)
	}
}

// revivePause is how long to wait when the address was taken meanwhile.
const revivePause = 100 * time.Millisecond

// revive accepts connections again; the lock is held.
func (s *Server) revive() {
	if s.listener != nil {
		if err := s.listener.revive(context.Background()); err != nil {
			s.log.Warn("reviving the simulated inference server failed", slog.Any("err", err))
			s.later(revivePause, s.revive)
			return
		}
	}
	s.faults.restart()
	s.dead.Store(false)
	s.log.Info("simulated inference server revived")
}
