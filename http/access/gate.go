// Package access decides who may send requests. It checks API keys, tokens of an OpenID
// Connect issuer and browser sessions, and limits the request rate of each key. It does
// not interpret the content of requests.
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

// isWriteRequest reports whether a request can change something.
func isWriteRequest(c *gin.Context) bool {
	switch c.Request.Method {
	case http.MethodGet, http.MethodHead:
		return c.FullPath() == routeCancel
	}
	return true
}

// contextSession is the name in the request's context under which RequireAuth stores the
// sessionClaims of a browser session.
const contextSession = "rowmill.session"

// A Gate is the middleware that checks the API key of a request and the rate limit of
// this key.
type Gate struct {
	*exchange.Exchange
	keys   *Keyring
	limits *limiter
	// schemes lists the accepted words before the key in the header Authorization. Error
	// messages name the first word.
	schemes []string
	// header is the name of a request header whose whole value is the API key. Empty: only
	// the header Authorization is read.
	header string
	// sessions checks session cookies; nil: cookies are ignored.
	sessions *Sessions
}

// NewGate returns the gate for the API's own clients. They send "Authorization: Key"
// with an API key, or a session cookie.
func NewGate(keys *Keyring, sessions *Sessions) *Gate {
	return &Gate{
		Exchange: sessions.Exchange, keys: keys, limits: newLimiter(sessions.now), schemes: []string{SchemeKey}, sessions: sessions,
	}
}

// WithSchemes returns a new gate that reads the API key from the named header, or from
// the header Authorization after one of the words in schemes. The new gate accepts no
// session cookies.
func (g *Gate) WithSchemes(header string, schemes ...string) *Gate {
	return &Gate{Exchange: g.Exchange, keys: g.keys, limits: g.limits, schemes: schemes, header: header}
}

// WithSessions makes the gate accept session cookies too, and returns the same gate.
// The web console needs this to request models and files.
func (g *Gate) WithSessions(s *Sessions) *Gate {
	g.sessions = s
	return g
}

// RequireAuth is the middleware function. It answers with an error, or stores the sender of
// the request for caller.PrincipalOf and lets the request pass.
func (g *Gate) RequireAuth(c *gin.Context) {
	who, session, err := g.authenticate(c)
	if err == nil {
		if wait := g.limits.admitRequest(who); wait > 0 {
			err = tooManyRequests(who.PerMinute, wait)
		}
	}
	if err != nil {
		g.Fail(c, err)
		return
	}
	if who.Role == caller.RoleReader && isWriteRequest(c) {
		g.Fail(c, request.Errorf(http.StatusForbidden, "forbidden",
			"a key of the role %s may only read; to change something, use a key of the role %s or %s", caller.RoleReader, caller.RoleUser, caller.RoleAdmin))
		return
	}
	who.StoreIn(c)
	c.Request.Body = &authCheckingBody{ReadCloser: c.Request.Body, gate: g, c: c, checked: g.keys.now()}
	if session != nil {
		c.Set(contextSession, *session)
		g.sessions.renewSessionCookie(c, who, *session)
	}
	if who.Token {
		return
	}
	if err := g.keys.recordUse(c.Request.Context(), who.KeyID); err != nil {
		g.Logger.Warn("storing the time of an API key's last use failed", exchange.KeyRequest, exchange.RequestID(c), exchange.KeyErr, err)
	}
}

// Words before an API key or an issuer's token in the header Authorization.
const (
	SchemeKey   = "Key"
	schemeToken = "Bearer"
)

// APIKey returns the API key or the token of a request, or an error for the client if
// the request does not have exactly one key in an accepted form.
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

// sessionCookieOf returns the session cookie of a request. It returns "" if the request has no
// cookie, or if it has an API key too.
func (g *Gate) sessionCookieOf(c *gin.Context) string {
	if g.sessions == nil || len(c.Request.Header.Values("Authorization")) > 0 || g.header != "" && c.GetHeader(g.header) != "" {
		return ""
	}
	return g.sessions.readSessionCookie(c)
}

// authenticate returns the sender of a request. session is nil if the request has an API key and
// no browser session.
func (g *Gate) authenticate(c *gin.Context) (principal caller.Principal, session *sessionClaims, err error) {
	if cookie := g.sessionCookieOf(c); cookie != "" {
		who, t, err := g.sessions.authenticateCookie(c, cookie)
		return who, &t, err
	}
	key, err := g.APIKey(c)
	if err == nil {
		principal, err = g.keys.authenticateKey(c.Request.Context(), key, g.schemes[0])
	}
	return principal, nil, err
}

func unauthorized(scheme, code, message string) error {
	e := request.Errorf(http.StatusUnauthorized, code, "%s", message)
	e.Header = map[string]string{"WWW-Authenticate": scheme}
	return e
}

// IsStillAuthorized reports whether the gate would accept the request now, with the account, role
// and dialect that the request had at its start. If the store does not answer, IsStillAuthorized
// returns true.
func (g *Gate) IsStillAuthorized(c *gin.Context) bool {
	now, _, err := g.authenticate(c)
	was := caller.PrincipalOf(c)
	if err != nil {
		return request.FromError(err).Status != http.StatusUnauthorized
	}
	return now.Account == was.Account && now.Role == was.Role && now.Dialect == was.Dialect
}

// An authCheckingBody is a request body that checks the request's API key again during the
// upload. Read fails soon after the key was revoked, so that a long upload stops.
type authCheckingBody struct {
	io.ReadCloser
	gate    *Gate
	c       *gin.Context
	checked time.Time // when the API key was last found valid
}

func (b *authCheckingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	now := b.gate.keys.now()
	if now.Sub(b.checked) < keysFresh {
		return n, err
	}
	if !b.gate.IsStillAuthorized(b.c) {
		return 0, request.Errorf(http.StatusUnauthorized, "unknown_key", "this API key was revoked or rotated, or expired, while the request was sent").CloseConnection()
	}
	b.checked = now
	return n, err
}

// SessionExpiry returns when the browser session of a request ends. hasSession is false if the
// request has no browser session.
func SessionExpiry(c *gin.Context) (at time.Time, hasSession bool) {
	session, hasSession := c.Value(contextSession).(sessionClaims)
	return session.Expires, hasSession
}

// IsOperator reports whether an API key belongs to an operator: an administrator of the
// account "default". It returns false if the key cannot be looked up.
func (g *Gate) IsOperator(ctx context.Context, key string) bool {
	if key == "" {
		return false
	}
	who, err := g.keys.findPrincipal(ctx, key)
	return err == nil && who.Role == caller.RoleAdmin && who.Account == caller.DefaultAccount
}
