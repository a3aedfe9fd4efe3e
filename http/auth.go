package http

import (
	"errors"
	"fmt"
	nethttp "net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/identity"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/spelling"
)

// DefaultAccount owns the administrator key of the configuration and the key
// of the first start.
const DefaultAccount = "default"

// The roles of a key.
const (
	RoleAdmin  = "admin"
	RoleUser   = "user"
	RoleReader = "reader" // looks at all that users see, and changes nothing
)

// roles are all of them, from the most that may be done to the least.
var roles = []string{RoleAdmin, RoleUser, RoleReader}

// Roles are all roles, from the most that may be done to the least.
func Roles() []string { return slices.Clone(roles) }

// routeCancel is the one GET that changes something: clients of the interface
// cancel by it.
const routeCancel = "/v1/job-cancel/:job_id"

// changes reports whether a request may change something.
func changes(c *gin.Context) bool {
	switch c.Request.Method {
	case nethttp.MethodGet, nethttp.MethodHead:
		return c.FullPath() == routeCancel
	}
	return true
}

// maxAccountName bounds the name of an account.
const maxAccountName = 128

// The names of values of a request.
const (
	contextPrincipal = "rowmill.principal"
	contextSession   = "rowmill.session" // a ticket, where a session stands for the key
)

// principal is who sent a request.
type principal struct {
	keyID   string // empty for the configured administrator key
	mark    string // of the key's secret, by which a session knows it again
	name    string // of the key
	account string
	role    string
	dialect string // sdk.Name, or empty for the API's own

	// perMinute bounds the requests of the key; 0 does not.
	perMinute int

	// token says that an issuer's token stands for the key, until it expires. keyID is
	// then its bearer's, and in no record.
	token   bool
	expires time.Time
}

func caller(c *gin.Context) principal { return c.MustGet(contextPrincipal).(principal) }

// administered returns the account that a request of an administrator is
// about: its own where none is named, any for one of the account "default".
func administered(c *gin.Context, named string) (string, error) {
	who := caller(c)
	switch {
	case who.role != RoleAdmin:
		return "", request.Errorf(nethttp.StatusForbidden, "forbidden", "this needs an administrator's key; yours has the role %s", who.role)
	case namesNoAccount(c):
		return "", accountName("")
	case named == "" || named == who.account:
		return who.account, nil
	case who.account != DefaultAccount:
		return "", request.Errorf(nethttp.StatusForbidden, "forbidden", "only an administrator of the account %s may act for another account", DefaultAccount)
	}
	return named, accountName(named)
}

// namesNoAccount reports whether the query has an account without a name.
func namesNoAccount(c *gin.Context) bool {
	named, given := c.GetQuery("account")
	return given && named == ""
}

// accountName says what is wrong with the name of an account, if anything.
func accountName(name string) error {
	if n := utf8.RuneCountInString(name); n >= 1 && n <= maxAccountName && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl) {
		return nil
	}
	return rowmill.Invalid("account", "is %q; the name of an account has 1 to %d characters of plain text", spelling.Shorten(name, 64), maxAccountName)
}

// administer reads the body of an act of administration, whose fields read
// takes, and returns the account that it concerns: the one that query or body
// name. Those who may change nothing learn nothing of what a body may hold.
func administer(x *exchange.Exchange, c *gin.Context, limit int64, read func(*request.Object)) (account string, err error) {
	if _, err := administered(c, ""); err != nil {
		return "", err
	}
	var problems request.Problems
	body, err := x.ReadObject(c, limit, &problems)
	if err != nil {
		return "", err
	}
	named := c.Query("account")
	var other string
	if body.Read("account", "a string", &other) {
		if named != "" && named != other {
			body.Add("account", "is %q in the body and %q in the query; name one", spelling.Shorten(other, 64), spelling.Shorten(named, 64))
		}
		if named = other; named == "" {
			return "", accountName(named)
		}
	}
	read(&body)
	if err := problems.Err(); err != nil {
		return "", err
	}
	return administered(c, named)
}

// operates refuses those who may not run the service: nodes serve all
// accounts.
func operates(c *gin.Context) error {
	_, err := administered(c, DefaultAccount)
	return err
}

// readAccount is the account whose records a request reads: the caller's own
// unless an administrator names another.
func readAccount(c *gin.Context) (string, error) {
	own := caller(c).account
	if named, given := c.GetQuery("account"); given && named != own {
		return administered(c, named)
	}
	return own, nil
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

// A gate lets requests with a known key pass, as often as the key may ask.
type gate struct {
	*exchange.Exchange
	keys   *keyring
	limits *limiter
	// schemes are the words before a key, the first of which is asked for.
	schemes []string
	// header is another in which a key may stand alone; empty for none.
	header string
	// sessions are taken in place of keys; nil for none.
	sessions *sessions
}

// speaking is the gate for those who show their keys otherwise: alone in a header,
// or behind a word, and have no sessions.
func (g *gate) speaking(header string, schemes ...string) *gate {
	return &gate{Exchange: g.Exchange, keys: g.keys, limits: g.limits, schemes: schemes, header: header}
}

// taking is the gate that takes sessions too: a page needs models and files.
func (g *gate) taking(s *sessions) *gate {
	g.sessions = s
	return g
}

// pass is the middleware.
func (g *gate) pass(c *gin.Context) {
	who, session, err := g.who(c)
	if err == nil {
		if wait := g.limits.take(who); wait > 0 {
			err = tooMany(who.perMinute, wait)
		}
	}
	if err != nil {
		g.Fail(c, err)
		return
	}
	if who.role == RoleReader && changes(c) {
		g.Fail(c, request.Errorf(nethttp.StatusForbidden, "forbidden",
			"a key of the role %s may look and change nothing; use one of the role %s or %s", RoleReader, RoleUser, RoleAdmin))
		return
	}
	c.Set(contextPrincipal, who)
	if session != nil {
		c.Set(contextSession, *session)
		g.sessions.renew(c, who, *session)
	}
	if who.token {
		return
	}
	if err := g.keys.used(c.Request.Context(), who.keyID); err != nil {
		g.Logger.Warn("recording the use of a key failed", exchange.KeyRequest, exchange.RequestID(c), exchange.KeyErr, err)
	}
}

// The words before a key, and before a token, in the header Authorization.
const (
	schemeKey   = "Key"
	schemeToken = "Bearer"
)

// apiKey is the key that a request was sent with.
func (g *gate) apiKey(c *gin.Context) (string, error) {
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
		strings.EqualFold(schemeToken, scheme) && g.keys.issuer != nil && identity.LooksLikeToken(key)
	if !found || !known || key == "" || strings.TrimSpace(key) != key {
		return "", unauthorized(schemes[0], "malformed_key", "the Authorization header must be the word "+schemes[0]+", one space and your API key")
	}
	return key, nil
}

// session is the cookie of a session that a request was sent with in place of
// a key; empty for none.
func (g *gate) session(c *gin.Context) string {
	if g.sessions == nil || len(c.Request.Header.Values("Authorization")) > 0 || g.header != "" && c.GetHeader(g.header) != "" {
		return ""
	}
	return g.sessions.cookie(c)
}

// who is who sent a request, with a key or by a session.
func (g *gate) who(c *gin.Context) (who principal, session *ticket, err error) {
	if cookie := g.session(c); cookie != "" {
		who, t, err := g.sessions.who(c, cookie)
		return who, &t, err
	}
	key, err := g.apiKey(c)
	if err != nil {
		return who, nil, err
	}
	who, err = g.keys.find(c.Request.Context(), key)
	if errors.Is(err, rowmill.ErrNotFound) {
		return who, nil, unauthorized(g.schemes[0], "unknown_key", "this API key is unknown, revoked or expired")
	}
	if refused := (*request.Error)(nil); errors.As(err, &refused) {
		return who, nil, refused
	}
	if err != nil {
		return who, nil, fmt.Errorf("look up the API key: %w", err)
	}
	return who, nil, nil
}

func unauthorized(scheme, code, message string) error {
	e := request.Errorf(nethttp.StatusUnauthorized, code, "%s", message)
	e.Header = map[string]string{"WWW-Authenticate": scheme}
	return e
}
