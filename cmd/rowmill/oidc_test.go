package main

import (
	"encoding/json"
	nethttp "net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oauth2-proxy/mockoidc"

	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/internal/must"
)

// signedIn returns the ID token that a user gets after signing in at a provider.
func signedIn(t *testing.T, p *mockoidc.MockOIDC, who *mockoidc.MockUser) string {
	t.Helper()
	client := &nethttp.Client{
		Transport:     &nethttp.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*nethttp.Request, []*nethttp.Request) error { return nethttp.ErrUseLastResponse },
	}
	p.QueueUser(who)
	response, err := client.Get(p.AuthorizationEndpoint() + "?" + url.Values{
		"scope": {"openid profile groups"}, "state": {"s"}, "client_id": {p.ClientID}, "response_type": {"code"}, "redirect_uri": {"http://127.0.0.1/back"},
	}.Encode())
	must.Succeed(t, err)
	response.Body.Close()
	back := must.Get(response.Location())(t)
	response, err = client.PostForm(p.TokenEndpoint(), url.Values{
		"client_id": {p.ClientID}, "client_secret": {p.ClientSecret}, "grant_type": {"authorization_code"}, "code": {back.Query().Get("code")},
	})
	must.Succeed(t, err)
	defer response.Body.Close()
	var tokens struct {
		ID string `json:"id_token"`
	}
	if err := json.NewDecoder(response.Body).Decode(&tokens); err != nil || tokens.ID == "" {
		t.Fatalf("status %d, %v", response.StatusCode, err)
	}
	return tokens.ID
}

// Users sign in at a provider and use their ID token as a key, with the client's
// commands and from any program.
func TestOIDC(t *testing.T) {
	t.Parallel()
	p := must.Get(mockoidc.Run())(t)
	t.Cleanup(func() { _ = p.Shutdown() })
	m := start(t, filepath.Join(t.TempDir(), "data"), func(s *settings.Settings) {
		s.OIDC.Issuer, s.OIDC.Audience, s.OIDC.Account = p.Issuer(), p.ClientID, "lab"
		s.OIDC.RoleClaim, s.OIDC.Roles = "groups", map[string]string{"design": "user", "engineering": "admin"}
		must.Succeed(t, s.Validate())
	})
	user := signedIn(t, p, &mockoidc.MockUser{Subject: "1", PreferredUsername: "jane", Groups: []string{"design"}})
	admin := signedIn(t, p, &mockoidc.MockUser{Subject: "2", PreferredUsername: "joe", Groups: []string{"design", "engineering"}})
	nobody := signedIn(t, p, &mockoidc.MockUser{Subject: "3", Groups: []string{"sales"}})

	output := filepath.Join(t.TempDir(), "out.json")
	code, _, said := runCommand(t.Context(), environ(m, user), "one\ntwo\n", "jobs", "submit", "-", "--model", "llama-3.1-8b", "--format", "json", "--output", output)
	if code != 0 || !strings.Contains(said, "succeeded") {
		t.Errorf("a user's job: code %d\n%s", code, said)
	}
	if code, _, said := runCommand(t.Context(), environ(m, user), "", "keys", "list"); code == 0 || !strings.Contains(said, "administrator") {
		t.Errorf("a user lists keys: code %d %s", code, said)
	}
	if code, out, said := runCommand(t.Context(), environ(m, admin), "", "keys", "create", "--name", "program"); code != 0 || !strings.Contains(out+said, "rk_") {
		t.Errorf("an administrator makes a key: code %d %s %s", code, out, said)
	}
	if code, _, said := runCommand(t.Context(), environ(m, nobody), "", "jobs", "list"); code == 0 || !strings.Contains(said, "no role") {
		t.Errorf("who has no role lists jobs: code %d %s", code, said)
	}
	p.FastForward(2 * p.AccessTTL) // tokens signed after this are not valid yet
	if code, _, said := runCommand(t.Context(), environ(m, signedIn(t, p, mockoidc.DefaultUser())), "", "jobs", "list"); code == 0 || !strings.Contains(said, "are the clocks right") {
		t.Errorf("a token of tomorrow: code %d %s", code, said)
	}
	_, page, _ := runCommand(t.Context(), environ(m, m.API.FirstKey), "", "jobs", "list", "-o", "json")
	if strings.Contains(page, "job-") {
		t.Errorf("another account sees the job: %s", page)
	}
}
