package http

import (
	"context"
	"fmt"
	nethttp "net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/store"
)

const (
	// maxKeyName bounds the name of a key, in code points.
	maxKeyName = 64
	// maxPerMinute bounds the requests per minute of a key: more is no bound.
	maxPerMinute = 1_000_000
)

// keyView is a key as the API shows it.
type keyView struct {
	ID        string     `json:"id"`
	Key       string     `json:"key,omitempty"` // the text, only where it was made just now
	Name      string     `json:"name"`
	Account   string     `json:"account"`
	Role      string     `json:"role"`
	Dialect   *string    `json:"dialect"`
	PerMinute *int       `json:"requests_per_minute"`
	Created   time.Time  `json:"created_at"`
	Expires   *time.Time `json:"expires_at"`
	Rotated   *time.Time `json:"rotated_at"`
	LastUsed  *time.Time `json:"last_used_at"`
}

func viewKey(k store.Key, lastUsed *time.Time) keyView {
	view := keyView{
		ID: k.ID, Name: k.Name, Account: k.Account, Role: k.Role, PerMinute: k.RequestsPerMinute,
		Created: k.Created, Expires: k.Expires, Rotated: k.Rotated, LastUsed: lastUsed,
	}
	if k.Dialect != "" {
		view.Dialect = &k.Dialect
	}
	return view
}

// checkAuth answers GET /v1/auth/check and GET /v1/try-authentication, which
// authenticate lets only good keys reach.
func (s *Server) checkAuth(c *gin.Context) {
	answer(c, nethttp.StatusOK, gin.H{"authenticated": true})
}

// listKeys answers GET /v1/keys.
func (s *Server) listKeys(c *gin.Context) {
	account, err := administeredOrAll(c, c.Query("account"))
	var keys []store.Key
	if err == nil {
		keys, err = s.Store.ListKeys(c.Request.Context())
	}
	views := []keyView{}
	for _, k := range keys {
		if account != "" && k.Account != account {
			continue
		}
		var used *time.Time
		if used, err = s.keys.lastUsed(c.Request.Context(), k.ID); err != nil {
			break
		}
		views = append(views, viewKey(k, used))
	}
	if err != nil {
		s.fail(c, err)
		return
	}
	answer(c, nethttp.StatusOK, gin.H{"keys": views})
}

// createKey answers POST /v1/keys. Its answer is the only time that the key is
// shown.
func (s *Server) createKey(c *gin.Context) {
	text, record, err := s.decodeKey(c)
	if err == nil {
		err = s.record(c, act{actKeyCreate, record.Account, record.ID, viewKey(record, nil)}, func(ctx context.Context) error {
			if err := s.Store.PutKey(ctx, record); err != nil {
				return fmt.Errorf("store a key: %w", err)
			}
			return nil
		})
	}
	if err != nil {
		s.fail(c, err)
		return
	}
	s.keys.forget()
	view := viewKey(record, nil)
	view.Key = text
	answer(c, nethttp.StatusOK, view)
}

// decodeKey makes the key that a request asks for.
func (s *Server) decodeKey(c *gin.Context) (text string, record store.Key, err error) {
	// Those who may make no key learn nothing of what a body may hold.
	if _, err := administered(c, ""); err != nil {
		return "", record, err
	}
	var problems problems
	body, err := s.readObject(c, &problems)
	if err != nil {
		return "", record, err
	}
	named := namedAccount(c, &body)
	text, record = NewKey("", RoleUser, "", s.Now())
	if body.read("name", "a string", &record.Name) {
		if n := utf8.RuneCountInString(record.Name); n > maxKeyName || strings.ContainsFunc(record.Name, unicode.IsControl) {
			problems.add("name", "must be plain text of at most %d characters", maxKeyName)
		}
	}
	if body.read("role", "a string", &record.Role) && record.Role != RoleAdmin && record.Role != RoleUser {
		problems.add("role", "is %q; it must be %s or %s", shorten(record.Role, 32), RoleAdmin, RoleUser)
	}
	if body.read("dialect", "a string", &record.Dialect) && record.Dialect != DialectSDK {
		problems.add("dialect", "is %q; it must be %s, or null for the answers of this document", shorten(record.Dialect, 32), DialectSDK)
	}
	var expires time.Time
	if body.read("expires_at", "a time such as 2030-01-31T00:00:00Z, or null for never", &expires) {
		if !expires.After(s.Now()) {
			problems.add("expires_at", "is %s, which is over; it must lie in the future", expires.Format(time.RFC3339))
		}
		expires = expires.UTC()
		record.Expires = &expires
	}
	var perMinute int
	if body.read("requests_per_minute", "a whole number, or null for the configured limit", &perMinute) {
		if perMinute < 1 || perMinute > maxPerMinute {
			problems.add("requests_per_minute", "is %d; it must be from 1 to %d, or null for the configured limit", perMinute, maxPerMinute)
		}
		record.RequestsPerMinute = &perMinute
	}
	body.end("name, role, account, expires_at, dialect and requests_per_minute")
	if err := problems.err(); err != nil {
		return "", record, err
	}
	record.Account, err = administered(c, named)
	return text, record, err
}

// findKey returns the key that the path names and all others. A key of an
// account that the caller does not administer is unknown to it.
func (s *Server) findKey(c *gin.Context) (key store.Key, others []store.Key, err error) {
	if _, err := administered(c, ""); err != nil {
		return key, nil, err
	}
	keys, err := s.Store.ListKeys(c.Request.Context())
	if err != nil {
		return key, nil, err
	}
	id := c.Param("key_id")
	at := slices.IndexFunc(keys, func(k store.Key) bool { return k.ID == id })
	if at >= 0 {
		_, err = administered(c, keys[at].Account)
	}
	if at < 0 || err != nil {
		return key, nil, errorf(nethttp.StatusNotFound, "key_not_found", "no key was found with the ID %s; GET /v1/keys lists them", shorten(id, 64))
	}
	return keys[at], slices.Delete(slices.Clone(keys), at, at+1), nil
}

// rotateKey answers POST /v1/keys/{key_id}/rotate: the key gets another secret
// and keeps the rest. The old secret stops at once.
func (s *Server) rotateKey(c *gin.Context) {
	key, _, err := s.findKey(c)
	if err == nil && expired(key, s.Now()) {
		err = errorf(nethttp.StatusConflict, "key_expired", "the key expired at %s; create another one", key.Expires.Format(time.RFC3339))
	}
	var text string
	if err == nil {
		before, now := key.Hash, s.Now().UTC()
		text, key.Rotated = newSecret(&key), &now
		err = s.record(c, act{actKeyRotate, key.Account, key.ID, viewKey(key, nil)}, func(ctx context.Context) error {
			return s.Store.ReplaceKey(ctx, key, before)
		})
		s.keys.forget()
	}
	var used *time.Time
	if err == nil {
		used, err = s.keys.lastUsed(c.Request.Context(), key.ID)
	}
	if err != nil {
		s.fail(c, err)
		return
	}
	view := viewKey(key, used)
	view.Key = text
	answer(c, nethttp.StatusOK, view)
}

// revokeKey answers DELETE /v1/keys/{key_id}. Jobs that were submitted with
// the key go on.
func (s *Server) revokeKey(c *gin.Context) {
	key, others, err := s.findKey(c)
	if err == nil && s.AdminKey == "" && operator(key, s.Now()) &&
		!slices.ContainsFunc(others, func(k store.Key) bool { return operator(k, s.Now()) }) {
		err = errorf(nethttp.StatusConflict, "last_administrator",
			"this is the last administrator's key of the account %s: without it nobody could create another; rotate it, or create its successor first", DefaultAccount)
	}
	if err == nil {
		err = s.record(c, act{actKeyRevoke, key.Account, key.ID, viewKey(key, nil)}, func(ctx context.Context) error {
			return s.Store.DeleteKey(ctx, key.ID)
		})
		s.keys.forget()
	}
	if err != nil {
		s.fail(c, err)
		return
	}
	answer(c, nethttp.StatusOK, gin.H{"id": key.ID, "revoked": true})
}

// operator reports whether a key can act for all accounts.
func operator(k store.Key, now time.Time) bool {
	return k.Account == DefaultAccount && k.Role == RoleAdmin && !expired(k, now)
}
