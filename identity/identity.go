// Package identity says who the bearer of a token is: one that an issuer of OpenID
// Connect has signed for this service, as a JWT. It reads the issuer's keys, and maps
// claims to accounts and roles. What an account or a role may do it does not know.
package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Config says whose tokens are taken, and what they stand for.
type Config struct {
	// Issuer is the issuer's URL, as tokens name it; its keys are found below it by
	// /.well-known/openid-configuration. Required.
	Issuer string
	// Audience is what tokens have to be for. Required: without it a token for any
	// other service of the issuer would be one for this.
	Audience string

	// Account is whom bearers act for where AccountClaim is empty or a token lacks it;
	// empty: such a token is refused. AccountClaim names the claim that says so
	// otherwise, a string or a list; dots lead into objects. Accounts maps its values;
	// empty: they are accounts.
	Account      string
	AccountClaim string
	Accounts     map[string]string

	// Role, RoleClaim and Roles are the same for roles, of which the highest is the
	// bearer's. Without Roles no value of the claim means anything.
	Role      string
	RoleClaim string
	Roles     map[string]string
	// Ranks are all roles, the highest first.
	Ranks []string

	// ClockTolerance is how far the issuer's clock may be from Now. Default: 0.
	ClockTolerance time.Duration
	// KeysInterval is for how long the issuer's keys are believed. Default: 1h.
	KeysInterval time.Duration

	// Client asks the issuer. Default: one of its own, with a timeout of 5 s.
	Client *http.Client
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Logger gets what an operator should know. Default: discarded.
	Logger *slog.Logger
}

// A Refusal says why a token is not good, in words for whoever sent it.
type Refusal struct {
	Reason string
	// Known says that the token is good, and its bearer has no business here.
	Known bool
}

func (r *Refusal) Error() string { return r.Reason }

// A Bearer is who shows a token.
type Bearer struct {
	ID      string // of issuer and subject, twelve hexadecimal digits; the same for ever
	Name    string // for people: the preferred user name, the mail address or the subject
	Account string
	Role    string
	Expires time.Time // of the token
}

// Issuer verifies tokens. It asks for nothing before the first.
type Issuer struct {
	cfg  Config
	keys *keys
}

// New prepares an Issuer.
func New(cfg Config) *Issuer {
	if cfg.KeysInterval <= 0 {
		cfg.KeysInterval = time.Hour
	}
	if cfg.Client == nil {
		cfg.Client = &http.Client{Timeout: fetchTimeout}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Issuer{cfg: cfg, keys: &keys{cfg: cfg}}
}

// Name is the issuer's URL.
func (i *Issuer) Name() string { return i.cfg.Issuer }

// Looks reports whether a text has the form of a token: three parts of base64 apart by
// dots.
func Looks(text string) bool {
	return strings.Count(text, ".") == 2 && strings.HasPrefix(text, "ey")
}

// algorithms are those by which only the issuer can sign.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// Verify returns who shows a token. The error is a *Refusal where the token is not good,
// and otherwise says that the issuer's keys cannot be had.
func (i *Issuer) Verify(ctx context.Context, token string) (Bearer, error) {
	refuse := func(format string, args ...any) (Bearer, error) {
		return Bearer{}, &Refusal{Reason: fmt.Sprintf(format, args...)}
	}
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil {
		return refuse("the token is no JWT that is signed by RS, PS, ES or EdDSA")
	}
	var claims jwt.Claims
	var rest map[string]any
	// Before the signature is looked at: whoever comes with a token of another issuer
	// makes nobody ask for keys.
	if err := parsed.UnsafeClaimsWithoutVerification(&claims); err != nil {
		return refuse("the token's claims cannot be read")
	}
	if claims.Issuer != i.cfg.Issuer {
		return refuse("the token is of another issuer than %s", i.cfg.Issuer)
	}
	key, err := i.keys.find(ctx, parsed.Headers[0].KeyID)
	if err != nil {
		return Bearer{}, err
	}
	if err := parsed.Claims(key, &claims, &rest); err != nil {
		return refuse("the token's signature is not that of %s", i.cfg.Issuer)
	}
	err = claims.ValidateWithLeeway(jwt.Expected{Issuer: i.cfg.Issuer, AnyAudience: jwt.Audience{i.cfg.Audience}, Time: i.cfg.Now()}, i.cfg.ClockTolerance)
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return refuse("the token expired at %s; get another one", claims.Expiry.Time().UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrNotValidYet):
		return refuse("the token is valid from %s on; are the clocks right?", claims.NotBefore.Time().UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrIssuedInTheFuture):
		return refuse("the token was issued at %s, which is yet to come; are the clocks right?", claims.IssuedAt.Time().UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrInvalidAudience):
		return refuse("the token is for another audience than %s", i.cfg.Audience)
	case err != nil:
		return refuse("the token is not valid: %v", err)
	case claims.Expiry == nil:
		return refuse("the token does not expire; such tokens are not taken")
	case claims.Subject == "":
		return refuse("the token has no subject")
	}
	return i.bearer(claims, rest)
}

// bearer maps what a token that is good says.
func (i *Issuer) bearer(claims jwt.Claims, rest map[string]any) (Bearer, error) {
	sum := sha256.Sum256([]byte(i.cfg.Issuer + "\n" + claims.Subject))
	b := Bearer{ID: hex.EncodeToString(sum[:6]), Name: claims.Subject, Expires: claims.Expiry.Time()}
	for _, claim := range []string{"email", "preferred_username"} {
		if name, ok := rest[claim].(string); ok && name != "" {
			b.Name = name
		}
	}
	unknown := func(format string, args ...any) (Bearer, error) {
		return Bearer{}, &Refusal{Reason: fmt.Sprintf(format, args...), Known: true}
	}
	accounts := mapped(rest, i.cfg.AccountClaim, i.cfg.Accounts, len(i.cfg.Accounts) == 0)
	switch {
	case len(accounts) > 1:
		return unknown("the token's claim %s stands for several accounts", i.cfg.AccountClaim)
	case len(accounts) == 1:
		b.Account = accounts[0]
	default:
		b.Account = i.cfg.Account
	}
	if b.Account == "" {
		return unknown("the token stands for no account: its claim %s has no value that is known here", i.cfg.AccountClaim)
	}
	roles := mapped(rest, i.cfg.RoleClaim, i.cfg.Roles, false)
	b.Role = i.cfg.Role
	for _, role := range i.cfg.Ranks {
		if slices.Contains(roles, role) {
			b.Role = role
			break
		}
	}
	if b.Role == "" {
		return unknown("the token stands for no role: its claim %s has no value that is known here", i.cfg.RoleClaim)
	}
	return b, nil
}

// mapped are the different names that the values of a claim stand for. asIs takes them
// for the names themselves.
func mapped(claims map[string]any, claim string, names map[string]string, asIs bool) (out []string) {
	if claim == "" {
		return nil
	}
	for _, value := range values(claims, claim) {
		name, known := names[value]
		if asIs {
			name, known = value, value != ""
		}
		if known && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// values are those of a claim, which may be one string or a list. A claim of the whole
// name goes before one in an object.
func values(claims map[string]any, name string) (out []string) {
	value, found := claims[name]
	if !found {
		first, rest, nested := strings.Cut(name, ".")
		if inner, ok := claims[first].(map[string]any); nested && ok {
			return values(inner, rest)
		}
		return nil
	}
	switch value := value.(type) {
	case string:
		return []string{value}
	case []any:
		for _, v := range value {
			if text, ok := v.(string); ok {
				out = append(out, text)
			}
		}
	}
	return out
}
