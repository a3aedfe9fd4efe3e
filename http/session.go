package http

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	nethttp "net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
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
	// sealFresh is how often a seal that opens nothing makes the node look for
	// another one in the store.
	sealFresh = time.Second
	// sealValue names the value with the key of the seal.
	sealValue = "console/session_seal"
	// sealPurpose is sealed with each session, so that the key serves no other end.
	sealPurpose = "rowmill session 1"
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

// sessions let browsers show a cookie in place of a key. Nothing is kept of them:
// the cookie is sealed with a key that all nodes have, and the API key that it
// stands for is looked up with each request.
type sessions struct {
	*exchange.Exchange
	keys     *keyring
	seal     *seal
	origins  *nethttp.CrossOriginProtection
	failures *limiter
	now      func() time.Time
}

func newSessions(x *exchange.Exchange, keys *keyring, values store.Values, now func() time.Time) *sessions {
	return &sessions{
		Exchange: x, keys: keys, seal: newSeal(values, now), now: now,
		origins: nethttp.NewCrossOriginProtection(), failures: newLimiter(now),
	}
}

// begin answers POST /console/session: whose key it is, and a cookie for it.
func (s *sessions) begin(c *gin.Context) (any, error) {
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
	from := principal{keyID: address(c.Request), perMinute: maxSignInFailures}
	if wait := s.failures.wait(from); wait > 0 {
		return nil, tooManyFailures(wait)
	}
	who, err := s.keys.find(c.Request.Context(), key)
	if refused := (*request.Error)(nil); errors.As(err, &refused) {
		if refused.Status == nethttp.StatusUnauthorized {
			s.failures.take(from)
		}
		s.Logger.Warn("nobody was signed in: the token is not good", exchange.KeyRequest, exchange.RequestID(c), "from", from.keyID, "reason", refused.Message)
		return nil, refused
	}
	if errors.Is(err, rowmill.ErrNotFound) {
		s.failures.take(from)
		s.Logger.Warn("nobody was signed in: the API key is not known", exchange.KeyRequest, exchange.RequestID(c), "from", from.keyID)
		return nil, unauthorized(schemeKey, "unknown_key", "this API key is unknown, revoked or expired")
	}
	if err != nil {
		return nil, fmt.Errorf("look up the API key: %w", err)
	}
	expires, err := s.give(c, who)
	if err != nil {
		return nil, err
	}
	return gin.H{"account": who.account, "role": who.role, "expires_at": expires}, nil
}

// end answers DELETE /console/session: the browser forgets the cookie. Who kept
// a copy of it is locked out by rotating or revoking the key.
func (s *sessions) end(c *gin.Context) (any, error) {
	if err := s.sameOrigin(c); err != nil {
		return nil, err
	}
	s.setCookie(c, "", -1)
	return gin.H{}, nil
}

// give gives the browser a cookie with its full time.
func (s *sessions) give(c *gin.Context, who principal) (expires time.Time, err error) {
	now := s.now().UTC()
	t := ticket{KeyID: who.keyID, Mark: who.mark, Issued: now, Expires: now.Add(sessionTime)}
	if who.token {
		t.Bearer = &bearer{Issuer: s.keys.issuer.Name(), Name: who.name, Account: who.account, Role: who.role, Expires: who.expires}
		if who.expires.Before(t.Expires) {
			t.Expires = who.expires
		}
	}
	text, err := s.seal.close(c.Request.Context(), t)
	if err != nil {
		return expires, fmt.Errorf("seal a session: %w", err)
	}
	s.setCookie(c, text, int(t.Expires.Sub(now)/time.Second))
	return t.Expires, nil
}

func (s *sessions) setCookie(c *gin.Context, value string, maxAge int) {
	cookie := &nethttp.Cookie{Name: sessionCookie, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: nethttp.SameSiteStrictMode}
	if overTLS(c.Request) {
		cookie.Name, cookie.Secure = sessionCookieSecure, true
	}
	nethttp.SetCookie(c.Writer, cookie)
}

// cookie is the session's cookie of a request; empty for none.
func (s *sessions) cookie(c *gin.Context) string {
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
func (s *sessions) who(c *gin.Context, cookie string) (who principal, t ticket, err error) {
	ctx := c.Request.Context()
	over := unauthorized(schemeKey, "session_expired", "the session is over; sign in again")
	if c.FullPath() == routeCancel {
		return who, t, request.Errorf(nethttp.StatusForbidden, "session_not_valid_here",
			"a session changes nothing by GET; use POST /v1/jobs/{job_id}/cancel")
	}
	if err := s.sameOrigin(c); err != nil {
		return who, t, err
	}
	t, err = s.seal.open(ctx, cookie)
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
		return principal{
			keyID: t.KeyID, name: b.Name, account: b.Account, role: b.Role, perMinute: s.keys.perMinute, token: true, expires: b.Expires,
		}, t, nil
	}
	who, err = s.keys.again(ctx, t.KeyID, t.Mark)
	if errors.Is(err, rowmill.ErrNotFound) {
		return who, t, over
	}
	who.dialect = ""
	return who, t, err
}

// sameOrigin refuses what a page of another site makes a browser ask for.
func (s *sessions) sameOrigin(c *gin.Context) error {
	if err := s.origins.Check(c.Request); err != nil {
		return request.Errorf(nethttp.StatusForbidden, "cross_origin",
			"the request comes from a page of another site (%v); use the console of this address", err)
	}
	return nil
}

// renew gives a session that is used its full time again, where it has had it a
// while ago.
func (s *sessions) renew(c *gin.Context, who principal, t ticket) {
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
func overTLS(r *nethttp.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// address is where a request comes from, as failures are counted: of IPv6 the
// network, of which whoever has one has all addresses.
func address(r *nethttp.Request) string {
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

// A seal closes tickets, so that nobody but the nodes can read or make one. Its
// keys are those of the configuration, the first of which closes. Among them, or where
// there are none alone, is a value of the store, made by the first node that needs it.
type seal struct {
	values store.Values
	now    func() time.Time
	given  atomic.Pointer[[]cipher.AEAD] // nil among them: the store's

	mu   sync.Mutex
	aead cipher.AEAD // the store's; nil before it was read
	read time.Time   // when it was
}

// sealDocument is the value.
type sealDocument struct {
	Key []byte `json:"key"`
}

func newSeal(values store.Values, now func() time.Time) *seal {
	s := &seal{values: values, now: now}
	s.given.Store(&[]cipher.AEAD{nil})
	return s
}

// use replaces the keys, nil for the store's.
func (s *seal) use(secrets [][]byte) error {
	if len(secrets) == 0 {
		secrets = [][]byte{nil}
	}
	given := make([]cipher.AEAD, len(secrets))
	for i, secret := range secrets {
		if secret == nil {
			continue
		}
		key, err := hkdf.Key(sha256.New, secret, nil, sealPurpose, 32) // AES-256
		if err == nil {
			given[i], err = newAEAD(key)
		}
		if err != nil {
			return fmt.Errorf("derive the key of sessions: %w", err)
		}
	}
	s.given.Store(&given)
	return nil
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func (s *seal) close(ctx context.Context, t ticket) (string, error) {
	aead := (*s.given.Load())[0]
	if aead == nil {
		var err error
		if aead, err = s.recorded(ctx, false); err != nil {
			return "", err
		}
	}
	plain, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, plain, []byte(sealPurpose))), nil
}

// open returns the ticket of a cookie; rowmill.ErrNotFound where it is none that
// a node has made.
func (s *seal) open(ctx context.Context, cookie string) (t ticket, err error) {
	sealed, err := base64.RawURLEncoding.DecodeString(cookie)
	if err != nil {
		return t, rowmill.ErrNotFound
	}
	opens := func(aead cipher.AEAD) bool {
		plain, err := aead.Open(nil, nil, sealed, []byte(sealPurpose))
		return err == nil && json.Unmarshal(plain, &t) == nil
	}
	given := *s.given.Load()
	for _, aead := range given {
		if aead != nil && opens(aead) {
			return t, nil
		}
	}
	if !slices.Contains(given, nil) {
		return t, rowmill.ErrNotFound
	}
	for _, again := range []bool{false, true} {
		aead, err := s.recorded(ctx, again)
		if err != nil {
			return t, err
		}
		if opens(aead) {
			return t, nil
		}
	}
	return t, rowmill.ErrNotFound
}

// recorded is the seal as it was read from the store, or, where it is to be looked
// for again, as it is there now: records that were restored hold another.
func (s *seal) recorded(ctx context.Context, again bool) (cipher.AEAD, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aead != nil && (!again || s.now().Sub(s.read) < sealFresh) {
		return s.aead, nil
	}
	doc, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	aead, err := newAEAD(doc.Key)
	if err != nil {
		return nil, fmt.Errorf("the value %s: %w", sealValue, err)
	}
	s.aead, s.read = aead, s.now()
	return aead, nil
}

// load reads the key, and makes it where there is none.
func (s *seal) load(ctx context.Context) (doc sealDocument, err error) {
	text, _, err := s.values.GetValue(ctx, sealValue)
	if errors.Is(err, rowmill.ErrNotFound) {
		key := make([]byte, 32) // AES-256
		_, _ = rand.Read(key)   // never fails, as documented since Go 1.24
		if text, err = json.Marshal(sealDocument{key}); err != nil {
			return doc, err
		}
		if _, err = s.values.PutValue(ctx, sealValue, text, 0); errors.Is(err, rowmill.ErrConflict) { // another node was first
			text, _, err = s.values.GetValue(ctx, sealValue)
		}
	}
	if err == nil {
		err = json.Unmarshal(text, &doc)
	}
	if err != nil {
		return doc, fmt.Errorf("read the key of sessions: %w", err)
	}
	return doc, nil
}
