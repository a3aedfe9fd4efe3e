package redis

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/rowmill/rowmill"
)

// openScript
//
//	KEYS[1]  the session's key
//	ARGV[1]  its ttl, ms
//
// answers 1 and lets the session live for its ttl.
var openScript = guarded(`
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[1])
return 1
`)

// OpenSession starts a session: a key that expires. Its value is the ttl in
// milliseconds, which is also the shortest.
func (s *Store) OpenSession(ctx context.Context, node string, ttl time.Duration) (string, error) {
	if ttl < time.Millisecond {
		return "", fmt.Errorf("open a session for node %s: its ttl is %v and must be at least a millisecond", node, ttl)
	}
	id := "session-" + uuid.NewString()
	if _, err := s.try(ctx, true, func(ctx context.Context) error {
		return openScript.Run(ctx, s.client, s.withMeta(s.session(id)), ttl.Milliseconds()).Err()
	}); err != nil {
		return "", fmt.Errorf("open a session for node %s: %w", node, err)
	}
	return id, nil
}

// renewScript
//
//	KEYS[1]  the session's key
//
// answers 1 and lets the session live for its ttl from now, or 0 where it is
// over.
var renewScript = guarded(`
local ttl = redis.call('GET', KEYS[1])
if not ttl then return 0 end
return redis.call('PEXPIRE', KEYS[1], ttl)
`)

// RenewSession extends a session by its ttl from now.
func (s *Store) RenewSession(ctx context.Context, session string) error {
	var renewed int
	_, err := s.try(ctx, true, func(ctx context.Context) (err error) {
		renewed, err = renewScript.Run(ctx, s.client, s.withMeta(s.session(session))).Int()
		return err
	})
	if err == nil && renewed == 0 {
		err = rowmill.ErrLeaseLost
	}
	if err != nil {
		return fmt.Errorf("renew session %s: %w", session, err)
	}
	return nil
}

// CloseSession ends a session at once.
func (s *Store) CloseSession(ctx context.Context, session string) error {
	if _, err := s.try(ctx, true, func(ctx context.Context) error {
		return s.client.Del(ctx, s.session(session)).Err()
	}); err != nil {
		return fmt.Errorf("close session %s: %w", session, err)
	}
	return nil
}

// LiveSessions returns how many sessions there are that have not expired.
func (s *Store) LiveSessions(ctx context.Context) (int, error) {
	live := map[string]bool{} // a key may come twice
	if err := s.eachKey(ctx, func(keys []string) error {
		for _, key := range keys {
			if strings.HasPrefix(key, s.session("")) {
				live[key] = true
			}
		}
		return nil
	}); err != nil {
		return 0, fmt.Errorf("count sessions: %w", err)
	}
	return len(live), nil
}
