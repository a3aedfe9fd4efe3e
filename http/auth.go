package http

import (
	"context"
	"errors"
	"fmt"
	nethttp "net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
)

// DefaultAccount owns the administrator key of the configuration and the key
// of the first start.
const DefaultAccount = "default"

// The roles of a key.
const (
	RoleAdmin = "admin"
	RoleUser  = "user"
)

const (
	// DialectSDK is how existing clients of this API family want answers.
	DialectSDK = "sdk"

	// maxAccountBytes bounds the name of an account.
	maxAccountBytes = 128
)

// principal is who sent a request.
type principal struct {
	keyID   string // empty for the configured administrator key
	name    string // of the key
	account string
	role    string
	dialect string // DialectSDK, or empty for the API's own

	// perMinute bounds the requests of the key; 0 does not.
	perMinute int
}

func caller(c *gin.Context) principal { return c.MustGet(contextPrincipal).(principal) }

// administered returns the account that a request of an administrator is
// about: its own where none is named, any for one of the account "default".
func administered(c *gin.Context, named string) (string, error) {
	who := caller(c)
	switch {
	case who.role != RoleAdmin:
		return "", errorf(nethttp.StatusForbidden, "forbidden", "this needs an administrator's key; yours has the role %s", who.role)
	case named == "" || named == who.account:
		return who.account, nil
	case who.account != DefaultAccount:
		return "", errorf(nethttp.StatusForbidden, "forbidden", "only an administrator of the account %s may act for another account", DefaultAccount)
	case len(named) > maxAccountBytes || !utf8.ValidString(named) || strings.ContainsFunc(named, unicode.IsControl):
		return "", rowmill.Invalid("account", "is %q; the name of an account has up to %d bytes of plain text", shorten(named, 64), maxAccountBytes)
	}
	return named, nil
}

// namedAccount is the account that query or body name, or empty.
func namedAccount(c *gin.Context, body *object) string {
	named := c.Query("account")
	var other string
	if body.read("account", "a string", &other) {
		if named != "" && named != other {
			body.problems.add("account", "is %q in the body and %q in the query; name one", shorten(other, 64), shorten(named, 64))
		}
		named = other
	}
	return named
}

// administeredOrAll is administered, but where none is named, an administrator
// of the account "default" asks about all accounts at once: the empty one.
func administeredOrAll(c *gin.Context, named string) (string, error) {
	account, err := administered(c, named)
	if named == "" && account == DefaultAccount {
		account = ""
	}
	return account, err
}

// authenticate lets requests with a known key pass.
func (s *Server) authenticate(c *gin.Context) {
	headers := c.Request.Header.Values("Authorization")
	if len(headers) != 1 {
		s.unauthorized(c, "missing_key", "send your API key once, in the header Authorization: Key <API_KEY>")
		return
	}
	scheme, key, found := strings.Cut(headers[0], " ")
	if !found || !strings.EqualFold(scheme, "Key") || key == "" || strings.TrimSpace(key) != key {
		s.unauthorized(c, "malformed_key", "the Authorization header must be the word Key, one space and your API key")
		return
	}
	who, err := s.keys.find(c.Request.Context(), key)
	if errors.Is(err, rowmill.ErrNotFound) {
		s.unauthorized(c, "unknown_key", "this API key is unknown, revoked or expired")
		return
	}
	if err != nil {
		s.fail(c, fmt.Errorf("look up the API key: %w", err))
		return
	}
	if wait := s.limits.take(who); wait > 0 {
		s.fail(c, tooMany(who.perMinute, wait))
		return
	}
	c.Set(contextPrincipal, who)
	if err := s.keys.used(context.WithoutCancel(c.Request.Context()), who.keyID); err != nil {
		s.Logger.Warn("record the use of a key", keyRequest, requestID(c), keyErr, err)
	}
}

func (s *Server) unauthorized(c *gin.Context, code, message string) {
	e := errorf(nethttp.StatusUnauthorized, code, "%s", message)
	e.header = map[string]string{"WWW-Authenticate": "Key"}
	s.fail(c, e)
}
