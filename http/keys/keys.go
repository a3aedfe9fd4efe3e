// Package keys answers requests about the API keys of accounts, and creates the first key
// of a store. Package access decides whether a key is valid.
package keys

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/http/access"
	"github.com/rowmill/rowmill/http/audit"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/http/sdk"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/store"
)

const (
	// maxKeyName limits the name of a key, in code points.
	maxKeyName = 64
	// maxPerMinute is the largest requests_per_minute. A higher value would limit nothing.
	maxPerMinute = 1_000_000
)

func viewKey(k store.APIKey, lastUsed *time.Time) client.Key {
	return client.Key{
		ID: k.ID, Name: k.Name, Account: k.Account, Role: k.Role, RequestsPerMinute: exchange.ToInt64Ptr(k.RequestsPerMinute),
		CreatedAt: k.Created, ExpiresAt: k.Expires, RotatedAt: k.Rotated, LastUsedAt: lastUsed, Dialect: exchange.NilIfZero(k.Dialect),
	}
}

// confirmAuthenticated answers GET /v1/auth/check and GET /v1/try-authentication. It checks
// nothing, because access.Gate lets only requests with valid keys pass.
func confirmAuthenticated(*gin.Context) (any, error) { return gin.H{"authenticated": true}, nil }

// Keys answers requests about the API keys of accounts.
type Keys struct {
	*exchange.Exchange
	Store store.Store
	Ring  *access.Keyring
	Audit *audit.Auditor
	Most  int // greatest number of keys of an account
	Now   func() time.Time
}

// Route adds the routes of keys.
func (k *Keys) Route(v1 gin.IRoutes) {
	v1.GET("/auth/check", k.Handle(confirmAuthenticated))
	v1.GET("/try-authentication", k.Handle(confirmAuthenticated))
	v1.GET("/keys", k.Handle(k.list))
	v1.POST("/keys", k.Handle(k.create))
	v1.POST("/keys/:key_id/rotate", k.Handle(k.rotate))
	v1.DELETE("/keys/:key_id", k.Handle(k.revoke))
}

// list answers GET /v1/keys with one page of keys.
func (k *Keys) list(c *gin.Context) (any, error) {
	account, err := caller.ResolveAdminAccountOrAll(c, c.Query("account"))
	if err != nil {
		return nil, err
	}
	var p request.Problems
	limit := exchange.QueryInt(c, &p, "limit", maxKeysPage, 1, maxKeysPage)
	if err := p.Err(); err != nil {
		return nil, err
	}
	all, err := k.Store.ListKeys(c.Request.Context())
	if err != nil {
		return nil, err
	}
	page, next, err := selectPage(all, account, int(limit), c.Query("cursor"))
	if err != nil {
		return nil, err
	}
	views := []client.Key{}
	for _, key := range page {
		used, err := k.Ring.LastUsed(c.Request.Context(), key.ID)
		if err != nil {
			return nil, err
		}
		views = append(views, viewKey(key, used))
	}
	return gin.H{"keys": views, "next_cursor": exchange.NilIfZero(next)}, nil
}

// checkKeyLimit returns an error if the account already has the greatest number of keys.
// Two requests at the same time can exceed this number.
func (k *Keys) checkKeyLimit(ctx context.Context, account string) error {
	all, err := k.Store.ListKeys(ctx)
	if err != nil {
		return err
	}
	has := 0
	for _, key := range all {
		if key.Account == account {
			has++
		}
	}
	if has >= k.Most {
		return request.Errorf(http.StatusConflict, "too_many_keys",
			"the account %s already has %d keys, the most that an account may have (http.max_keys); revoke keys that have expired or are not used", textfmt.Shorten(account, 64), has)
	}
	return nil
}

// create answers POST /v1/keys. The key is shown in this answer only.
func (k *Keys) create(c *gin.Context) (any, error) {
	secret, key := access.NewKey("", caller.RoleUser, "", k.Now())
	account, err := caller.ReadAdminRequest(k.Exchange, c, exchange.SmallObject, func(body *request.JSONObject) { k.readNewKey(body, &key) })
	if err != nil {
		return nil, err
	}
	if err := k.checkKeyLimit(c.Request.Context(), account); err != nil {
		return nil, err
	}
	key.Account = account
	err = k.Audit.RecordAndRun(c, audit.Action{Name: audit.KeyCreate, Account: account, Target: key.ID, Details: viewKey(key, nil)}, func(ctx context.Context) error {
		if err := k.Store.PutKey(ctx, key); err != nil {
			return fmt.Errorf("store a key: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	k.Ring.InvalidateKeys()
	view := viewKey(key, nil)
	view.Key = secret
	return view, nil
}

// readNewKey reads the fields of a new key from a body into key, and adds their problems to
// the body.
func (k *Keys) readNewKey(body *request.JSONObject, key *store.APIKey) {
	if body.Read("name", "a string", &key.Name) {
		if n := utf8.RuneCountInString(key.Name); n > maxKeyName || strings.ContainsFunc(key.Name, unicode.IsControl) {
			body.AddProblem("name", "must be plain text of at most %d characters", maxKeyName)
		}
	}
	if body.Read("role", "a string", &key.Role) && !caller.IsRole(key.Role) {
		body.AddProblem("role", "is %q; it must be %s, %s or %s", textfmt.Shorten(key.Role, 32), caller.RoleAdmin, caller.RoleUser, caller.RoleReader)
	}
	if body.Read("dialect", "a string", &key.Dialect) && key.Dialect != sdk.Name {
		body.AddProblem("dialect", "is %q; it must be %s, or null for the answers of this document", textfmt.Shorten(key.Dialect, 32), sdk.Name)
	}
	var expires time.Time
	if body.Read("expires_at", "a time such as 2030-01-31T00:00:00Z, or null for never", &expires) {
		if !expires.After(k.Now()) {
			body.AddProblem("expires_at", "is %s, which is in the past; it must be in the future", expires.Format(time.RFC3339))
		}
		expires = expires.UTC()
		key.Expires = &expires
	}
	var perMinute int
	if body.Read("requests_per_minute", "a whole number, or null for the configured limit", &perMinute) {
		if perMinute < 1 || perMinute > maxPerMinute {
			body.AddProblem("requests_per_minute", "is %d; it must be from 1 to %d, or null for the configured limit", perMinute, maxPerMinute)
		}
		key.RequestsPerMinute = &perMinute
	}
	body.RejectUnknown("name, role, account, expires_at, dialect and requests_per_minute")
}

// findKeyInPath returns the key in the path, and all other keys. If the caller does not administer
// the key's account, the answer is the same as for a key that does not exist.
func (k *Keys) findKeyInPath(c *gin.Context) (key store.APIKey, others []store.APIKey, err error) {
	if _, err := caller.ResolveAdminAccount(c, ""); err != nil {
		return key, nil, err
	}
	all, err := k.Store.ListKeys(c.Request.Context())
	if err != nil {
		return key, nil, err
	}
	id := c.Param("key_id")
	at := slices.IndexFunc(all, func(k store.APIKey) bool { return k.ID == id })
	if at >= 0 {
		_, err = caller.ResolveAdminAccount(c, all[at].Account)
	}
	if at < 0 || err != nil {
		return key, nil, request.Errorf(http.StatusNotFound, "key_not_found", "no key was found with the ID %s; GET /v1/keys lists them", textfmt.Shorten(id, 64))
	}
	return all[at], slices.Delete(slices.Clone(all), at, at+1), nil
}

// rotate answers POST /v1/keys/{key_id}/rotate: the key gets a new secret. The old secret
// stops working at once.
func (k *Keys) rotate(c *gin.Context) (any, error) {
	key, _, err := k.findKeyInPath(c)
	if err != nil {
		return nil, err
	}
	if access.IsExpired(key, k.Now()) {
		return nil, request.Errorf(http.StatusConflict, "key_expired", "the key expired at %s; create another one", key.Expires.Format(time.RFC3339))
	}
	before, now := key.Hash, k.Now().UTC()
	secret := access.ReplaceSecret(&key)
	key.Rotated = &now
	err = k.Audit.RecordAndRun(c, audit.Action{Name: audit.KeyRotate, Account: key.Account, Target: key.ID, Details: viewKey(key, nil)}, func(ctx context.Context) error {
		return k.Store.ReplaceKey(ctx, key, before)
	})
	k.Ring.InvalidateKeys()
	if err != nil {
		return nil, err
	}
	used, err := k.Ring.LastUsed(c.Request.Context(), key.ID)
	view := viewKey(key, used)
	view.Key = secret
	return view, err
}

// revoke answers DELETE /v1/keys/{key_id}. Jobs that were submitted with the key
// continue.
func (k *Keys) revoke(c *gin.Context) (any, error) {
	key, others, err := k.findKeyInPath(c)
	if err != nil {
		return nil, err
	}
	if !k.Ring.HasAdminKeys() && isOperator(key, k.Now()) && !slices.ContainsFunc(others, func(other store.APIKey) bool { return isOperator(other, k.Now()) }) {
		return nil, request.Errorf(http.StatusConflict, "last_administrator",
			"this is the last administrator's key of the account %s: without it nobody could create keys; rotate it, or create another administrator's key first", caller.DefaultAccount)
	}
	err = k.Audit.RecordAndRun(c, audit.Action{Name: audit.KeyRevoke, Account: key.Account, Target: key.ID, Details: viewKey(key, nil)}, func(ctx context.Context) error {
		return k.Store.DeleteKey(ctx, key.ID)
	})
	k.Ring.InvalidateKeys()
	return gin.H{"id": key.ID, "revoked": true}, err
}

// isOperator reports whether a key is valid and may act for all accounts.
func isOperator(k store.APIKey, now time.Time) bool {
	return k.Account == caller.DefaultAccount && k.Role == caller.RoleAdmin && !access.IsExpired(k, now)
}
