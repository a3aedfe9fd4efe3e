package sim

import (
	"context"
	"log/slog"
	"time"
)

// life has the timer that makes the server die or revive, see Faults.DieAfter
// and ReviveAfter. It is guarded by Server.mu.
type life struct {
	timer *time.Timer // dies or revives the server; nil if no change is planned
	plan  int         // counts the plans, so that the timer of an old plan changes nothing
}

// planDeath starts the timers of f.DieAfter and f.ReviveAfter and stops the timers of
// earlier faults. A server that is dead accepts connections again.
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

// forgetDeath stops the timer of the present plan. The caller holds s.mu.
func (s *Server) forgetDeath() {
	s.life.plan++
	if s.life.timer != nil {
		s.life.timer.Stop()
		s.life.timer = nil
	}
}

// later calls change after d while it holds s.mu, unless planDeath or forgetDeath
// replaced the plan before.
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

// die closes all connections. The caller holds s.mu. Without an own listener,
// as in tests, the server instead aborts each request from now on.
func (s *Server) die(reviveAfter time.Duration) {
	s.dead.Store(true)
	if s.listener != nil {
		s.listener.die()
	}
	if s.gpu != nil {
		s.gpu.Forget()
	}
	s.log.Info("simulated inference server accepts no connections, because of die_after in its faults", slog.Duration("revives_after", reviveAfter))
	if reviveAfter > 0 {
		s.later(reviveAfter, s.revive)
	}
}

// revivePause is how long to wait if another program listens on the address now.
const revivePause = 100 * time.Millisecond

// revive accepts connections again. The caller holds s.mu.
func (s *Server) revive() {
	if s.listener != nil {
		if err := s.listener.revive(context.Background()); err != nil {
			s.log.Warn("simulated inference server cannot listen at its address again: it retries", slog.Any("err", err))
			s.later(revivePause, s.revive)
			return
		}
	}
	s.faults.restart()
	s.dead.Store(false)
	s.log.Info("simulated inference server accepts connections again")
}
