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
	// sessionCookie holds a session. Under TLS it has a prefix by which browsers
	// take it from this host alone.
	sessionCookie       = "rowmill_session"
	sessionCookieSecure = "__Host-" + sessionCookie
	// sessionTime is how long a session lasts that is not used: a working day and
	// its breaks.
	sessionTime = 12 * time.Hour
	// sessionRenew is after how long a session that is used gets a cookie with its
	// full time again: not with each answer, which would make all of them longer.
	sessionRenew = 10 * time.Minute
	// maxSignInFailures is how many keys an address may get wrong a minute. Keys
	// have 256 random bits; the administrator's key of the configuration may have
	// fewer, and whoever mistypes one tries less often than this.
	maxSignInFailures = 10
)

// A ticket is what the cookie of a session holds, sealed: which key it stands
// for, never the key itself.
type ticket struct {
	KeyID   string    `json:"key"`  // empty for the configuration's
	Mark    string    `json:"mark"` // the key's, by which a rotated one is another
	Issued  time.Time `json:"issued"`
	Expires time.Time `json:"expires"`

	// Bearer is set where the session stands for a token. Nothing else is known of that
	// later, so that it is all here, and Expires is not after the token's.
	Bearer *bearer `json:"bearer,omitempty"`
}

// bearer is who showed a token.
type bearer struct {
	Issuer  string    `json:"issuer"`
	Name    string    `json:"name"`
	Account string    `json:"account"`
	Role    string    `json:"role"`
	Expires time.Time `json:"expires"` // of the token
}

// Sessions let browsers show a cookie in place of a key. Nothing is kept of them:
// the cookie is sealed with a key that all nodes have, and the API key that it
// stands for is looked up with each request.
type Sessions struct {
	*exchange.Exchange
	keys     *Keyring
	Seal     *Seal
	origins  *http.CrossOriginProtection
	failures *limiter
	now      func() time.Time
}

func NewSessions(x *exchange.Exchange, keys *Keyring, values store.Values, now func() time.Time) *Sessions {
	return &Sessions{
		Exchange: x, keys: keys, Seal: newSeal(values, now), now: now,
		origins: http.NewCrossOriginProtection(), failures: newLimiter(now),
	}
}

// Route adds the routes of sessions.
func (s *Sessions) Route(root gin.IRoutes) {
	root.POST("/console/session", s.Handle(s.begin))
	root.DELETE("/console/session", s.Handle(s.end))
}

// begin answers POST /console/session: whose key it is, and a cookie for it.
func (s *Sessions) begin(c *gin.Context) (any, error) {
	if err := s.sameOrigin(c); err != nil {
		return nil, err
	}
	var problems request.Problems
	body, err := s.ReadObject(c, exchange.SmallObject, &problems)
	if err != nil {
		return nil, err
	}
	var key string
	body.Require("key", "a string", &key, "send the API key to sign in with")
	body.End("key")
	if err := problems.Err(); err != nil {
		return nil, err
	}
	from := caller.Principal{KeyID: address(c.Request), PerMinute: maxSignInFailures}
	if wait := s.failures.wait(from); wait > 0 {
		return nil, tooManyFailures(wait)
	}
	who, err := s.keys.find(c.Request.Context(), key)
	if refused := (*request.Error)(nil); errors.As(err, &refused) {
		if refused.Status == http.StatusUnauthorized {
			s.failures.take(from)
		}
		s.Logger.Warn("nobody was signed in: the token is not good", exchange.KeyRequest, exchange.RequestID(c), "from", from.KeyID, "reason", refused.Message)
		return nil, refused
	}
	if errors.Is(err, rowmill.ErrNotFound) {
		s.failures.take(from)
		s.Logger.Warn("nobody was signed in: the API key is not known", exchange.KeyRequest, exchange.RequestID(c), "from", from.KeyID)
		return nil, unauthorized(SchemeKey, "unknown_key", "this API key is unknown, revoked or expired")
	}
	if err != nil {
		return nil, fmt.Errorf("look up the API key: %w", err)
	}
	expires, err := s.give(c, who)
	if err != nil {
		return nil, err
	}
	return gin.H{"account": who.Account, "role": who.Role, "expires_at": expires}, nil
}

// end answers DELETE /console/session: the browser forgets the cookie. Who kept
// a copy of it is locked out by rotating or revoking the key.
func (s *Sessions) end(c *gin.Context) (any, error) {
	if err := s.sameOrigin(c); err != nil {
		return nil, err
	}
	s.setCookie(c, "", -1)
	return gin.H{}, nil
}

// give gives the browser a cookie with its full time.
func (s *Sessions) give(c *gin.Context, who caller.Principal) (expires time.Time, err error) {
	now := s.now().UTC()
	t := ticket{KeyID: who.KeyID, Mark: who.Mark, Issued: now, Expires: now.Add(sessionTime)}
	if who.Token {
		t.Bearer = &bearer{Issuer: s.keys.issuer.Name(), Name: who.Name, Account: who.Account, Role: who.Role, Expires: who.Expires}
		if who.Expires.Before(t.Expires) {
			t.Expires = who.Expires
		}
	}
	text, err := s.Seal.close(c.Request.Context(), t)
	if err != nil {
		return expires, fmt.Errorf("seal a session: %w", err)
	}
	s.setCookie(c, text, int(t.Expires.Sub(now)/time.Second))
	return t.Expires, nil
}

func (s *Sessions) setCookie(c *gin.Context, value string, maxAge int) {
	cookie := &http.Cookie{Name: sessionCookie, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if overTLS(c.Request) {
		cookie.Name, cookie.Secure = sessionCookieSecure, true
	}
	http.SetCookie(c.Writer, cookie)
}

// cookie is the session's cookie of a request; empty for none.
func (s *Sessions) cookie(c *gin.Context) string {
	name := sessionCookie
	if overTLS(c.Request) {
		name = sessionCookieSecure
	}
	cookie, err := c.Request.Cookie(name)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// who is whom a session's cookie stands for, and what it holds. A page is built
// for the answers of the API's own form, whatever form the key's clients want.
func (s *Sessions) who(c *gin.Context, cookie string) (who caller.Principal, t ticket, err error) {
	ctx := c.Request.Context()
	over := unauthorized(SchemeKey, "session_expired", "the session is over; sign in again")
	if c.FullPath() == routeCancel {
		return who, t, request.Errorf(http.StatusForbidden, "session_not_valid_here",
			"a session changes nothing by GET; use POST /v1/jobs/{job_id}/cancel")
	}
	if err := s.sameOrigin(c); err != nil {
		return who, t, err
	}
	t, err = s.Seal.open(ctx, cookie)
	if errors.Is(err, rowmill.ErrNotFound) || err == nil && !s.now().Before(t.Expires) {
		return who, t, over
	}
	if err != nil {
		return who, t, fmt.Errorf("open a session: %w", err)
	}
	if b := t.Bearer; b != nil {
		if s.keys.issuer == nil || s.keys.issuer.Name() != b.Issuer {
			return who, t, over
		}
		return caller.Principal{
			KeyID: t.KeyID, Name: b.Name, Account: b.Account, Role: b.Role, PerMinute: s.keys.perMinute, Token: true, Expires: b.Expires,
		}, t, nil
	}
	who, err = s.keys.again(ctx, t.KeyID, t.Mark)
	if errors.Is(err, rowmill.ErrNotFound) {
		return who, t, over
	}
	who.Dialect = ""
	return who, t, err
}

// sameOrigin refuses what a page of another site makes a browser ask for.
func (s *Sessions) sameOrigin(c *gin.Context) error {
	if err := s.origins.Check(c.Request); err != nil {
		return request.Errorf(http.StatusForbidden, "cross_origin",
			"the request comes from a page of another site (%v); use the console of this address", err)
	}
	return nil
}

// renew gives a session that is used its full time again, where it has had it a
// while ago.
func (s *Sessions) renew(c *gin.Context, who caller.Principal, t ticket) {
	if s.now().Sub(t.Issued) < sessionRenew {
		return
	}
	if _, err := s.give(c, who); err != nil { // the old one is still good
		s.Logger.Warn("renewing a session failed", exchange.KeyRequest, exchange.RequestID(c), exchange.KeyErr, err)
	}
}

// overTLS reports whether the browser speaks TLS, be it with a proxy in front of
// the node. Who sends the header without one harms nobody but himself: it
// chooses the name of his own cookie.
func overTLS(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// address is where a request comes from, as failures are counted: of IPv6 the
// network, of which whoever has one has all addresses.
func address(r *http.Request) string {
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
	e := tooMany(maxSignInFailures, wait)
	e.Code = "too_many_failures"
	e.Message = fmt.Sprintf("too many unknown keys came from your address; wait %s s before the next try", e.Header["Retry-After"])
	return e
}
