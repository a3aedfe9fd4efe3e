// Package access decides who may send requests. It checks API keys, the tokens of an
// issuer and the sessions of browsers, and limits the requests of each key. It knows
// nothing about the content of requests.
package access

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/oidc"
	"github.com/rowmill/rowmill/http/request"
)

// routeCancel is the only GET route that changes something. It exists because older
// clients cancel jobs with GET.
const routeCancel = "/v1/job-cancel/:job_id"

// mayChange reports whether a request can change something.
func mayChange(c *gin.Context) bool {
	switch c.Request.Method {
	case http.MethodGet, http.MethodHead:
		return c.FullPath() == routeCancel
	}
	return true
}

// contextSession is the name under which the sessionClaims of a session is stored in the
// request's context.
const contextSession = "rowmill.session"

// A Gate is the middleware that checks the key of a request and the rate limit of the
// key.
type Gate struct {
	*exchange.Exchange
	keys   *Keyring
	limits *limiter
	// schemes are the accepted words before a key in the header Authorization. Error
	// messages name the first word.
	schemes []string
	// header is the name of a header that holds only the key, without Bearer before it; empty:
	// there is no such header.
	header string
	// sessions checks session cookies; nil: cookies are ignored.
	sessions *Sessions
}

// NewGate returns the gate for the API's own clients, which send the word Key and a key,
// or a session cookie.
func NewGate(keys *Keyring, sessions *Sessions) *Gate {
	return &Gate{
		Exchange: sessions.Exchange, keys: keys, limits: newLimiter(sessions.now), schemes: []string{SchemeKey}, sessions: sessions,
	}
}

// WithSchemes returns a gate for clients that send their keys in another way: alone in the
// named header, or in the header Authorization after one of the words schemes. The new gate
// accepts no sessions.
func (g *Gate) WithSchemes(header string, schemes ...string) *Gate {
	return &Gate{Exchange: g.Exchange, keys: g.keys, limits: g.limits, schemes: schemes, header: header}
}

// WithSessions makes the gate accept sessions too, and returns the gate. The console needs
// this for models and files.
func (g *Gate) WithSessions(s *Sessions) *Gate {
	g.sessions = s
	return g
}

// Pass is the middleware function: it answers with an error, or stores the caller and lets
// the request pass.
func (g *Gate) Pass(c *gin.Context) {
	who, session, err := g.who(c)
	if err == nil {
		if wait := g.limits.take(who); wait > 0 {
			err = tooMany(who.PerMinute, wait)
		}
	}
	if err != nil {
		g.Fail(c, err)
		return
	}
	if who.Role == caller.RoleReader && mayChange(c) {
		g.Fail(c, request.Errorf(http.StatusForbidden, "forbidden",
			"a key of the role %s may only read; to change something, use a key of the role %s or %s", caller.RoleReader, caller.RoleUser, caller.RoleAdmin))
		return
	}
	who.StoreIn(c)
	c.Request.Body = &checkedBody{ReadCloser: c.Request.Body, gate: g, c: c, checked: g.keys.now()}
	if session != nil {
		c.Set(contextSession, *session)
		g.sessions.renew(c, who, *session)
	}
	if who.Token {
		return
	}
	if err := g.keys.recordUse(c.Request.Context(), who.KeyID); err != nil {
		g.Logger.Warn("recording the use of a key failed", exchange.KeyRequest, exchange.RequestID(c), exchange.KeyErr, err)
	}
}

// These words stand before a key or a token in the header Authorization.
const (
	SchemeKey   = "Key"
	schemeToken = "Bearer"
)

// APIKey returns the key of a request.
func (g *Gate) APIKey(c *gin.Context) (string, error) {
	schemes := g.schemes
	headers := c.Request.Header.Values("Authorization")
	if alone := c.GetHeader(g.header); g.header != "" && alone != "" && len(headers) == 0 {
		return alone, nil
	}
	if len(headers) != 1 {
		return "", unauthorized(schemes[0], "missing_key", "send your API key once, in the header Authorization: "+schemes[0]+" <API_KEY>")
	}
	scheme, key, found := strings.Cut(headers[0], " ")
	known := slices.ContainsFunc(schemes, func(s string) bool { return strings.EqualFold(s, scheme) }) ||
		strings.EqualFold(schemeToken, scheme) && g.keys.issuer != nil && oidc.LooksLikeToken(key)
	if !found || !known || key == "" || strings.TrimSpace(key) != key {
		return "", unauthorized(schemes[0], "malformed_key", "the Authorization header must be the word "+schemes[0]+", one space and your API key")
	}
	return key, nil
}

// session returns the session cookie of a request, or "" if the request has no cookie or
// has a key.
func (g *Gate) session(c *gin.Context) string {
	if g.sessions == nil || len(c.Request.Header.Values("Authorization")) > 0 || g.header != "" && c.GetHeader(g.header) != "" {
		return ""
	}
	return g.sessions.cookie(c)
}

// who returns the sender of a request, and the sessionClaims if the request has a session.
func (g *Gate) who(c *gin.Context) (who caller.Principal, session *sessionClaims, err error) {
	if cookie := g.session(c); cookie != "" {
		who, t, err := g.sessions.who(c, cookie)
		return who, &t, err
	}
	key, err := g.APIKey(c)
	if err == nil {
		who, err = g.keys.check(c.Request.Context(), key, g.schemes[0])
	}
	return who, nil, err
}

func unauthorized(scheme, code, message string) error {
	e := request.Errorf(http.StatusUnauthorized, code, "%s", message)
	e.Header = map[string]string{"WWW-Authenticate": scheme}
	return e
}

// StillValid reports whether the gate would accept the request now, with the account, role
// and dialect that the request had at its start. If the store does not answer, StillValid
// returns true.
func (g *Gate) StillValid(c *gin.Context) bool {
	now, _, err := g.who(c)
	was := caller.Of(c)
	if err != nil {
		return request.Describe(err).Status != http.StatusUnauthorized
	}
	return now.Account == was.Account && now.Role == was.Role && now.Dialect == was.Dialect
}

// A checkedBody is the body of a request. A read fails soon after the request's key was
// revoked, so that a long upload ends with the key.
type checkedBody struct {
	io.ReadCloser
	gate    *Gate
	c       *gin.Context
	checked time.Time // when the key was last found valid
}

func (b *checkedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	now := b.gate.keys.now()
	if now.Sub(b.checked) < keysFresh {
		return n, err
	}
	if !b.gate.StillValid(b.c) {
		return 0, request.Errorf(http.StatusUnauthorized, "unknown_key", "this API key was revoked or rotated, or expired, while the request was sent").Closing()
	}
	b.checked = now
	return n, err
}

// SessionEnd returns when the request's session ends. is says whether the request has a
// session.
func SessionEnd(c *gin.Context) (at time.Time, is bool) {
	session, is := c.Value(contextSession).(sessionClaims)
	return session.Expires, is
}

// IsOperator reports whether a key belongs to an operator. It returns false if the key
// cannot be looked up.
func (g *Gate) IsOperator(ctx context.Context, key string) bool {
	if key == "" {
		return false
	}
	who, err := g.keys.find(ctx, key)
	return err == nil && who.Role == caller.RoleAdmin && who.Account == caller.DefaultAccount
}
