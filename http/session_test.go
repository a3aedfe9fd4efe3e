package http

import (
	"bytes"
	nethttp "net/http"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/internal/must"
)

// Documented limits of sessions: how long a session lasts, and how many unknown keys an
// address may send per minute.
const (
	sessionLasts = 12 * time.Hour
	mostFailures = 10
)

// signIn starts a session with a key and returns the header with its cookie.
func (w *world) signIn(key string, headers ...string) []string {
	w.Helper()
	answer := w.do("POST", "/console/session", `{"key":"`+key+`"}`, append([]string{"Authorization", ""}, headers...)...).want(200)
	return append(bare, "Cookie", answer.cookie().Name+"="+answer.cookie().Value)
}

// cookie returns the only cookie that an answer sets.
func (a *answered) cookie() *nethttp.Cookie {
	a.Helper()
	cookies := (&nethttp.Response{Header: a.header}).Cookies()
	if len(cookies) != 1 {
		a.Fatalf("cookies %v", cookies)
	}
	return cookies[0]
}

func setupClock(t testing.TB, change ...func(*Config)) (*world, *clock) {
	t.Helper()
	c := &clock{at: time.Now()}
	return setup(t, append(change, func(config *Config) { config.Now = c.now })...), c
}

func TestSession_ActsForAKey(t *testing.T) {
	t.Parallel()
	w := setup(t)
	k := w.newKey(`{"account":"acme","role":"user","dialect":"sdk"}`)
	answer := w.do("POST", "/console/session", `{"key":"`+k.text+`"}`, bare...).want(200)
	if body := answer.json(); body["account"] != "acme" || body["role"] != "user" {
		t.Errorf("got %v", body)
	}
	cookie := answer.cookie()
	if cookie.Name != "rowmill_session" || !cookie.HttpOnly || cookie.Secure || cookie.SameSite != nethttp.SameSiteStrictMode || cookie.Path != "/" || cookie.MaxAge != 12*60*60 {
		t.Errorf("cookie %v", cookie)
	}
	session := append(bare, "Cookie", cookie.Name+"="+cookie.Value)
	if me := w.get("/v1/me", session...).want(200).json(); me["account"] != "acme" || me["key_id"] != k.id {
		t.Errorf("got %v", me)
	}
	id := w.submitted(`{"inputs":["a"],"model":"llama-3.1-8b"}`, session...)
	if status := w.get("/v1/jobs/"+id, session...).want(200).json()["job"].(map[string]any)["status"]; status != "pending" { // not in the dialect of the key
		t.Errorf("status %v", status)
	}
	w.get("/v1/models", session...).want(200)
	w.get("/v1/files", session...).want(200)
	w.get("/v1/messages/batches", session...).want(401)
	w.get("/v1/keys", session...).wantError(403, "forbidden", "administrator")
	w.get("/v1/job-cancel/"+id, session...).wantError(403, "session_not_valid_here", "POST")
	w.do("POST", "/v1/jobs/"+id+"/cancel", "", session...).want(200)

	// A key in the header has precedence over the cookie, whether it is valid or not.
	if me := w.get("/v1/me", "Cookie", session[3]).want(200).json(); me["account"] != caller.DefaultAccount {
		t.Errorf("got %v", me)
	}
	w.get("/v1/me", "Cookie", session[3], "Authorization", "Key rk_00_x").wantError(401, "unknown_key", "")
	w.get("/v1/job-cancel/"+id, "Cookie", session[3]).want(404)

	for _, text := range []string{k.text, k.id, "acme"} {
		if strings.Contains(cookie.Value, text) {
			t.Errorf("the cookie holds %s", text)
		}
	}
}

func TestSession_Ends(t *testing.T) {
	t.Parallel()
	w, clock := setupClock(t)
	revoked, rotated, idle := w.newKey(`{}`), w.newKey(`{}`), w.newKey(`{}`)
	one, two, three := w.signIn(revoked.text), w.signIn(rotated.text), w.signIn(idle.text)
	configured := w.signIn(adminKey)
	w.do("DELETE", "/v1/keys/"+revoked.id, "").want(200)
	w.do("POST", "/v1/keys/"+rotated.id+"/rotate", "").want(200)
	for _, session := range [][]string{one, two} {
		w.get("/v1/me", session...).wantError(401, "session_expired", "sign in")
	}
	w.get("/v1/me", three...).want(200)
	w.get("/v1/keys", configured...).want(200)
	clock.pass(sessionLasts)
	w.get("/v1/me", three...).wantError(401, "session_expired", "sign in")
	for _, value := range []string{"x", "", "AAAA", strings.Repeat("A", 200)} {
		w.get("/v1/me", append(bare, "Cookie", "rowmill_session="+value)...).want(401)
	}
	if cookie := w.do("DELETE", "/console/session", "", bare...).want(200).cookie(); cookie.MaxAge >= 0 || cookie.Value != "" {
		t.Errorf("cookie %v", cookie)
	}
}

// The cookie of a configured key stops working when the key is replaced or removed.
func TestSession_OfAnotherConfiguredKey(t *testing.T) {
	t.Parallel()
	w := setup(t)
	session := w.signIn(adminKey)
	for _, keys := range [][]string{{"another"}, nil} {
		other := setup(t, func(c *Config) { c.Store, c.AdminKeys = w.store, keys })
		other.get("/v1/me", session...).wantError(401, "session_expired", "")
	}
}

func TestSession_WorksOnEveryNode(t *testing.T) {
	t.Parallel()
	a := setup(t)
	b := setup(t, func(c *Config) { c.Store = a.store })
	k := a.newKey(`{}`)
	b.get("/v1/me", a.signIn(k.text)...).want(200)
	a.get("/v1/me", b.signIn(k.text)...).want(200)
}

// After a restore the store has another seal key. New sessions still work.
func TestSession_AnotherSeal(t *testing.T) {
	t.Parallel()
	w, clock := setupClock(t)
	old := w.signIn(adminKey)
	_, version, err := w.store.GetValue(t.Context(), "console/session_seal")
	must.Succeed(t, err)
	must.Get(w.store.PutValue(t.Context(), "console/session_seal", []byte(`{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`), version))(t)
	other := setup(t, func(c *Config) { c.Store = w.store })
	other.get("/v1/me", old...).want(401)
	again := other.signIn(adminKey)
	clock.pass(time.Second)
	w.get("/v1/me", again...).want(200)
}

func TestSession_IsRenewedByUse(t *testing.T) {
	t.Parallel()
	w, clock := setupClock(t)
	session := w.signIn(adminKey)
	if got := w.get("/v1/me", session...).want(200).header.Get("Set-Cookie"); got != "" {
		t.Errorf("renewed at once: %s", got)
	}
	for range 4 {
		clock.pass(sessionLasts / 2)
		cookie := w.get("/v1/me", session...).want(200).cookie()
		session = append(bare, "Cookie", cookie.Name+"="+cookie.Value)
	}
}

func TestSession_UnderTLS(t *testing.T) {
	t.Parallel()
	w := setup(t)
	answer := w.do("POST", "/console/session", `{"key":"`+adminKey+`"}`, "Authorization", "", "X-Forwarded-Proto", "https").want(200)
	cookie := answer.cookie()
	if cookie.Name != "__Host-rowmill_session" || !cookie.Secure {
		t.Errorf("cookie %v", cookie)
	}
	w.get("/v1/me", "Authorization", "", "X-Forwarded-Proto", "https", "Cookie", cookie.Name+"="+cookie.Value).want(200)
	w.get("/v1/me", "Authorization", "", "X-Forwarded-Proto", "https", "Cookie", "rowmill_session="+cookie.Value).want(401)
}

// A page of another site cannot use a session and cannot start one.
func TestSession_OtherSites(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.submitted(`{"inputs":["a"]}`)
	session := w.signIn(adminKey)
	for _, from := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "http://evil.example"}} {
		w.do("POST", "/v1/jobs/"+id+"/cancel", "", append(session, from...)...).wantError(403, "cross_origin", "another site")
		w.do("POST", "/console/session", `{"key":"`+adminKey+`"}`, append(bare, from...)...).wantError(403, "cross_origin", "")
		w.do("DELETE", "/console/session", "", append(bare, from...)...).wantError(403, "cross_origin", "")
		w.get("/v1/me", append(session, from...)...).want(200) // the page cannot read the answer
		w.do("POST", "/v1/jobs/"+id+"/cancel", "", from...).want(200)
	}
	w.do("POST", "/v1/jobs/"+id+"/cancel", "", append(session, "Origin", w.http.URL)...).want(200)
}

func TestSession_FailuresAreLimited(t *testing.T) {
	t.Parallel()
	w, clock := setupClock(t)
	for range mostFailures {
		w.do("POST", "/console/session", `{"key":"rk_00_x"}`, bare...).wantError(401, "unknown_key", "")
	}
	limited := w.do("POST", "/console/session", `{"key":"`+adminKey+`"}`, bare...).wantError(429, "too_many_failures", "wait 6 s")
	if limited.header.Get("Retry-After") != "6" {
		t.Errorf("Retry-After %s", limited.header.Get("Retry-After"))
	}
	clock.pass(6 * time.Second)
	w.signIn(adminKey)
	for range 3 * mostFailures { // successful sign-ins do not count
		w.signIn(adminKey)
	}
	if strings.Contains(w.logs.String(), "rk_00_x") {
		t.Error("the key was logged")
	}
}

func TestSession_BodyOfSignIn(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.do("POST", "/console/session", `{}`, bare...).wantField("key", "missing")
	w.do("POST", "/console/session", `{"key":"a","login_token":"b"}`, bare...).wantField("key", "either")
	w.do("POST", "/console/session", `{"key":1}`, bare...).wantField("key", "a string")
	w.do("POST", "/console/session", `{"key":"a","user":"b"}`, bare...).wantField("user", "unknown")
}

// A login link starts one session, of an administrator, within five minutes.
func TestSession_OfALoginLink(t *testing.T) {
	t.Parallel()
	w, clock := setupClock(t)
	other := setup(t, func(c *Config) { c.Store = w.store })
	redeem := func(w *world, token string) *answered {
		t.Helper()
		return w.do("POST", "/console/session", `{"login_token":"`+token+`"}`, bare...)
	}
	refused := func(w *world, token string) {
		t.Helper()
		redeem(w, token).wantError(401, "invalid_login_link", "log in with an API key")
	}
	refused(w, "")
	token := w.CreateLoginToken(adminKey)
	refused(w, token+"x")
	refused(other, token)
	answer := redeem(w, token).want(200)
	session := append(bare, "Cookie", answer.cookie().Name+"="+answer.cookie().Value)
	other.get("/v1/keys", session...).want(200)
	refused(w, token)

	replaced, late := w.CreateLoginToken(adminKey), w.CreateLoginToken(adminKey)
	refused(w, replaced)
	clock.pass(5 * time.Minute)
	refused(w, late)

	replaced = w.CreateLoginToken(adminKey)
	w.SetAdminKeys([]string{"another"})
	redeem(w, replaced).wantError(401, "unknown_key", "")
	if strings.Contains(w.logs.String(), token) {
		t.Error("the token was logged")
	}
}

// Wrong tokens count like wrong keys.
func TestSession_WrongLoginLinksAreLimited(t *testing.T) {
	t.Parallel()
	w, clock := setupClock(t)
	token := w.CreateLoginToken(adminKey)
	for range mostFailures {
		w.do("POST", "/console/session", `{"login_token":"x"}`, bare...).want(401)
	}
	w.do("POST", "/console/session", `{"login_token":"`+token+`"}`, bare...).wantError(429, "too_many_failures", "wait 6 s")
	clock.pass(6 * time.Second)
	w.do("POST", "/console/session", `{"login_token":"`+token+`"}`, bare...).want(200)
}

// A stream with a session ends with the cookie, without a message. A stream with a key
// ends with a message.
func TestSession_OfEvents(t *testing.T) {
	t.Parallel()
	w, clock := setupClock(t)
	k := w.newKey(`{}`)
	session := w.signIn(k.text)
	clock.pass(sessionLasts - 3*time.Second)
	quiet := w.listening("/v1/events", session...)
	quiet.ready()
	for e, more := quiet.next(); more; e, more = quiet.next() {
		t.Errorf("the stream ends with %v", e)
	}
	l := w.listening("/v1/events", w.signIn(k.text)...)
	l.ready()
	w.do("DELETE", "/v1/keys/"+k.id, "").want(200)
	clock.pass(2 * time.Second)
	if e, _ := l.next(); e.name != "expired" {
		t.Errorf("got %v", e)
	}
}

// Seal keys are replaced in three steps. The store's key may be one of several keys.
func TestSession_SealsChange(t *testing.T) {
	t.Parallel()
	a := setup(t)
	b := setup(t, func(c *Config) { c.Store = a.store })
	seal := func(w *world, keys ...[]byte) {
		t.Helper()
		must.Succeed(t, w.SetSessionSecrets(keys))
	}
	key := bytes.Repeat([]byte("k"), 32)
	old := a.signIn(adminKey)
	seal(a, nil, key)
	seal(b, key, nil)
	fresh := b.signIn(adminKey)
	for _, w := range []*world{a, b} {
		w.get("/v1/me", old...).want(200)
		w.get("/v1/me", fresh...).want(200)
	}
	for _, w := range []*world{a, b} {
		seal(w, key)
		w.get("/v1/me", old...).wantError(401, "session_expired", "")
		w.get("/v1/me", fresh...).want(200)
	}
	seal(a)
	a.get("/v1/me", old...).want(200)
	a.get("/v1/me", fresh...).wantError(401, "session_expired", "")
}

// Configured keys can change while the node runs; sessions of removed keys end.
func TestAdminKeysChange(t *testing.T) {
	t.Parallel()
	w := setup(t)
	session := w.signIn(adminKey)
	w.SetAdminKeys([]string{"another", adminKey})
	for _, key := range []string{adminKey, "another"} {
		w.get("/v1/keys", "Authorization", "Key "+key).want(200)
	}
	w.get("/v1/me", session...).want(200)
	w.SetAdminKeys([]string{"another"})
	w.get("/v1/keys", "Authorization", "Key "+adminKey).wantError(401, "unknown_key", "")
	w.get("/v1/me", session...).wantError(401, "session_expired", "")
	w.get("/v1/keys", "Authorization", "Key another").want(200)
}
