package http

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// madeKey is a key that was created through the API.
type madeKey struct{ id, text string }

func (k madeKey) header() []string { return []string{"Authorization", "Key " + k.text} }

func (a *answered) key() madeKey {
	a.Helper()
	body := a.want(200).json()
	return madeKey{body["id"].(string), body["key"].(string)}
}

// newKey creates a key through the API; the default caller is the operator.
func (w *world) newKey(body string, headers ...string) madeKey {
	w.Helper()
	return w.do("POST", "/v1/keys", body, headers...).key()
}

// works reports whether a key is valid.
func (w *world) works(k madeKey) bool {
	w.Helper()
	answer := w.get("/v1/auth/check", k.header()...)
	if answer.status != 200 {
		answer.wantError(401, "unknown_key", "unknown, revoked or expired")
	}
	return answer.status == 200
}

// keyList returns the ids of the keys in a list.
func (w *world) keyList(query string, headers ...string) (ids []string) {
	w.Helper()
	for _, k := range w.get("/v1/keys"+query, headers...).want(200).json()["keys"].([]any) {
		ids = append(ids, k.(map[string]any)["id"].(string))
	}
	return ids
}

func TestKeys_AuthCheck(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, path := range []string{"/v1/auth/check", "/v1/try-authentication"} {
		w.get(path).wantBody(`{"authenticated": true}`)
		w.get(path, "Authorization", "Key rk_00_x").want(401)
	}
}

func TestKeys_ShownOnceAndStoredAsSHA256(t *testing.T) {
	t.Parallel()
	w := setup(t)
	made := w.do("POST", "/v1/keys", `{"name":"nightly","role":"admin","account":"acme","expires_at":"2100-01-01T02:00:00+02:00","dialect":"sdk","requests_per_minute":50}`)
	k := made.key()
	body := made.json()
	for field, want := range map[string]any{
		"name": "nightly", "role": "admin", "account": "acme", "expires_at": "2100-01-01T00:00:00Z", "dialect": "sdk",
		"requests_per_minute": 50.0, "rotated_at": nil, "last_used_at": nil,
	} {
		if body[field] != want {
			t.Errorf("%s is %v, want %v", field, body[field], want)
		}
	}
	secret := secretOf(k.text)
	for _, path := range []string{"/v1/keys", "/v1/keys?account=acme", "/v1/audit"} {
		if text := string(w.get(path).want(200).text); strings.Contains(text, secret) || !strings.Contains(text, k.id) {
			t.Errorf("%s: %s", path, text)
		}
	}
	if strings.Contains(w.logs.String(), secret) {
		t.Error("the key was logged")
	}
	keys, err := w.store.ListKeys(t.Context())
	if want := sha256.Sum256([]byte(secret)); err != nil || len(keys) != 1 || string(keys[0].Hash) != string(want[:]) {
		t.Errorf("keys %+v, %v", keys, err)
	}
	id := w.submitted(`{"inputs":["a"]}`, k.header()...)
	if account := w.record(id).Spec.Account; account != "acme" {
		t.Errorf("account %s", account)
	}
}

func TestKeys_DefaultsAreAUserOfTheOwnAccountForEver(t *testing.T) {
	t.Parallel()
	w := setup(t)
	body := w.do("POST", "/v1/keys", `{"name":null,"role":null,"expires_at":null,"dialect":null,"requests_per_minute":null}`).want(200).json()
	for field, want := range map[string]any{
		"name": "", "role": "user", "account": "default", "expires_at": nil, "dialect": nil, "requests_per_minute": nil,
	} {
		if body[field] != want {
			t.Errorf("%s is %v, want %v", field, body[field], want)
		}
	}
}

func TestKeys_CreateRefuses(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for body, want := range map[string][2]string{
		`{"name":5}`: {"name", "must be a string"},
		`{"name":"` + strings.Repeat("é", 65) + `"}`: {"name", "at most 64 characters"},
		`{"name":"a\nb"}`:                                {"name", "plain text"},
		`{"role":"root"}`:                                {"role", "admin, user or reader"},
		`{"role":1}`:                                     {"role", "must be a string"},
		`{"dialect":"openai"}`:                           {"dialect", "must be sdk"},
		`{"expires_at":"tomorrow"}`:                      {"expires_at", "a time such as"},
		`{"expires_at":1700000000}`:                      {"expires_at", "a time such as"},
		`{"expires_at":"2020-01-01T00:00:00Z"}`:          {"expires_at", "in the future"},
		`{"requests_per_minute":0}`:                      {"requests_per_minute", "from 1 to 1000000"},
		`{"requests_per_minute":1000001}`:                {"requests_per_minute", "from 1 to 1000000"},
		`{"requests_per_minute":1.5}`:                    {"requests_per_minute", "a whole number"},
		`{"account":5}`:                                  {"account", "must be a string"},
		`{"account":"` + strings.Repeat("a", 129) + `"}`: {"account", "1 to 128 characters"},
		`{"account":"a\u0000b"}`:                         {"account", "plain text"},
		`{"expires":"2100-01-01T00:00:00Z"}`:             {"expires", "is unknown"},
		`{"id":"000000000000","role":"admin"}`:           {"id", "is unknown"},
	} {
		w.do("POST", "/v1/keys", body).wantField(want[0], want[1])
	}
	w.do("POST", "/v1/keys?account=b", `{"account":"a"}`).wantField("account", "name one")
	for _, body := range []string{``, `[]`, `{}x`, `{"name":`} {
		w.do("POST", "/v1/keys", body).wantError(400, "invalid_json", "one JSON object")
	}
	if ids := w.keyList(""); len(ids) != 0 {
		t.Errorf("keys %v were made", ids)
	}
	if text := string(w.get("/v1/audit").want(200).text); strings.Contains(text, "key.create") {
		t.Errorf("recorded: %s", text)
	}
}

func TestKeys_UserKeysAreForbidden(t *testing.T) {
	t.Parallel()
	w := setup(t)
	user := w.newKey(`{"account":"acme"}`)
	for _, route := range [][2]string{
		{"GET", "/v1/keys"},
		{"POST", "/v1/keys"},
		{"POST", "/v1/keys/" + user.id + "/rotate"},
		{"DELETE", "/v1/keys/" + user.id},
		{"GET", "/v1/audit"},
		{"PATCH", "/v1/settings"},
	} {
		// Without the role, the body is not checked.
		w.do(route[0], route[1], "", user.header()...).wantError(403, "forbidden", "administrator's key")
	}
	if !w.works(user) {
		t.Error("the key was revoked")
	}
}

func TestKeys_AdministratorsActWithinTheirOwnAccount(t *testing.T) {
	t.Parallel()
	w := setup(t)
	admin := w.newKey(`{"account":"acme","role":"admin"}`)
	theirs := w.newKey(`{"account":"acme"}`, admin.header()...)
	foreign := w.newKey(`{"account":"other"}`)
	if ids := w.keyList("", admin.header()...); fmt.Sprint(ids) != fmt.Sprint([]string{admin.id, theirs.id}) {
		t.Errorf("listed %v", ids)
	}
	for _, route := range [][2]string{
		{"GET", "/v1/keys?account=other"},
		{"GET", "/v1/audit?account=other"},
		{"GET", "/v1/settings?account=other"},
		{"GET", "/v1/keys?account=default"},
	} {
		w.do(route[0], route[1], "", admin.header()...).wantError(403, "forbidden", "another account")
	}
	w.do("POST", "/v1/keys", `{"account":"other"}`, admin.header()...).wantError(403, "forbidden", "another account")
	w.do("PATCH", "/v1/settings", `{"account":"other","retention_days":1}`, admin.header()...).wantError(403, "forbidden", "another account")
	// A key of another account is treated like an unknown key.
	for _, id := range []string{foreign.id, "000000000000"} {
		w.do("DELETE", "/v1/keys/"+id, "", admin.header()...).wantError(404, "key_not_found", id)
		w.do("POST", "/v1/keys/"+id+"/rotate", "", admin.header()...).wantError(404, "key_not_found", id)
	}
	if !w.works(foreign) {
		t.Error("a foreign key was revoked")
	}
	w.do("DELETE", "/v1/keys/"+theirs.id, "", admin.header()...).want(200)
	// The operator can list the keys of all accounts or of one account.
	if ids := w.keyList(""); fmt.Sprint(ids) != fmt.Sprint([]string{admin.id, foreign.id}) {
		t.Errorf("the operator's list is %v", ids)
	}
	if ids := w.keyList("?account=other"); fmt.Sprint(ids) != fmt.Sprint([]string{foreign.id}) {
		t.Errorf("the operator's list of an account is %v", ids)
	}
}

func TestKeys_RotatedKeysOldSecretStopsAtOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	before := w.newKey(`{"account":"acme","name":"n","role":"admin","requests_per_minute":1000}`)
	if !w.works(before) {
		t.Fatal("a new key does not work")
	}
	answer := w.do("POST", "/v1/keys/"+before.id+"/rotate", "")
	after := answer.key()
	if after.id != before.id || after.text == before.text {
		t.Errorf("%v became %v", before, after)
	}
	body := answer.json()
	if body["name"] != "n" || body["role"] != "admin" || body["account"] != "acme" || body["requests_per_minute"] != 1000.0 || body["rotated_at"] == nil || body["last_used_at"] == nil {
		t.Errorf("rotated: %v", body)
	}
	if w.works(before) {
		t.Error("the old secret works")
	}
	if !w.works(after) {
		t.Error("the new secret does not work")
	}
	// A key may rotate itself.
	w.do("POST", "/v1/keys/"+after.id+"/rotate", "", after.header()...).want(200)
	if w.works(after) {
		t.Error("the secret that rotated itself works")
	}
}

func TestKeys_RevokedKeyStopsAtOnceAndItsJobsGoOn(t *testing.T) {
	t.Parallel()
	w := setup(t)
	k := w.newKey(`{}`)
	id := w.submitted(`{"inputs":["a"]}`, k.header()...)
	w.do("DELETE", "/v1/keys/"+k.id, "").wantBody(`{"id":"` + k.id + `","revoked":true}`)
	if w.works(k) {
		t.Error("the revoked key works")
	}
	w.do("DELETE", "/v1/keys/"+k.id, "").wantError(404, "key_not_found", k.id)
	w.do("POST", "/v1/keys/"+k.id+"/rotate", "").wantError(404, "key_not_found", k.id)
	w.goesOn(id)
}

// A request changes nothing if its key is revoked before the body has ended.
func TestKeys_RevokedKeyEndsABody(t *testing.T) {
	t.Parallel()
	for path, body := range map[string][3]string{
		"/v1/batch-inference":  {"application/json", `{"inputs":["a",`, `"b"]}`},
		"/v1/files":            {formType, formOf("purpose", "batch")[:60], formOf("purpose", "batch")[60:]},
		"/v1/messages/batches": {"application/json", `{"requests":[`, `]}`},
	} {
		c := &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
		w := setup(t, func(config *Config) { config.Now = c.now })
		k := w.newKey(`{}`)
		from, to := io.Pipe()
		r := w.request("POST", path, "", "Authorization", "Bearer "+k.text, "Content-Type", body[0])
		if path == "/v1/batch-inference" {
			r.Header.Set("Authorization", "Key "+k.text)
		}
		r.Body = from
		go func() {
			_, _ = io.WriteString(to, body[1])
			for strings.Contains(string(w.get("/v1/keys").text), `"last_used_at":null`) { // the request has not been accepted yet
				time.Sleep(time.Millisecond)
			}
			w.do("DELETE", "/v1/keys/"+k.id, "").want(200)
			c.pass(3 * time.Second)
			_, _ = io.WriteString(to, body[2])
			_ = to.Close()
		}()
		answer, err := (&nethttp.Client{Transport: w.client.Transport.(*contract).next}).Do(r)
		must.Succeed(t, err)
		text, err := io.ReadAll(answer.Body)
		if answer.Body.Close(); answer.StatusCode != 401 || !strings.Contains(string(text), "while the request was sent") {
			t.Errorf("%s: status %d, %s, %v", path, answer.StatusCode, text, err)
		}
		w.noJobs()
	}
}

// goesOn runs a pending job to its end.
func (w *world) goesOn(id string) {
	w.Helper()
	f := w.claim(id)
	rows := int64(1)
	w.update(f, func(r *store.Record) error {
		r.Job.NumRows, r.Shards = &rows, 1
		return errors.Join(r.Job.Become(rowmill.StatusStarting, time.Now()), r.Job.Become(rowmill.StatusRunning, time.Now()))
	})
	w.commit(f, store.Part{Key: "p", Rows: 1, Complete: true, Totals: store.RowTotals{Rows: 1}})
	if _, err := w.store.Finish(w.Context(), f, func(r *store.Record) error { return r.Job.Become(rowmill.StatusSucceeded, time.Now()) }); err != nil {
		w.Errorf("the job does not go on: %v", err)
	}
	if status := w.get("/v1/jobs/" + id).want(200).json()["job"].(map[string]any)["status"]; status != "succeeded" {
		w.Errorf("the job is %v", status)
	}
}

func TestKeys_KeyThatExpiresInMidJob(t *testing.T) {
	t.Parallel()
	c := &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	w := setup(t, func(config *Config) { config.Now = c.now })
	k := w.newKey(`{"expires_at":"2026-03-01T13:00:00Z"}`)
	id := w.submitted(`{"inputs":["a"]}`, k.header()...)
	c.pass(time.Hour)
	if w.works(k) {
		t.Error("the expired key works")
	}
	w.get("/v1/jobs/"+id, k.header()...).wantError(401, "unknown_key", "expired")
	w.goesOn(id)
	w.do("POST", "/v1/keys/"+k.id+"/rotate", "").wantError(409, "key_expired", "create another")
	w.do("DELETE", "/v1/keys/"+k.id, "").want(200)
}

// beside starts another server on the same store.
func (w *world) beside(change ...func(*Config)) *world {
	w.Helper()
	return setup(w.TB, append([]func(*Config){func(c *Config) {
		c.Store, c.Now = w.Store, w.Now
	}}, change...)...)
}

func TestKeys_EffectiveOnEveryNodeWithin5Seconds(t *testing.T) {
	t.Parallel()
	c := &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	a := setup(t, func(config *Config) { config.Now = c.now })
	b := a.beside()
	created := a.newKey(`{}`)
	rotated := a.newKey(`{}`)
	c.pass(100 * time.Millisecond) // so that b reads a list with the new keys
	if !b.works(created) || !b.works(rotated) {
		t.Fatal("the other node does not know new keys")
	}
	// The worst case: the other node reads the list just before the change.
	c.pass(time.Second)
	a.do("DELETE", "/v1/keys/"+created.id, "").want(200)
	again := a.do("POST", "/v1/keys/"+rotated.id+"/rotate", "").key()
	for range 50 {
		c.pass(100 * time.Millisecond)
		b.get("/v1/auth/check", again.header()...) // keeps the node busy
	}
	if b.works(created) {
		t.Error("5 s later the other node takes a revoked key")
	}
	if b.works(rotated) {
		t.Error("5 s later the other node takes a rotated key's old secret")
	}
	if !b.works(again) {
		t.Error("5 s later the other node refuses a rotated key's new secret")
	}
}

func TestKeys_NoStoreRoundTripPerRequest(t *testing.T) {
	t.Parallel()
	w := setup(t)
	c := &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	counted := &countedKeys{Store: w.store}
	b := w.beside(func(config *Config) { config.Store, config.Now = counted, c.now })
	k := w.newKey(`{}`)
	for range 100 {
		if !b.works(k) {
			t.Fatal("the key does not work")
		}
	}
	if counted.lists != 1 {
		t.Errorf("100 requests listed the keys %d times", counted.lists)
	}
}

func TestKeys_LastAdministratorStays(t *testing.T) {
	t.Parallel()
	w := setup(t)
	bare := w.beside(func(c *Config) { c.AdminKeys = nil })
	first := w.newKey(`{"role":"admin"}`)
	w.newKey(`{"role":"admin","account":"acme"}`)
	w.newKey(`{"role":"user"}`)
	bare.do("DELETE", "/v1/keys/"+first.id, "", first.header()...).wantError(409, "last_administrator", "rotate it")
	second := bare.newKey(`{"role":"admin"}`, first.header()...)
	bare.do("DELETE", "/v1/keys/"+first.id, "", second.header()...).want(200)
	w.do("DELETE", "/v1/keys/"+second.id, "").want(200) // there is a configured key
}

func TestKeys_LastUsed(t *testing.T) {
	t.Parallel()
	c := &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	w := setup(t, func(config *Config) { config.Now = c.now })
	k := w.newKey(`{}`)
	used := func() any {
		return w.get("/v1/keys").want(200).json()["keys"].([]any)[0].(map[string]any)["last_used_at"]
	}
	if used() != nil {
		t.Errorf("an unused key was used at %v", used())
	}
	w.works(k)
	if used() != "2026-03-01T12:00:00Z" {
		t.Errorf("last used at %v", used())
	}
	c.pass(time.Hour)
	w.works(k)
	if used() != "2026-03-01T13:00:00Z" {
		t.Errorf("last used at %v", used())
	}
}

func TestKeys_Pages(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var made []string
	for range 5 {
		made = append(made, w.newKey(`{"account":"acme"}`).id)
	}
	other := w.newKey(`{}`).id
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, id := range []string{"aaaa", "bbbb"} { // created at the same moment, before all others
		must.Succeed(t, w.store.PutKey(t.Context(), store.APIKey{ID: id, Account: "acme", Role: caller.RoleUser, Created: at}))
	}
	made = append([]string{"aaaa", "bbbb"}, made...)
	page := func(query string) (ids []string, next string) {
		body := w.get("/v1/keys" + query).want(200).json()
		for _, k := range body["keys"].([]any) {
			ids = append(ids, k.(map[string]any)["id"].(string))
		}
		next, _ = body["next_cursor"].(string)
		return ids, next
	}
	if ids, next := page(""); len(ids) != 8 || ids[7] != other || next != "" {
		t.Errorf("all keys: %v, then %q", ids, next)
	}
	for limit := 1; limit <= 8; limit++ {
		var all []string
		for cursor := ""; ; {
			ids, next := page(fmt.Sprintf("?account=acme&limit=%d&cursor=%s", limit, cursor))
			all = append(all, ids...)
			if cursor = next; cursor == "" {
				break
			}
			if len(ids) != limit {
				t.Errorf("a page of %d has %d", limit, len(ids))
			}
		}
		if !slices.Equal(all, made) {
			t.Errorf("pages of %d: %v, want %v", limit, all, made)
		}
	}
	_, next := page("?account=acme&limit=3")
	w.do("DELETE", "/v1/keys/"+made[2], "").want(200) // the last key of the page
	if ids, _ := page("?account=acme&cursor=" + next); !slices.Equal(ids, made[3:]) {
		t.Errorf("after a key that is gone: %v, want %v", ids, made[3:])
	}
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=101": "limit", "limit=x": "limit", "cursor=x": "cursor", "cursor=eCB5": "cursor",
	} {
		w.get("/v1/keys?"+query).wantError(400, "invalid_request", field)
	}
}

func TestKeys_LimitPerAccount(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.MaxKeys = 2 })
	first := w.newKey(`{"account":"acme"}`)
	admin := w.newKey(`{"account":"acme","role":"admin"}`)
	for _, headers := range [][]string{nil, admin.header()} {
		w.do("POST", "/v1/keys", `{"account":"acme"}`, headers...).wantError(409, "too_many_keys", "acme already has 2 keys")
	}
	w.newKey(`{"account":"other"}`) // not in the audit record of acme
	w.do("POST", "/v1/keys/"+first.id+"/rotate", "").want(200)
	w.do("DELETE", "/v1/keys/"+first.id, "").want(200)
	w.newKey(`{"account":"acme"}`)
}

// secretOf returns the secret in rk_<id>_<secret>.
func secretOf(key string) string { return strings.SplitN(key, "_", 3)[2] }
