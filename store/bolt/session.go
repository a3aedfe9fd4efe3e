package bolt

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/rowmill/rowmill"
)

// sessions are in memory: they cannot outlive the one process that may hold
// the file, so whatever an earlier process owned is an orphan at start.
type sessions struct {
	clock func() time.Time
	mu    sync.Mutex
	live  map[string]*lease
}

// A lease is one session's claim to be alive.
type lease struct {
	ttl   time.Duration
	until time.Time
}

func newSessions(clock func() time.Time) *sessions {
	return &sessions{clock: clock, live: map[string]*lease{}}
}

// alive reports whether a session exists and has not expired. One that has
// never comes back.
func (s *sessions) alive(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(id) != nil
}

func (s *sessions) find(id string) *lease {
	l := s.live[id]
	if l != nil && !s.clock().Before(l.until) {
		delete(s.live, id)
		return nil
	}
	return l
}

// OpenSession starts a session.
func (s *Store) OpenSession(ctx context.Context, node string, ttl time.Duration) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if ttl <= 0 {
		return "", fmt.Errorf("open a session for node %s: its ttl is %v and must be positive", node, ttl)
	}
	id := "session-" + uuid.NewString()
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	now := s.sessions.clock()
	for other, l := range s.sessions.live {
		if !now.Before(l.until) {
			delete(s.sessions.live, other)
		}
	}
	s.sessions.live[id] = &lease{ttl: ttl, until: now.Add(ttl)}
	return id, nil
}

// RenewSession extends a session by its ttl from now.
func (s *Store) RenewSession(ctx context.Context, session string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	l := s.sessions.find(session)
	if l == nil {
		return fmt.Errorf("renew session %s: %w", session, rowmill.ErrLeaseLost)
	}
	l.until = s.sessions.clock().Add(l.ttl)
	return nil
}

// CloseSession ends a session at once.
func (s *Store) CloseSession(ctx context.Context, session string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	delete(s.sessions.live, session)
	return nil
}
