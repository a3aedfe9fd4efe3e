package kv

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/rowmill/rowmill"
)

// Sessions holds the sessions of a backend in memory, for backends that only one process
// uses. Sessions end with the process, so jobs of an earlier process have no live owner.
type Sessions struct {
	clock func() time.Time
	mu    sync.Mutex
	live  map[string]*session
}

// A session is the lease of a node.
type session struct {
	ttl   time.Duration
	until time.Time
}

// NewSessions returns an empty set of sessions. clock decides when a session expires.
func NewSessions(clock func() time.Time) *Sessions {
	return &Sessions{clock: clock, live: map[string]*session{}}
}

// Copy returns an independent copy of the sessions.
func (s *Sessions) Copy() *Sessions {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := NewSessions(s.clock)
	for id, one := range s.live {
		twin := *one
		c.live[id] = &twin
	}
	return c
}

// IsAlive reports whether a session exists and has not expired. An expired session cannot
// be renewed.
func (s *Sessions) IsAlive(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(id) != nil
}

func (s *Sessions) find(id string) *session {
	found := s.live[id]
	if found != nil && !s.clock().Before(found.until) {
		delete(s.live, id)
		return nil
	}
	return found
}

// OpenSession starts a session.
func (s *Sessions) OpenSession(ctx context.Context, node string, ttl time.Duration) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if ttl <= 0 {
		return "", fmt.Errorf("open a session for node %s: its ttl is %v and must be positive", node, ttl)
	}
	id := "session-" + uuid.NewString()
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.live {
		s.find(other)
	}
	s.live[id] = &session{ttl: ttl, until: s.clock().Add(ttl)}
	return id, nil
}

// RenewSession extends a session by its ttl from now.
func (s *Sessions) RenewSession(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.find(id)
	if found == nil {
		return fmt.Errorf("renew session %s: %w", id, rowmill.ErrLeaseLost)
	}
	found.until = s.clock().Add(found.ttl)
	return nil
}

// CloseSession ends a session at once.
func (s *Sessions) CloseSession(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, id)
	return nil
}

// CountLiveSessions returns how many sessions have not expired.
func (s *Sessions) CountLiveSessions(ctx context.Context) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.live {
		if s.find(id) != nil {
			n++
		}
	}
	return n, ctx.Err()
}
