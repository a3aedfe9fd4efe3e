// Package caller describes the sender of a request: the account, the role and the dialect
// of the sender's key, and the account for which an administrator acts. Package access
// looks the key up.
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
	"github.com/rowmill/rowmill/internal/textfmt"
)

// DefaultAccount is the account that owns the configured administrator keys and the key
// that the first start creates. Its administrators may act for all accounts.
const DefaultAccount = "default"

// Roles of a key.
const (
	RoleAdmin  = "admin"
	RoleUser   = "user"
	RoleReader = "reader" // reads like a user, and cannot change anything
)

// roles lists all roles, the most powerful first.
var roles = []string{RoleAdmin, RoleUser, RoleReader}

// IsRole reports whether this version of the service knows a role.
func IsRole(role string) bool { return slices.Contains(roles, role) }

// Roles returns all roles, the most powerful first.
func Roles() []string { return slices.Clone(roles) }

// maxAccountName limits the name of an account, in characters.
const maxAccountName = 128

// Principal is the sender of a request.
type Principal struct {
	KeyID       string // empty for the configured administrator key
	Fingerprint string // beginning of the hash of the key's secret; a browser session ends if it changes
	Name        string // name of the key, for people
	Account     string
	Role        string
	Dialect     string // form of answers for the key: sdk.Name, or empty for the API's own form

	// PerMinute is the key's limit of requests per minute; 0: no limit.
	PerMinute int

	// Token is true if the sender uses an issuer's token instead of a key. The token is
	// valid until Expires. KeyID then holds the id of the token's bearer, and no stored
	// key has this id.
	Token   bool
	Expires time.Time
}

// contextPrincipal is the name under which the principal is stored in the request's
// context.
const contextPrincipal = "rowmill.principal"

// StoreIn stores the principal in the request's context, where PrincipalOf finds it.
func (who Principal) StoreIn(c *gin.Context) { c.Set(contextPrincipal, who) }

// PrincipalOf returns the sender of a request. access.Gate must have let the request pass.
func PrincipalOf(c *gin.Context) Principal { return c.MustGet(contextPrincipal).(Principal) }

// ResolveAdminAccount returns the account that an administrator's request is about: the named
// account, or the administrator's own. Only an administrator of the account "default" may
// name another account.
func ResolveAdminAccount(c *gin.Context, named string) (string, error) {
	who := PrincipalOf(c)
	switch {
	case who.Role != RoleAdmin:
		return "", request.Errorf(http.StatusForbidden, "forbidden", "this needs an administrator's key; yours has the role %s", who.Role)
	case hasEmptyAccount(c):
		return "", CheckAccountName("")
	case named == "" || named == who.Account:
		return who.Account, nil
	case who.Account != DefaultAccount:
		return "", request.Errorf(http.StatusForbidden, "forbidden", "only an administrator of the account %s may act for another account", DefaultAccount)
	}
	return named, CheckAccountName(named)
}

// hasEmptyAccount reports whether the query has the parameter account without a value.
func hasEmptyAccount(c *gin.Context) bool {
	named, given := c.GetQuery("account")
	return given && named == ""
}

// CheckAccountName returns an error if a text cannot be the name of an account.
func CheckAccountName(name string) error {
	if n := utf8.RuneCountInString(name); n >= 1 && n <= maxAccountName && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl) {
		return nil
	}
	return rowmill.Invalid("account", "is %q; the name of an account has 1 to %d characters of plain text", textfmt.Shorten(name, 64), maxAccountName)
}

// ReadAdminRequest reads the body of an administrator's request and returns the account that
// the query or the body names. It calls read to read the other fields of the body. It
// refuses a caller who is no administrator before it reads the body.
func ReadAdminRequest(x *exchange.Exchange, c *gin.Context, limit int64, read func(*request.JSONObject)) (account string, err error) {
	if _, err := ResolveAdminAccount(c, ""); err != nil {
		return "", err
	}
	body, err := x.ReadObject(c, limit)
	if err != nil {
		return "", err
	}
	named := c.Query("account")
	var other string
	if body.Read("account", "a string", &other) {
		if named != "" && named != other {
			body.AddProblem("account", "is %q in the body and %q in the query; name one", textfmt.Shorten(other, 64), textfmt.Shorten(named, 64))
		}
		if named = other; named == "" {
			return "", CheckAccountName(named)
		}
	}
	read(&body)
	if err := body.Err(); err != nil {
		return "", err
	}
	return ResolveAdminAccount(c, named)
}

// CheckOperator returns an error if the caller is not an operator. Nodes serve all
// accounts, so only administrators of the account "default" are operators.
func CheckOperator(c *gin.Context) error {
	_, err := ResolveAdminAccount(c, DefaultAccount)
	return err
}

// ResolveReadAccount returns the account that a request reads: the caller's own, unless an
// administrator names another account.
func ResolveReadAccount(c *gin.Context) (string, error) {
	own := PrincipalOf(c).Account
	if named, given := c.GetQuery("account"); given && named != own {
		return ResolveAdminAccount(c, named)
	}
	return own, nil
}

// AllAccounts is the value of the query parameter account that means all accounts.
const AllAccounts = "*"

// ResolveReadAccountOrAll is ResolveReadAccount for lists, with one difference: an operator may
// name AllAccounts, and the result is then "".
func ResolveReadAccountOrAll(c *gin.Context) (string, error) {
	if c.Query("account") == AllAccounts {
		return "", CheckOperator(c)
	}
	return ResolveReadAccount(c)
}

// CheckOwnAccount returns an error if the query names another account than the caller's: the
// request cannot be about another account.
func CheckOwnAccount(c *gin.Context) error {
	named, given := c.GetQuery("account")
	if !given || named == PrincipalOf(c).Account {
		return nil
	}
	if account, err := ResolveReadAccountOrAll(c); err != nil || account == PrincipalOf(c).Account {
		return err
	}
	return request.Errorf(http.StatusForbidden, "forbidden", "this request works only for your own account; for another account use a key of that account")
}

// ResolveAdminAccountOrAll is ResolveAdminAccount for lists, with one difference: if an
// administrator of the account "default" names no account, it returns "", which means all
// accounts.
func ResolveAdminAccountOrAll(c *gin.Context, named string) (string, error) {
	account, err := ResolveAdminAccount(c, named)
	if named == "" && account == DefaultAccount {
		account = ""
	}
	return account, err
}
