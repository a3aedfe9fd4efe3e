package dir

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

func mustSign(t testing.TB, b *Bucket, method, key string, expires time.Duration) string {
	t.Helper()
	u := must.Get(b.SignURL(t.Context(), method, key, "f.bin", expires))(t)
	return u
}

func fetch(b *Bucket, method, u string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, u, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	b.Handler().ServeHTTP(w, r)
	return w
}

func served(t testing.TB) (*Bucket, *clock) {
	t.Helper()
	c := newClock()
	return openBucket(t, Config{Root: t.TempDir(), Keys: loadKeys(t, newValues()), Clock: c.Now, PublicURL: "https://rows.example.org/base/"}), c
}

// TestRefusals checks the body of every refusal.
func TestRefusals(t *testing.T) {
	t.Parallel()
	b, _ := served(t)
	mustPut(t, b, "k", []byte("secret content"))
	good := strings.Replace(mustSign(t, b, http.MethodGet, "k", time.Minute), "/base", "", 1)
	gone := strings.Replace(mustSign(t, b, http.MethodGet, "gone", time.Minute), "/base", "", 1)
	tests := map[string]struct {
		method, url string
		headers     []string
		status      int
		code        string
	}{
		"authorization": {"GET", good, []string{"Authorization", "Key rm_secret"}, 400, "authorization_not_allowed"},
		"signature":     {"GET", good + "x", nil, 403, "invalid_signature"},
		"unsigned":      {"GET", "/objects/k", nil, 403, "invalid_signature"},
		"no key":        {"GET", "/objects/", nil, 403, "invalid_signature"},
		"broken query":  {"GET", "/objects/k?%zz", nil, 403, "invalid_signature"},
		"extra":         {"GET", good + "&x=1", nil, 403, "invalid_signature"},
		"doubled":       {"GET", good + "&filename=x", nil, 403, "invalid_signature"},
		"missing":       {"GET", gone, nil, 404, "not_found"},
		"other path":    {"GET", "/elsewhere", nil, 404, "not_found"},
		"method":        {"POST", good, nil, 405, "method_not_allowed"},
		"range":         {"GET", good, []string{"Range", "bytes=100-"}, 416, "invalid_range"},
	}
	for name, tt := range tests {
		w := fetch(b, tt.method, tt.url, tt.headers...)
		var body struct {
			Message, Detail, Code string
			RequestID             string `json:"request_id"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Errorf("%s: body %q: %v", name, w.Body, err)
		}
		if w.Code != tt.status || body.Code != tt.code || body.Message == "" || body.Detail != body.Message ||
			body.RequestID == "" || body.RequestID != w.Header().Get("X-Request-Id") || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: status %d, headers %v, body %+v", name, w.Code, w.Header(), body)
		}
		for _, secret := range []string{"secret", "signature=", "expires="} {
			if strings.Contains(w.Body.String(), secret) {
				t.Errorf("%s: the body holds %q", name, secret)
			}
		}
	}
	if got := fetch(b, "POST", good).Header().Get("Allow"); got != "GET, HEAD" {
		t.Errorf("Allow is %q", got)
	}
	if got := fetch(b, "GET", good, "Range", "bytes=100-").Header().Get("Content-Range"); got != "bytes */14" {
		t.Errorf("Content-Range is %q", got)
	}
}

// TestRequestIDIsKept checks that the body has the ID of an outer handler.
func TestRequestIDIsKept(t *testing.T) {
	t.Parallel()
	b, _ := served(t)
	w := httptest.NewRecorder()
	w.Header().Set("X-Request-Id", "outer")
	b.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/objects/k", nil))
	if w.Header().Get("X-Request-Id") != "outer" || !strings.Contains(w.Body.String(), `"request_id":"outer"`) {
		t.Errorf("%v %s", w.Header(), w.Body)
	}
}

// TestPublicURLMoves signs URLs before and after the public URL is set.
func TestPublicURLMoves(t *testing.T) {
	t.Parallel()
	b, _ := served(t)
	if got := mustSign(t, b, http.MethodGet, "a/k", time.Minute); !strings.HasPrefix(got, "https://rows.example.org/base/objects/a/k?") {
		t.Errorf("signed %s", got)
	}
	must.Succeed(t, b.SetPublicURL("http://127.0.0.1:8080"))
	if got := mustSign(t, b, http.MethodGet, "a/k", time.Minute); !strings.HasPrefix(got, "http://127.0.0.1:8080/objects/a/k?") {
		t.Errorf("signed %s", got)
	}
}

// FuzzVerify changes paths and queries. Only the signed pair may be accepted.
func FuzzVerify(f *testing.F) {
	b, _ := served(f)
	mustPut(f, b, "a/k", []byte("x"))
	good := must.Get(url.Parse(mustSign(f, b, http.MethodGet, "a/k", time.Minute)))(f)
	path := strings.TrimPrefix(good.Path, "/base")
	f.Add(path, good.RawQuery)
	f.Add("/objects/../a/k", good.RawQuery)
	f.Add(path, good.RawQuery+"&")
	f.Add(path, "expires=1&filename=&key_id=x&signature=AA")
	f.Fuzz(func(t *testing.T, gotPath, gotQuery string) {
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: gotPath, RawQuery: gotQuery}, Header: http.Header{}}
		w := httptest.NewRecorder()
		b.Handler().ServeHTTP(w, r)
		values, _ := url.ParseQuery(gotQuery)
		same := gotPath == path && values.Encode() == good.Query().Encode()
		if same != (w.Code == http.StatusOK) {
			t.Errorf("path %q, query %q: %d", gotPath, gotQuery, w.Code)
		}
	})
}

// A URL that is signed within a second must not expire earlier than requested.
func TestURLDoesNotExpireEarly(t *testing.T) {
	t.Parallel()
	b, c := served(t)
	mustPut(t, b, "k", []byte("content"))
	c.Advance(700 * time.Millisecond)
	url := strings.Replace(mustSign(t, b, http.MethodGet, "k", 2*time.Second), "/base", "", 1)
	c.Advance(2*time.Second - 1)
	if w := fetch(b, http.MethodGet, url); w.Code != http.StatusOK {
		t.Errorf("just before its end: %d %s", w.Code, w.Body)
	}
	c.Advance(2 * time.Second)
	if w := fetch(b, http.MethodGet, url); w.Code != http.StatusForbidden {
		t.Errorf("two seconds after its end: %d", w.Code)
	}
}
