// Package caller owns who sends a request: the account, the role and the dialect of
// its key, and the account that an administrator acts for. It refuses to know how a
// key is looked up; package access does that.
package caller

import (
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/exchange"
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

// IsRole reports whether a role is known.
func IsRole(role string) bool { return slices.Contains(roles, role) }

// Roles are all roles, from the most that may be done to the least.
func Roles() []string { return slices.Clone(roles) }

// maxAccountName bounds the name of an account.
const maxAccountName = 128

// Principal is who sent a request.
type Principal struct {
	KeyID   string // empty for the configured administrator key
	Mark    string // of the key's secret, by which a session knows it again
	Name    string // of the key
	Account string
	Role    string
	Dialect string // sdk.Name, or empty for the API's own

	// PerMinute bounds the requests of the key; 0 does not.
	PerMinute int

	// Token says that an issuer's token stands for the key, until it expires. keyID is
	// then its bearer's, and in no record.
	Token   bool
	Expires time.Time
}

// contextPrincipal is the name of the value of a request that holds who sent it.
const contextPrincipal = "rowmill.principal"

// Enter notes that the principal sent a request.
func (who Principal) Enter(c *gin.Context) { c.Set(contextPrincipal, who) }

// Of is who sent a request.
func Of(c *gin.Context) Principal { return c.MustGet(contextPrincipal).(Principal) }

// Administered returns the account that a request of an administrator is
// about: its own where none is named, any for one of the account "default".
func Administered(c *gin.Context, named string) (string, error) {
	who := Of(c)
	switch {
	case who.Role != RoleAdmin:
		return "", request.Errorf(http.StatusForbidden, "forbidden", "this needs an administrator's key; yours has the role %s", who.Role)
	case namesNoAccount(c):
		return "", AccountName("")
	case named == "" || named == who.Account:
		return who.Account, nil
	case who.Account != DefaultAccount:
		return "", request.Errorf(http.StatusForbidden, "forbidden", "only an administrator of the account %s may act for another account", DefaultAccount)
	}
	return named, AccountName(named)
}

// namesNoAccount reports whether the query has an account without a name.
func namesNoAccount(c *gin.Context) bool {
	named, given := c.GetQuery("account")
	return given && named == ""
}

// AccountName says what is wrong with the name of an account, if anything.
func AccountName(name string) error {
	if n := utf8.RuneCountInString(name); n >= 1 && n <= maxAccountName && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl) {
		return nil
	}
	return rowmill.Invalid("account", "is %q; the name of an account has 1 to %d characters of plain text", spelling.Shorten(name, 64), maxAccountName)
}

// Administer reads the body of an act of administration, whose fields read
// takes, and returns the account that it concerns: the one that query or body
// name. Those who may change nothing learn nothing of what a body may hold.
func Administer(x *exchange.Exchange, c *gin.Context, limit int64, read func(*request.Object)) (account string, err error) {
	if _, err := Administered(c, ""); err != nil {
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
			return "", AccountName(named)
		}
	}
	read(&body)
	if err := problems.Err(); err != nil {
		return "", err
	}
	return Administered(c, named)
}

// Operates refuses those who may not run the service: nodes serve all
// accounts.
func Operates(c *gin.Context) error {
	_, err := Administered(c, DefaultAccount)
	return err
}

// ReadAccount is the account whose records a request reads: the caller's own
// unless an administrator names another.
func ReadAccount(c *gin.Context) (string, error) {
	own := Of(c).Account
	if named, given := c.GetQuery("account"); given && named != own {
		return Administered(c, named)
	}
	return own, nil
}

// AdministeredOrAll is administered, but where none is named, an administrator
// of the account "default" asks about all accounts at once: the empty one.
func AdministeredOrAll(c *gin.Context, named string) (string, error) {
	account, err := Administered(c, named)
	if named == "" && account == DefaultAccount {
		account = ""
	}
	return account, err
}
