package console

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// Limits, in bytes of gzip: the files that a browser loads before it shows anything,
// one file of a page, and all files in the binary.
const (
	maxFirst = 300 << 10
	maxChunk = 150 << 10
	maxAll   = 1 << 20
)

var named = regexp.MustCompile(`(?:href|src)="\./([^"]+)"`)

func TestBudget(t *testing.T) {
	t.Parallel()
	site := Files()
	first, all := len(site.index)/3, 0
	for _, m := range named.FindAllStringSubmatch(string(site.Index()), -1) {
		gz, _, _, ok := site.Open(m[1])
		if !ok {
			t.Fatalf("the index names %s, but there is no such file", m[1])
		}
		first += len(gz)
	}
	for name, gz := range site.files {
		all += len(gz)
		if len(gz) > maxChunk {
			t.Errorf("%s is %d bytes, above %d", name, len(gz), maxChunk)
		}
	}
	t.Logf("first load %d bytes, all %d", first, all)
	if first > maxFirst {
		t.Errorf("the first load is %d bytes, above %d", first, maxFirst)
	}
	if all > maxAll {
		t.Errorf("all files are %d bytes, above %d", all, maxAll)
	}
}

func TestIndex(t *testing.T) {
	t.Parallel()
	index := Files().Index()
	for _, want := range []string{`<base href="/console/">`, `<meta name="csp-nonce" content="{{nonce}}">`} {
		if !bytes.Contains(index, []byte(want)) {
			t.Errorf("the index lacks %s", want)
		}
	}
	// The Content-Security-Policy of the page blocks both.
	if m := regexp.MustCompile(`<script>| style="|<style`).Find(index); m != nil {
		t.Errorf("the index has %s", m)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	site := Files()
	for name, want := range map[string]struct {
		contentType string
		hashed      bool
	}{
		"favicon.svg": {"image/svg+xml", false},
		"licenses.md": {"text/plain; charset=utf-8", false},
	} {
		gz, contentType, hashed, ok := site.Open(name)
		if !ok || contentType != want.contentType || hashed != want.hashed {
			t.Errorf("%s: %q, hashed %v, there %v", name, contentType, hashed, ok)
		}
		if b, err := gunzip(gz); err != nil || len(b) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	scripts := 0
	for name := range site.files {
		_, contentType, hashed, _ := site.Open(name)
		if strings.HasSuffix(name, ".js") {
			scripts++
			if !hashed || contentType != "text/javascript; charset=utf-8" {
				t.Errorf("%s: %q, hashed %v", name, contentType, hashed)
			}
		}
	}
	if scripts == 0 {
		t.Error("there is no script")
	}
	for _, name := range []string{"index.html", "", "assets", "../console.go", "assets/none.js"} {
		if _, _, _, ok := site.Open(name); ok {
			t.Errorf("Open finds %q, want no file", name)
		}
	}
}
