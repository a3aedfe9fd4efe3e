package oidc

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"

	"github.com/rowmill/rowmill/internal/must"
)

// provider starts an OpenID Connect provider, and counts the reads of its keys.
func provider(t *testing.T) (p *mockoidc.MockOIDC, reads *atomic.Int64) {
	t.Helper()
	key, err := mockoidc.RandomKeypair(2048)
	must.Succeed(t, err)
	if p, err = mockoidc.NewServer(key.PrivateKey); err != nil {
		t.Fatal(err)
	}
	reads = &atomic.Int64{}
	must.Succeed(t, p.AddMiddleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == mockoidc.JWKSEndpoint {
				reads.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	must.Succeed(t, p.Start(listener, nil))
	t.Cleanup(func() { _ = p.Shutdown() })
	return p, reads
}

func sign(t *testing.T, key *mockoidc.Keypair, claims jwt.MapClaims) string {
	t.Helper()
	text, err := key.SignJWT(claims)
	must.Succeed(t, err)
	return text
}

func TestVerify(t *testing.T) {
	t.Parallel()
	p, _ := provider(t)
	now := time.Now()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	issuer := New(Config{
		Issuer: p.Issuer(), Audience: "mill", Client: client, Now: func() time.Time { return now }, ClockTolerance: 30 * time.Second,
		AccountClaim: "team", Accounts: map[string]string{"science": "research", "labs": "research", "ops": "default"},
		RoleClaim: "realm_access.roles", Roles: map[string]string{"mill.admins": "admin", "mill.users": "user"}, Ranks: []string{"admin", "user", "reader"}, Role: "reader",
	})
	good := func(change func(c jwt.MapClaims)) jwt.MapClaims {
		c := jwt.MapClaims{
			"iss": p.Issuer(), "aud": []string{"other", "mill"}, "sub": "42", "exp": now.Add(time.Minute).Unix(), "iat": now.Unix(), "email": "jane@example.com",
			"team": "science", "realm_access": map[string]any{"roles": []any{"x", "mill.users", "mill.admins"}},
		}
		change(c)
		return c
	}
	none := func(jwt.MapClaims) {}
	b, err := issuer.Verify(t.Context(), sign(t, p.Keypair, good(none)))
	if err != nil || b.Account != "research" || b.Role != "admin" || b.Name != "jane@example.com" || len(b.ID) != 12 || b.Expires.Unix() != now.Add(time.Minute).Unix() {
		t.Fatalf("got %+v, %v", b, err)
	}
	set := func(name string, value any) func(jwt.MapClaims) { return func(c jwt.MapClaims) { c[name] = value } }
	for _, test := range []struct {
		name   string
		change func(jwt.MapClaims)
		want   string // empty: the token is accepted
		valid  bool
	}{
		{"expired a moment ago", set("exp", now.Add(-20*time.Second).Unix()), "", false},
		{"expired", set("exp", now.Add(-time.Minute).Unix()), "the token expired at", false},
		{"never expires", func(c jwt.MapClaims) { delete(c, "exp") }, "does not expire", false},
		{"not valid yet", set("nbf", now.Add(time.Minute).Unix()), "are the clocks right", false},
		{"a clock that is a little ahead", set("iat", now.Add(20*time.Second).Unix()), "", false},
		{"another audience", set("aud", "other"), "another audience than mill", false},
		{"no audience", func(c jwt.MapClaims) { delete(c, "aud") }, "another audience", false},
		{"another issuer", set("iss", p.Issuer()+"x"), "another issuer", false},
		{"no subject", set("sub", ""), "no subject", false},
		{"two teams of one account", set("team", []any{"science", "labs"}), "", false},
		{"two accounts", set("team", []any{"science", "ops"}), "several accounts", true},
		{"a team that is not known", set("team", "sales"), "maps to no account", true},
		{"an account that is not in the map", set("team", "research"), "maps to no account", true},
		{"no role of the map", set("realm_access", map[string]any{}), "", false},
	} {
		_, err := issuer.Verify(t.Context(), sign(t, p.Keypair, good(test.change)))
		var refused *RefusedTokenError
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.want != "" && (!errors.As(err, &refused) || !strings.Contains(refused.Reason, test.want) || refused.ValidToken != test.valid):
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}

	stranger, err := mockoidc.RandomKeypair(2048)
	must.Succeed(t, err)
	stranger.Kid = p.Keypair.Kid // pretend to be the issuer
	parts := strings.Split(sign(t, p.Keypair, good(none)), ".")
	for name, token := range map[string]string{
		"another's signature": sign(t, stranger, good(none)),
		"no algorithm":        "eyJhbGciOiJub25lIn0." + parts[1] + ".",
		"a secret's":          "eyJhbGciOiJIUzI1NiJ9." + parts[1] + "." + parts[2],
		"another's claims":    parts[0] + "." + strings.Split(sign(t, p.Keypair, good(set("team", "ops"))), ".")[1] + "." + parts[2],
		"no JWT":              "ey.x.y",
	} {
		var refused *RefusedTokenError
		if _, err := issuer.Verify(t.Context(), token); !errors.As(err, &refused) || refused.ValidToken {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Keys are read once, and again when they are old or a token names an unknown key, at
// most every ten seconds. They stay in use while the issuer is down.
func TestKeys(t *testing.T) {
	t.Parallel()
	p, keyReads := provider(t)
	var clock atomic.Int64
	clock.Store(time.Now().Unix())
	now := func() time.Time { return time.Unix(clock.Load(), 0) }
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	issuer := New(Config{Issuer: p.Issuer(), Audience: "mill", Client: client, Now: now, Account: "a", Role: "user", Ranks: []string{"user"}, KeysInterval: time.Hour})
	token := func() string {
		return sign(t, p.Keypair, jwt.MapClaims{"iss": p.Issuer(), "aud": "mill", "sub": "1", "exp": now().Add(time.Minute).Unix()})
	}
	verify := func(what string, reads int64, want string) {
		t.Helper()
		_, err := issuer.Verify(context.Background(), token())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
		if got := keyReads.Load(); got != reads {
			t.Errorf("%s: the keys were read %d times, want %d", what, got, reads)
		}
	}
	verify("the first token", 1, "")
	verify("the second", 1, "")
	next, err := mockoidc.RandomKeypair(2048)
	must.Succeed(t, err)
	former := p.Keypair
	p.Keypair = next
	verify("a new key at once", 1, "does not publish")
	clock.Add(10)
	verify("a new key", 2, "")
	p.Keypair = &mockoidc.Keypair{PrivateKey: former.PrivateKey, PublicKey: former.PublicKey, Kid: "made up"}
	verify("a key that was made up", 2, "does not publish")
	p.Keypair = next
	clock.Add(3600)
	verify("keys that are old", 3, "")
	clock.Add(3600)
	must.Succeed(t, p.Shutdown())
	verify("an issuer that is down", 3, "")

	unreachable := New(Config{Issuer: p.Issuer(), Audience: "mill", Client: client, Now: now, Account: "a", Role: "user"})
	var refused *RefusedTokenError
	if _, err := unreachable.Verify(t.Context(), token()); err == nil || errors.As(err, &refused) {
		t.Errorf("an issuer that was never there: %v", err)
	}
}
