package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	driver "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill"
)

// sessionKey returns the key of a session. The key expires with the session. Its value is
// the ttl in milliseconds, so one millisecond is the shortest ttl.
func (e *Backend) sessionKey(id string) string { return e.config.Prefix + "session:" + id }

// A lease is the local state of a session that this backend opened.
type lease struct {
	ttl   time.Duration
	until time.Time // end of the lease by the local clock; on the server the session expires then or later
}

// OpenSession starts a session.
func (e *Backend) OpenSession(ctx context.Context, node string, ttl time.Duration) (string, error) {
	if ttl < time.Millisecond {
		return "", fmt.Errorf("open a session for node %s: its ttl is %v and must be at least a millisecond", node, ttl)
	}
	id, asked := "session-"+uuid.NewString(), time.Now()
	if err := e.retryCall(ctx, true, func(ctx context.Context) error {
		return e.client.Set(ctx, e.sessionKey(id), ttl.Milliseconds(), ttl).Err()
	}); err != nil {
		return "", fmt.Errorf("open a session for node %s: %w", node, err)
	}
	e.noteLease(id, ttl, asked)
	return id, nil
}

// noteLease stores the lease of a session that was opened or renewed. asked is the local
// time just before the request was sent.
func (e *Backend) noteLease(id string, ttl time.Duration, asked time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for other, l := range e.leases {
		if !asked.Before(l.until) {
			delete(e.leases, other)
		}
	}
	e.leases[id] = lease{ttl, asked.Add(ttl)}
}

// isProbablyAlive reports whether this backend opened the session and its lease has not expired.
// The commit verifies that the session is alive.
func (e *Backend) isProbablyAlive(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Now().Before(e.leases[id].until)
}

// RenewSession extends a session by its ttl from now.
func (e *Backend) RenewSession(ctx context.Context, session string) error {
	e.mu.Lock()
	opened := e.leases[session].ttl // 0 for a session of another process
	e.mu.Unlock()
	asked, ttl := time.Now(), time.Duration(0)
	err := e.retryCall(ctx, true, func(ctx context.Context) (err error) {
		millis := opened.Milliseconds()
		if millis == 0 {
			millis, err = e.client.Get(ctx, e.sessionKey(session)).Int64()
		}
		if err == nil {
			ttl = time.Duration(millis) * time.Millisecond
			err = e.client.SetArgs(ctx, e.sessionKey(session), millis, driver.SetArgs{Mode: "XX", TTL: ttl}).Err()
		}
		if errors.Is(err, driver.Nil) {
			ttl = 0
		}
		return err
	})
	if err == nil && ttl == 0 {
		err = rowmill.ErrLeaseLost
	}
	if err != nil {
		return fmt.Errorf("renew session %s: %w", session, err)
	}
	e.noteLease(session, ttl, asked)
	return nil
}

// CloseSession ends a session at once.
func (e *Backend) CloseSession(ctx context.Context, session string) error {
	e.mu.Lock()
	delete(e.leases, session)
	e.mu.Unlock()
	if err := e.retryCall(ctx, true, func(ctx context.Context) error {
		return e.client.Del(ctx, e.sessionKey(session)).Err()
	}); err != nil {
		return fmt.Errorf("close session %s: %w", session, err)
	}
	return nil
}

// CountLiveSessions returns the number of sessions that have not expired.
func (e *Backend) CountLiveSessions(ctx context.Context) (int, error) {
	const count = 1000 // keys that the server examines in one step, in well under a millisecond
	pattern := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(e.sessionKey("")) + "*"
	live := map[string]bool{} // SCAN may return a key twice
	for cursor := uint64(0); ; {
		var keys []string
		next := cursor
		if err := e.retryCall(ctx, false, func(ctx context.Context) (err error) {
			keys, next, err = e.client.Scan(ctx, cursor, pattern, count).Result()
			return err
		}); err != nil {
			return 0, fmt.Errorf("count sessions: %w", err)
		}
		for _, key := range keys {
			live[key] = true
		}
		if cursor = next; cursor == 0 {
			return len(live), nil
		}
	}
}
