package access

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/store"
)

const (
	// sessionCookie is the name of the session cookie without TLS. With TLS the name is
	// sessionCookieSecure: its prefix makes browsers accept the cookie from this host only.
	sessionCookie       = "rowmill_session"
	sessionCookieSecure = "__Host-" + sessionCookie
	// sessionTime is how long a browser session without requests lasts: one working day.
	sessionTime = 12 * time.Hour
	// sessionRenew is the age of a cookie at which the next answer contains a new cookie. A
	// new cookie in each answer would make all answers longer.
	sessionRenew = 10 * time.Minute
	// maxSignInFailures limits the sign-ins with a wrong key or login link from one address per minute.
	// Generated keys have 256 random bits and need no limit, but a configured key may have
	// fewer. People who mistype a key stay below this limit.
	maxSignInFailures = 10
)

// sessionClaims is the encrypted content of a session cookie. It names the key of the session,
// but does not contain the key.
type sessionClaims struct {
	KeyID       string    `json:"key"`  // empty for a configured key
	Fingerprint string    `json:"mark"` // Principal.Fingerprint of the key, which changes when the key is rotated
	Issued      time.Time `json:"issued"`
	Expires     time.Time `json:"expires"`

	// Bearer is set if the session was started with a token. A token cannot be looked up
	// later, so sessionClaims holds all facts about it. Expires is not later than the
	// token's expiry.
	Bearer *tokenOwner `json:"bearer,omitempty"`
}

// tokenOwner describes the owner of an issuer's token that started a session.
type tokenOwner struct {
	Issuer  string    `json:"issuer"`
	Name    string    `json:"name"`
	Account string    `json:"account"`
	Role    string    `json:"role"`
	Expires time.Time `json:"expires"` // when the token expires
}

// Sessions let browsers send a cookie instead of an API key. The service stores no
// sessions: the cookie is encrypted with a secret that all nodes have, and each request
// looks up the API key that the cookie names.
type Sessions struct {
	*exchange.Exchange
	keys     *Keyring
	Seal     *SessionSealer
	origins  *http.CrossOriginProtection
	failures *limiter
	link     loginLink
	now      func() time.Time
}

// NewSessions returns the browser sessions of a server. values is the store of the seal
// key.
func NewSessions(x *exchange.Exchange, keys *Keyring, values store.NamedValues, now func() time.Time) *Sessions {
	return &Sessions{
		Exchange: x, keys: keys, Seal: newSessionSealer(values, now), now: now,
		origins: http.NewCrossOriginProtection(), failures: newLimiter(now), link: loginLink{now: now},
	}
}

// CreateLoginToken returns a token that starts one browser session for an API key, within
// loginLinkTime. A new token replaces the old token. Never log it.
func (s *Sessions) CreateLoginToken(key string) string { return s.link.create(key) }

// Route adds the routes for signing in and out.
func (s *Sessions) Route(root gin.IRoutes) {
	root.POST("/console/session", s.Handle(s.signIn))
	root.DELETE("/console/session", s.Handle(s.signOut))
}

// signIn answers POST /console/session: it checks an API key or the token of a login
// link, and sets a session cookie.
func (s *Sessions) signIn(c *gin.Context) (any, error) {
	if err := s.checkOrigin(c); err != nil {
		return nil, err
	}
	body, err := s.ReadObject(c, exchange.SmallObject)
	if err != nil {
		return nil, err
	}
	var key, token string
	byLink := body.Read("login_token", "a string", &token)
	if !byLink {
		body.Require("key", "a string", &key, "send the API key to sign in with")
	}
	body.RejectUnknown("either key or login_token")
	if err := body.Err(); err != nil {
		return nil, err
	}
	from := caller.Principal{KeyID: clientNetwork(c.Request), PerMinute: maxSignInFailures}
	if wait := s.failures.requiredWait(from); wait > 0 {
		return nil, tooManyFailures(wait)
	}
	if byLink {
		key, err = s.link.redeem(token)
	}
	var who caller.Principal
	if err == nil {
		who, err = s.keys.authenticateKey(c.Request.Context(), key, SchemeKey)
	}
	if refused := (*request.Error)(nil); errors.As(err, &refused) {
		if refused.Status == http.StatusUnauthorized {
			s.failures.admitRequest(from)
		}
		s.Logger.Warn("a sign-in to the console was refused", exchange.KeyRequest, exchange.RequestID(c), "from", from.KeyID, "reason", refused.Message)
	}
	if err != nil {
		return nil, err
	}
	expires, err := s.setSession(c, who)
	if err != nil {
		return nil, err
	}
	return gin.H{"account": who.Account, "role": who.Role, "expires_at": expires}, nil
}

// signOut answers DELETE /console/session: it makes the browser drop the cookie. A copy of the
// cookie still works, and is renewed, until the key is rotated or revoked.
func (s *Sessions) signOut(c *gin.Context) (any, error) {
	if err := s.checkOrigin(c); err != nil {
		return nil, err
	}
	s.setCookie(c, "", -1)
	return gin.H{}, nil
}

// setSession sets a new session cookie for who and returns when the session expires.
func (s *Sessions) setSession(c *gin.Context, who caller.Principal) (expires time.Time, err error) {
	now := s.now().UTC()
	t := sessionClaims{KeyID: who.KeyID, Fingerprint: who.Fingerprint, Issued: now, Expires: now.Add(sessionTime)}
	if who.Token {
		t.Bearer = &tokenOwner{Issuer: s.keys.issuer.Name(), Name: who.Name, Account: who.Account, Role: who.Role, Expires: who.Expires}
		if who.Expires.Before(t.Expires) {
			t.Expires = who.Expires
		}
	}
	text, err := s.Seal.encrypt(c.Request.Context(), t)
	if err != nil {
		return expires, fmt.Errorf("encrypt a session: %w", err)
	}
	s.setCookie(c, text, int(t.Expires.Sub(now)/time.Second))
	return t.Expires, nil
}

func (s *Sessions) setCookie(c *gin.Context, value string, maxAge int) {
	cookie := &http.Cookie{Name: sessionCookie, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if isOverTLS(c.Request) {
		cookie.Name, cookie.Secure = sessionCookieSecure, true
	}
	http.SetCookie(c.Writer, cookie)
}

// readSessionCookie returns the session cookie of a request, or "" if the request has none.
func (s *Sessions) readSessionCookie(c *gin.Context) string {
	name := sessionCookie
	if isOverTLS(c.Request) {
		name = sessionCookieSecure
	}
	cookie, err := c.Request.Cookie(name)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// authenticateCookie returns the owner of a browser session, and the sessionClaims in its cookie. It
// clears the owner's dialect, because the console expects answers in the API's own
// form.
func (s *Sessions) authenticateCookie(c *gin.Context, cookie string) (principal caller.Principal, t sessionClaims, err error) {
	ctx := c.Request.Context()
	ended := unauthorized(SchemeKey, "session_expired", "the session has ended; sign in again")
	if c.FullPath() == routeCancel {
		return principal, t, request.Errorf(http.StatusForbidden, "session_not_valid_here",
			"a browser session cannot cancel a job with GET; use POST /v1/jobs/{job_id}/cancel")
	}
	if err := s.checkOrigin(c); err != nil {
		return principal, t, err
	}
	t, err = s.Seal.decrypt(ctx, cookie)
	if errors.Is(err, rowmill.ErrNotFound) || err == nil && !s.now().Before(t.Expires) {
		return principal, t, ended
	}
	if err != nil {
		return principal, t, fmt.Errorf("decrypt a session: %w", err)
	}
	if b := t.Bearer; b != nil {
		if s.keys.issuer == nil || s.keys.issuer.Name() != b.Issuer {
			return principal, t, ended
		}
		return caller.Principal{
			KeyID: t.KeyID, Name: b.Name, Account: b.Account, Role: b.Role, PerMinute: s.keys.perMinute, Token: true, Expires: b.Expires,
		}, t, nil
	}
	principal, err = s.keys.findByFingerprint(ctx, t.KeyID, t.Fingerprint)
	if errors.Is(err, rowmill.ErrNotFound) {
		return principal, t, ended
	}
	principal.Dialect = ""
	return principal, t, err
}

// checkOrigin returns an error if a page of another site made the browser send the request.
func (s *Sessions) checkOrigin(c *gin.Context) error {
	if err := s.origins.Check(c.Request); err != nil {
		return request.Errorf(http.StatusForbidden, "cross_origin",
			"the request comes from a page of another site (%v); use the console at this address", err)
	}
	return nil
}

// renewSessionCookie sets a new cookie if the session's cookie is older than sessionRenew.
func (s *Sessions) renewSessionCookie(c *gin.Context, who caller.Principal, t sessionClaims) {
	if s.now().Sub(t.Issued) < sessionRenew {
		return
	}
	if _, err := s.setSession(c, who); err != nil { // the old cookie is still valid
		s.Logger.Warn("renewing the cookie of a browser session failed, the old cookie stays valid", exchange.KeyRequest, exchange.RequestID(c), exchange.KeyErr, err)
	}
}

// isOverTLS reports whether the browser uses TLS, to this node or to a proxy in front of
// the node. A client that sends a false header X-Forwarded-Proto changes only the name
// of its own cookie.
func isOverTLS(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// clientNetwork returns the client address under which failed sign-ins are counted. For IPv6
// it returns the /64 network, because one client may have all addresses of such a
// network.
func clientNetwork(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap(); ip.Is6() {
		if network, err := ip.WithZone("").Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}

func tooManyFailures(wait time.Duration) *request.Error {
	e := tooManyRequests(maxSignInFailures, wait)
	e.Code = "too_many_failures"
	e.Message = fmt.Sprintf("too many unknown keys or invalid login links came from your address; wait %s s before the next try", e.Header["Retry-After"])
	return e
}
