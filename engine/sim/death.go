package sim

import (
	"context"
	"log/slog"
	"time"
)

// deathTimer has the timer that makes the server die or revive, see Faults.DieAfter
// and ReviveAfter. It is guarded by Server.mu.
type deathTimer struct {
	timer *time.Timer // dies or revives the server; nil if no change is planned
	plan  int         // counts the plans, so that the timer of an old plan changes nothing
}

// planDeath starts the timers of f.DieAfter and f.ReviveAfter and stops the timers of
// earlier faults. A server that is dead accepts connections again.
func (s *Server) planDeath(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelDeath()
	if s.dead.Load() {
		s.revive()
	}
	if f.DieAfter > 0 {
		s.scheduleTransition(time.Duration(f.DieAfter), func() { s.die(time.Duration(f.ReviveAfter)) })
	}
}

// cancelDeath stops the timer of the present plan. The caller holds s.mu.
func (s *Server) cancelDeath() {
	s.life.plan++
	if s.life.timer != nil {
		s.life.timer.Stop()
		s.life.timer = nil
	}
}

// scheduleTransition calls change after the time d, with s.mu locked. It does nothing if planDeath
// or cancelDeath has replaced the plan.
func (s *Server) scheduleTransition(d time.Duration, change func()) {
	plan := s.life.plan
	s.life.timer = time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if plan == s.life.plan {
			change()
		}
	})
}

// die closes all connections. The caller has locked s.mu. A server without a listener
// of its own, as in tests, instead aborts each request from now on.
func (s *Server) die(reviveAfter time.Duration) {
	s.dead.Store(true)
	if s.listener != nil {
		s.listener.die()
	}
	if s.gpu != nil {
		s.gpu.ClearPrefixCache()
	}
	s.log.Info("simulated inference server accepts no connections, because of die_after in its faults", slog.Duration("revives_after", reviveAfter))
	if reviveAfter > 0 {
		s.scheduleTransition(reviveAfter, s.revive)
	}
}

// revivePause is the wait before the next try to listen, if another program uses the
// address.
const revivePause = 100 * time.Millisecond

// revive accepts connections again. The caller holds s.mu.
func (s *Server) revive() {
	if s.listener != nil {
		if err := s.listener.revive(context.Background()); err != nil {
			s.log.Warn("simulated inference server cannot listen at its address again: it retries", slog.Any("err", err))
			s.scheduleTransition(revivePause, s.revive)
			return
		}
	}
	s.faults.restartStartupDelay()
	s.dead.Store(false)
	s.log.Info("simulated inference server accepts connections again")
}
