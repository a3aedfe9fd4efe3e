package http

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
)

// fakeConsole has an icon and one script with a hash in its name.
type fakeConsole struct{}

func (fakeConsole) Index() []byte {
	return []byte(`<base href="/console/"><meta name="csp-nonce" content="{{nonce}}"><script nonce="{{nonce}}" src="assets/app-1a2b.js"></script>`)
}

func (fakeConsole) Open(name string) (gz []byte, contentType string, hashed, ok bool) {
	switch name {
	case "assets/app-1a2b.js":
		return gzipped("let a = 1"), "text/javascript; charset=utf-8", true, true
	case "favicon.svg":
		return gzipped("<svg/>"), "image/svg+xml", false, true
	}
	return nil, "", false, false
}

func gzipped(text string) []byte {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return packed.Bytes()
}

func setupConsole(t testing.TB) *world {
	t.Helper()
	return setup(t, func(c *Config) { c.Console = fakeConsole{} })
}

// browsing has the headers of a browser that opens a page.
var browsing = append(bare, "Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")

func TestConsole_404WithoutConsole(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, path := range []string{"/console/", "/console/jobs"} {
		if got := string(w.get(path, browsing...).want(404).text); !strings.Contains(got, "no web console") {
			t.Errorf("%s: %q", path, got)
		}
	}
	for _, path := range []string{"/", "/console"} {
		w.get(path, browsing...).wantError(404, "unknown_route", "")
	}
}

func TestConsole_Index(t *testing.T) {
	t.Parallel()
	w := setupConsole(t)
	nonces := map[string]bool{}
	for path, headers := range map[string][]string{"/console/": bare, "/console/jobs/job-1": browsing, "/console/..%2f..%2fetc/passwd": browsing} {
		got := w.get(path, headers...).want(200)
		_, rest, _ := strings.Cut(string(got.text), `content="`)
		nonce, _, _ := strings.Cut(rest, `"`)
		if len(nonce) < 20 || nonces[nonce] || strings.Contains(string(got.text), "{{") || strings.Count(string(got.text), nonce) != 2 {
			t.Errorf("%s: %s", path, got.text)
		}
		nonces[nonce] = true
		want := "default-src 'self'; script-src 'self' 'nonce-N'; style-src 'self' 'nonce-N'; img-src 'self' data:; object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
		if policy := got.header.Get("Content-Security-Policy"); policy != strings.ReplaceAll(want, "N", nonce) {
			t.Errorf("%s: %s", path, policy)
		}
		if got.header.Get("Cache-Control") != "no-store" || got.header.Get("Referrer-Policy") != "no-referrer" || got.header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%s: %v", path, got.header)
		}
	}
	w.get("/console/nothing", bare...).want(404)
	w.get("/console/assets/app-old.js", append(bare, "Accept", "*/*")...).want(404)
}

func TestConsole_Files(t *testing.T) {
	t.Parallel()
	w := setupConsole(t)
	packed := w.get("/console/assets/app-1a2b.js", append(bare, "Accept-Encoding", "gzip, deflate")...).want(200)
	if packed.header.Get("Content-Encoding") != "gzip" || !bytes.Equal(packed.text, gzipped("let a = 1")) {
		t.Errorf("%v %q", packed.header, packed.text)
	}
	plain := w.get("/console/assets/app-1a2b.js", append(bare, "Accept-Encoding", "identity")...).want(200)
	if plain.header.Get("Content-Encoding") != "" || string(plain.text) != "let a = 1" {
		t.Errorf("%v %q", plain.header, plain.text)
	}
	for _, got := range []*answered{packed, plain} {
		if got.header.Get("Cache-Control") != "public, max-age=31536000, immutable" || got.header.Get("Vary") != "Accept-Encoding" ||
			got.header.Get("Content-Type") != "text/javascript; charset=utf-8" || strings.Contains(got.header.Get("Content-Security-Policy"), "%") {
			t.Errorf("%v", got.header)
		}
	}
	if icon := w.get("/console/favicon.svg", bare...).want(200); icon.header.Get("Cache-Control") != "no-cache" {
		t.Errorf("%v", icon.header)
	}
}

func TestConsole_RedirectsBrowsers(t *testing.T) {
	t.Parallel()
	w := setupConsole(t)
	for _, path := range []string{"/", "/console"} {
		if got := w.get(path, browsing...).want(302); got.header.Get("Location") != "/console/" {
			t.Errorf("%s: %v", path, got.header)
		}
		w.get(path, append(bare, "Accept", "application/json")...).wantError(404, "unknown_route", "/openapi.json")
	}
}
