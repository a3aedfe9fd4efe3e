package http

import (
	"context"
	"crypto/sha256"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/keys"
	"github.com/rowmill/rowmill/store"
)

func TestAuth_EveryEndpointNeedsAKey(t *testing.T) {
	t.Parallel()
	w := setup(t)
	checked := 0
	for _, route := range w.engine.Routes() {
		if !strings.HasPrefix(route.Path, "/v1/") {
			continue
		}
		checked++
		path := strings.NewReplacer(":job_id", unknownIDs[0], ":row", "0", ":key_id", "000000000000").Replace(route.Path)
		for name, header := range map[string]string{
			"Missing":         "",
			"NoScheme":        adminKey,
			"Bearer":          "Bearer " + adminKey,
			"Basic":           "Basic " + adminKey,
			"Empty":           "Key ",
			"TwoSpaces":       "Key  " + adminKey,
			"Unknown":         "Key nonsense",
			"UnknownOfOurs":   "Key rk_000000000000_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
			"AlmostTheAdmins": "Key " + adminKey + "x",
			"OnlyPrefix":      "Key rk_",
			"NoSecret":        "Key rk_000000000000_",
		} {
			dialect := strings.HasPrefix(path, "/v1/files") || strings.HasPrefix(path, "/v1/uploads") || strings.HasPrefix(path, "/v1/batches") || strings.HasPrefix(path, "/v1/messages")
			if name == "Bearer" && (dialect || strings.HasPrefix(path, "/v1/models")) {
				continue // clients of the dialects send their keys with it
			}
			answer := w.do(route.Method, path, "", "Authorization", header)
			body := answer.want(401).json()
			scheme := "Key"
			if dialect {
				scheme = "Bearer"
				body = body["error"].(map[string]any)
			}
			if code, has := body["code"].(string); answer.header.Get("WWW-Authenticate") != scheme || has && !strings.HasSuffix(code, "_key") || !has && body["type"] != "authentication_error" {
				t.Errorf("%s %s %s: %v, header %v", name, route.Method, path, body, answer.header)
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d routes were checked", checked)
	}
	w.noJobs()
}

func TestAuth_OperatorsRoutesNeedNoKey(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, path := range []string{"/livez", "/readyz", "/version", "/metrics", "/openapi.json"} {
		w.get(path, bare...).want(200)
	}
	w.get("/console/", bare...).want(404)
}

func TestAuth_SeveralHeadersAreMalformed(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.request("GET", "/v1/list-jobs", "")
	r.Header.Add("Authorization", "Key "+adminKey)
	w.send(r).wantError(401, "missing_key", "once")
}

func TestAuth_SchemeWordInAnyCase(t *testing.T) {
	t.Parallel()
	setup(t).get("/v1/list-jobs", "Authorization", "key "+adminKey).want(200)
}

func TestAuth_KeyOfTheStore(t *testing.T) {
	t.Parallel()
	w := setup(t)
	key := w.keyOf("acme", caller.RoleUser)
	if !regexp.MustCompile(`^rk_[0-9a-f]{12}_[A-Za-z0-9_-]{43}$`).MatchString(key) {
		t.Errorf("key %s", key)
	}
	id := w.submitted(`{"inputs":["a"]}`, "Authorization", "Key "+key)
	if account := w.record(id).Spec.Account; account != "acme" {
		t.Errorf("account %s", account)
	}
	w.get("/v1/list-jobs", "Authorization", "Key "+key[:len(key)-1]).want(401)
	if logs := w.logs.String(); strings.Contains(logs, key[3:]) || strings.Contains(logs, adminKey) {
		t.Errorf("a key was logged:\n%s", logs)
	}
}

func TestAuth_EmptyAdminKeyIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.AdminKeys = nil })
	w.get("/v1/list-jobs").want(401)
	w.get("/v1/list-jobs", "Authorization", "Key ").want(401)
}

// clock is a clock that a test sets.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

func (c *clock) pass(d time.Duration) { c.set(c.now().Add(d)) }

// countedKeys counts the reads of the list of keys, and can make them fail.
type countedKeys struct {
	store.Store
	lists int
	fail  error
}

func (k *countedKeys) ListKeys(ctx context.Context) ([]store.APIKey, error) {
	k.lists++
	if k.fail != nil {
		return nil, k.fail
	}
	return k.Store.ListKeys(ctx)
}

func TestKeyring_FailingStoreAcceptsNoKey(t *testing.T) {
	t.Parallel()
	w := setup(t)
	key := w.keyOf("acme", caller.RoleUser)
	counted := &countedKeys{Store: w.store, fail: errors.New("broken")}
	w2 := setup(t, func(c *Config) { c.Store = counted })
	w2.get("/v1/list-jobs", "Authorization", "Key "+key).wantError(500, "internal_error", "request_id")
	if !strings.Contains(w2.logs.String(), "broken") {
		t.Error("the reason was not logged")
	}
}

func TestEnsureFirstKey_OnceAndOnlyItsHashIsKept(t *testing.T) {
	t.Parallel()
	w := setup(t)
	text, err := keys.EnsureFirstKey(t.Context(), w.store, time.Now())
	if err != nil || text == "" {
		t.Fatalf("%q, %v", text, err)
	}
	again, err := keys.EnsureFirstKey(t.Context(), w.store, time.Now())
	if err != nil || again != "" {
		t.Errorf("a second key %q, %v", again, err)
	}
	keys, err := w.store.ListKeys(t.Context())
	if err != nil || len(keys) != 1 {
		t.Fatalf("keys %v, %v", keys, err)
	}
	secret := secretOf(text)
	if want := sha256.Sum256([]byte(secret)); string(keys[0].Hash) != string(want[:]) || keys[0].Account != "default" || keys[0].Role != "admin" {
		t.Errorf("key %+v", keys[0])
	}
	w.get("/v1/list-jobs", "Authorization", "Key "+text).want(200)
}
