package http

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/oidc"
)

// tokens has the known tokens of an issuer.
type tokens map[string]any // an oidc.TokenOwner or an error

func (t tokens) Name() string { return "https://login.example.org" }

func (t tokens) Verify(_ context.Context, token string) (oidc.TokenOwner, error) {
	switch known := t[token].(type) {
	case oidc.TokenOwner:
		return known, nil
	case error:
		return oidc.TokenOwner{}, known
	}
	return oidc.TokenOwner{}, &oidc.RefusedTokenError{Reason: "the token's signature is not valid"}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	issuer := tokens{}
	w, clock := setupClock(t, func(c *Config) { c.Issuer = issuer })
	for token, known := range map[string]any{
		"ey.user.x":   oidc.TokenOwner{ID: "0123456789ab", Name: "jane", Account: "acme", Role: caller.RoleUser, Expires: clock.now().Add(time.Hour)},
		"ey.reader.x": oidc.TokenOwner{ID: "0123456789ac", Name: "joe", Account: "acme", Role: caller.RoleReader, Expires: clock.now().Add(time.Hour)},
		"ey.nobody.x": &oidc.RefusedTokenError{Reason: "the token maps to no role", ValidToken: true},
		"ey.away.x":   errors.New("dial tcp: refused"),
		"ey.nameless.x": oidc.TokenOwner{
			ID: "0123456789ad", Account: strings.Repeat("x", 129), Role: caller.RoleAdmin, Expires: clock.now().Add(time.Hour),
		},
	} {
		issuer[token] = known
	}
	bearer := func(token string) []string { return []string{"Authorization", "Bearer " + token} }

	// A token works wherever a key works, after either word.
	for _, headers := range [][]string{bearer("ey.user.x"), {"Authorization", "Key ey.user.x"}} {
		me := w.get("/v1/me", headers...).want(200).json()
		if me["account"] != "acme" || me["role"] != caller.RoleUser || me["key_id"] != "0123456789ab" || me["key_name"] != "jane" || me["operator"] != false {
			t.Errorf("got %v", me)
		}
	}
	w.get("/v1/files", bearer("ey.user.x")...).want(200)
	w.get("/v1/me", bearer(adminKey)...).wantError(401, "malformed_key", "") // it is not a token
	id := w.do("POST", "/v1/batch-inference", `{"inputs":["a"]}`, bearer("ey.user.x")...).want(200).json()["results"].(string)
	if job := w.get("/v1/jobs/"+id, bearer("ey.reader.x")...).want(200).json()["job"].(map[string]any); job["key_id"] != "0123456789ab" {
		t.Errorf("the job names key %v", job["key_id"])
	}
	w.get("/v1/keys", bearer("ey.user.x")...).wantError(403, "forbidden", "administrator")
	w.do("POST", "/v1/batch-inference", `{"inputs":["a"]}`, bearer("ey.reader.x")...).wantError(403, "forbidden", "reader")

	refused := w.get("/v1/me", bearer("ey.other.x")...)
	refused.wantError(401, "invalid_token", "signature")
	if got := refused.header.Get("WWW-Authenticate"); got != `Bearer error="invalid_token"` {
		t.Errorf("WWW-Authenticate is %q", got)
	}
	w.get("/v1/me", bearer("ey.nobody.x")...).wantError(403, "no_account", "no role")
	w.get("/v1/me", bearer("ey.nameless.x")...).want(400)
	w.get("/v1/me", bearer("ey.away.x")...).wantError(503, "issuer_unavailable", "API keys still work")
	w.get("/v1/files", bearer("rk_00_x")...).want(401)

	// A session ends when its token expires, even if it is in use.
	answer := w.do("POST", "/console/session", `{"key":"ey.user.x"}`, bare...).want(200)
	cookie := answer.cookie()
	if cookie.MaxAge != 60*60 {
		t.Errorf("the cookie lasts %d s", cookie.MaxAge)
	}
	session := append(bare, "Cookie", cookie.Name+"="+cookie.Value)
	clock.pass(59 * time.Minute)
	again := w.get("/v1/me", session...).want(200)
	if me := again.json(); me["account"] != "acme" || me["key_name"] != "jane" {
		t.Errorf("got %v", me)
	}
	renewed := again.cookie()
	clock.pass(2 * time.Minute)
	w.get("/v1/me", session...).wantError(401, "session_expired", "")
	w.get("/v1/me", append(bare, "Cookie", renewed.Name+"="+renewed.Value)...).wantError(401, "session_expired", "")
	w.do("POST", "/console/session", `{"key":"ey.other.x"}`, bare...).wantError(401, "invalid_token", "")
	w.do("POST", "/console/session", `{"key":"ey.nobody.x"}`, bare...).wantError(403, "no_account", "")

	// A server without an issuer treats tokens as unknown keys.
	fresh := w.do("POST", "/console/session", `{"key":"`+adminKey+`"}`, bare...).want(200).cookie()
	plain := setup(t, func(c *Config) { c.Store = w.store })
	plain.get("/v1/me", bearer("ey.user.x")...).wantError(401, "malformed_key", "")
	plain.get("/v1/me", "Authorization", "Key ey.user.x").wantError(401, "unknown_key", "")
	plain.get("/v1/me", append(bare, "Cookie", fresh.Name+"="+fresh.Value)...).want(200)
}
