// Package oidc verifies the tokens of an OpenID Connect issuer: JWTs that the
// issuer has signed for this service. It reads the issuer's keys, and maps claims to
// accounts and roles. It does not know the rights of accounts and roles.
package oidc

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

// Config names the accepted issuer and maps claims to accounts and roles.
type Config struct {
	// Issuer is the issuer's URL, as in the claim iss. Its keys are found through
	// /.well-known/openid-configuration below the URL. Required.
	Issuer string
	// Audience must be in the claim aud of a token. Required: otherwise a token for any
	// other service of the issuer would be accepted.
	Audience string

	// AccountClaim names the claim with the account: a string or a list of strings. A dot
	// in the name leads into an object: "a.b" is the member b of the claim a. Accounts
	// maps the claim's values to accounts; if Accounts is empty, the values are the names
	// of accounts. Account is used if AccountClaim is empty or no value is mapped; if
	// Account is empty too, the token is refused.
	Account      string
	AccountClaim string
	Accounts     map[string]string

	// Role, RoleClaim and Roles select the role in the same way as the fields above select
	// the account. If several values are mapped, the highest role wins. If Roles is empty,
	// no value is mapped.
	Role      string
	RoleClaim string
	Roles     map[string]string
	// Ranks lists all roles, the highest first.
	Ranks []string

	// ClockTolerance is the accepted difference between the issuer's clock and Now.
	// Default: 0.
	ClockTolerance time.Duration
	// KeysInterval is how long the issuer's keys are used before the next read.
	// Default: 1h.
	KeysInterval time.Duration

	// Client sends requests to the issuer. Default: a client with a timeout of 5 s.
	Client *http.Client
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Logger logs problems with the issuer. Default: discarded.
	Logger *slog.Logger
}

// A RefusedTokenError is the error for a refused token. Reason is written for the client.
type RefusedTokenError struct {
	Reason string
	// ValidToken means that the token is valid, but that its claims do not select one
	// account and a role here.
	ValidToken bool
}

func (r *RefusedTokenError) Error() string { return r.Reason }

// A TokenOwner is the owner of a valid token.
type TokenOwner struct {
	ID      string // hash of issuer and subject, twelve hexadecimal digits; never changes
	Name    string // for display: the preferred user name, the mail address or the subject
	Account string
	Role    string
	Expires time.Time // when the token expires
}

// A Verifier verifies the tokens of an OpenID Connect issuer. It sends its first request
// when it verifies the first token.
type Verifier struct {
	cfg  Config
	keys *keyCache
}

// New returns a Verifier. New sends no request.
func New(cfg Config) *Verifier {
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
	return &Verifier{cfg: cfg, keys: &keyCache{cfg: cfg}}
}

// Name returns the issuer's URL.
func (i *Verifier) Name() string { return i.cfg.Issuer }

// LooksLikeToken reports whether a text looks like a token: three parts with dots
// between, and the beginning of a JSON object in base64. It checks neither the rest of
// the text nor the signature.
func LooksLikeToken(text string) bool {
	return strings.Count(text, ".") == 2 && strings.HasPrefix(text, "ey")
}

// algorithms lists the accepted signature algorithms. All are asymmetric, so only the
// issuer has the key that can sign.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// Verify checks a token and returns its bearer. The error is a *RefusedTokenError if the
// token is refused; any other error means that the issuer's keys cannot be read.
func (i *Verifier) Verify(ctx context.Context, token string) (TokenOwner, error) {
	refuse := func(format string, args ...any) (TokenOwner, error) {
		return TokenOwner{}, &RefusedTokenError{Reason: fmt.Sprintf(format, args...)}
	}
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil {
		return refuse("the token is not a JWT signed with RS, PS, ES or EdDSA; get one from the issuer")
	}
	var claims jwt.Claims
	var rest map[string]any
	// Check the issuer before the signature, so that a token of another issuer causes
	// no request for keys.
	if err := parsed.UnsafeClaimsWithoutVerification(&claims); err != nil {
		return refuse("the token's claims cannot be read")
	}
	if claims.Issuer != i.cfg.Issuer {
		return refuse("the token comes from another issuer than %s", i.cfg.Issuer)
	}
	key, err := i.keys.findKey(ctx, parsed.Headers[0].KeyID)
	if err != nil {
		return TokenOwner{}, err
	}
	if err := parsed.Claims(key, &claims, &rest); err != nil {
		return refuse("the token is not signed by %s", i.cfg.Issuer)
	}
	err = claims.ValidateWithLeeway(jwt.Expected{Issuer: i.cfg.Issuer, AnyAudience: jwt.Audience{i.cfg.Audience}, Time: i.cfg.Now()}, i.cfg.ClockTolerance)
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return refuse("the token expired at %s; get another one", claims.Expiry.Time().UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrNotValidYet):
		return refuse("the token is valid from %s on; are the clocks right?", claims.NotBefore.Time().UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrIssuedInTheFuture):
		return refuse("the token was issued at %s, which is in the future; are the clocks right?", claims.IssuedAt.Time().UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrInvalidAudience):
		return refuse("the token is for another audience than %s", i.cfg.Audience)
	case err != nil:
		return refuse("the token is not valid: %v", err)
	case claims.Expiry == nil:
		return refuse("the token does not expire; only tokens with an expiry are accepted")
	case claims.Subject == "":
		return refuse("the token has no subject")
	}
	return i.mapClaims(claims, rest)
}

// mapClaims returns the owner of a valid token: it maps the claims to an account and a role.
func (i *Verifier) mapClaims(claims jwt.Claims, rest map[string]any) (TokenOwner, error) {
	sum := sha256.Sum256([]byte(i.cfg.Issuer + "\n" + claims.Subject))
	b := TokenOwner{ID: hex.EncodeToString(sum[:6]), Name: claims.Subject, Expires: claims.Expiry.Time()}
	for _, claim := range []string{"email", "preferred_username"} {
		if name, ok := rest[claim].(string); ok && name != "" {
			b.Name = name
		}
	}
	unknown := func(format string, args ...any) (TokenOwner, error) {
		return TokenOwner{}, &RefusedTokenError{Reason: fmt.Sprintf(format, args...), ValidToken: true}
	}
	accounts := mapClaimValues(rest, i.cfg.AccountClaim, i.cfg.Accounts, len(i.cfg.Accounts) == 0)
	switch {
	case len(accounts) > 1:
		return unknown("the token's claim %s maps to several accounts", i.cfg.AccountClaim)
	case len(accounts) == 1:
		b.Account = accounts[0]
	default:
		b.Account = i.cfg.Account
	}
	if b.Account == "" {
		return unknown("the token maps to no account: its claim %s has no value that is configured here", i.cfg.AccountClaim)
	}
	roles := mapClaimValues(rest, i.cfg.RoleClaim, i.cfg.Roles, false)
	b.Role = i.cfg.Role
	for _, role := range i.cfg.Ranks {
		if slices.Contains(roles, role) {
			b.Role = role
			break
		}
	}
	if b.Role == "" {
		return unknown("the token maps to no role: its claim %s has no value that is configured here", i.cfg.RoleClaim)
	}
	return b, nil
}

// mapClaimValues returns the account or role names for the values of a claim, without
// duplicates. The map names has the name for each value. If asIs is true, the values
// themselves are the names.
func mapClaimValues(claims map[string]any, claim string, names map[string]string, asIs bool) (out []string) {
	if claim == "" {
		return nil
	}
	for _, value := range claimValues(claims, claim) {
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

// claimValues returns the values of a claim: one string or a list of strings. A claim with
// the full dotted name takes precedence over a nested one.
func claimValues(claims map[string]any, name string) (out []string) {
	value, found := claims[name]
	if !found {
		first, rest, nested := strings.Cut(name, ".")
		if inner, ok := claims[first].(map[string]any); nested && ok {
			return claimValues(inner, rest)
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
