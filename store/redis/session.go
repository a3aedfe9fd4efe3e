package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	driver "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill"
)

// OpenSession starts a session: a key that expires. Its value is the ttl in
// milliseconds, which is also the shortest.
func (s *Store) OpenSession(ctx context.Context, node string, ttl time.Duration) (string, error) {
	if ttl < time.Millisecond {
		return "", fmt.Errorf("open a session for node %s: its ttl is %v and must be at least a millisecond", node, ttl)
	}
	id := "session-" + uuid.NewString()
	if _, err := s.try(ctx, true, func(ctx context.Context) error {
		return s.client.Set(ctx, s.session(id), ttl.Milliseconds(), ttl.Truncate(time.Millisecond)).Err()
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
var renewScript = driver.NewScript(`
local ttl = redis.call('GET', KEYS[1])
if not ttl then return 0 end
return redis.call('PEXPIRE', KEYS[1], ttl)
`)

// RenewSession extends a session by its ttl from now.
func (s *Store) RenewSession(ctx context.Context, session string) error {
	var renewed int
	_, err := s.try(ctx, true, func(ctx context.Context) (err error) {
		renewed, err = renewScript.Run(ctx, s.client, []string{s.session(session)}).Int()
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
