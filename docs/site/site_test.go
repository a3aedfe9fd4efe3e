// Package site_test holds the pages against each other, against the code whose
// messages they explain, and against the site that is made of them.
package site_test

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/rowmill/rowmill/internal/must"
)

const root = "../.."

// files returns the files of the repository whose names end so, by their paths in it.
func files(t *testing.T, endings ...string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	must.Succeed(t, fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (slices.Contains([]string{"bin", "dist", "node_modules", "console/dist", "console/.build"}, name) || entry.Name() == "node_modules" || strings.HasPrefix(name, ".") && name != "." && name != ".ci" && name != ".github"):
			return fs.SkipDir
		case entry.Type().IsRegular() && slices.Contains(endings, path.Ext(name)):
			text, err := os.ReadFile(filepath.Join(root, name))
			found[name] = string(text)
			return err
		}
		return nil
	}))
	return found
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```$|^<!--.*?-->$")
	code    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// anchors are the fragments that lead to the headings of a page, as they are made by
// those who show Markdown.
func anchors(page string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		text := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1")
		base := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsNumber(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, text)
		name := base
		for n := 1; slices.Contains(all, name); n++ {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		all = append(all, name)
	}
	return all
}

// broken returns the fault of a link of a page; empty for a good link.
func broken(pages map[string]string, from, to string) string {
	target, err := url.Parse(to)
	if err != nil {
		return err.Error()
	}
	if target.Scheme != "" {
		if target.Scheme != "https" {
			return "is not by https"
		}
		return ""
	}
	name := from
	if target.Path != "" {
		name = path.Join(path.Dir(from), target.Path)
	}
	page, is := pages[name]
	if !is {
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.IsDir() {
			return "leads to no file"
		}
	}
	if target.Fragment != "" && !slices.Contains(anchors(page), target.Fragment) {
		return "leads to no heading"
	}
	return ""
}

// TestLinks follows every link of every page to its file and its heading, and every
// page that the code and other files name.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := files(t, ".md")
	links := 0
	for name, text := range pages {
		text = code.ReplaceAllString(fence.ReplaceAllString(text, ""), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			links++
			if why := broken(pages, name, m[1]); why != "" {
				t.Errorf("%s: %s %s", name, m[1], why)
			}
		}
	}
	if links < 300 {
		t.Errorf("%d links were found; the others were not looked for", links)
	}
	named := regexp.MustCompile(`\b(docs|bench|deploy)/[a-z/-]+\.md(#[a-z0-9-]+)?`)
	for name, text := range files(t, ".md", ".go", ".yaml", ".sh", ".txt", ".env", ".ts", ".tsx") {
		if strings.HasSuffix(name, "_test.go") || name == "CHANGELOG.md" {
			continue
		}
		for _, page := range named.FindAllString(link.ReplaceAllString(text, ""), -1) {
			if why := broken(pages, "README.md", page); why != "" {
				t.Errorf("%s names %s, which %s", name, page, why)
			}
		}
	}
}

func TestBroken(t *testing.T) {
	t.Parallel()
	pages := map[string]string{"README.md": "# A\n", "docs/a.md": "# The `first` one: 1, 2\n```sh\n# none\n```\n## Twice\n## Twice\n## [A link](b.md)\n"}
	for _, to := range []string{"#twice-1", "#the-first-one-1-2", "#a-link", "../README.md#a", "../go.mod", "https://example.org/x"} {
		if why := broken(pages, "docs/a.md", to); why != "" {
			t.Errorf("%s %s", to, why)
		}
	}
	for _, to := range []string{"#none", "#twice-2", "../README.md#b", "b.md", "../docs", "http://example.org/x", "a.md#Twice"} {
		if broken(pages, "docs/a.md", to) == "" {
			t.Errorf("%s is taken for a good link", to)
		}
	}
}

// TestMenu wants each page of docs to stand once in docs/README.md, which is the menu
// of the site; records of decisions have a list of their own.
func TestMenu(t *testing.T) {
	t.Parallel()
	pages := files(t, ".md")
	listed := make(map[string]int)
	for _, m := range link.FindAllStringSubmatch(pages["docs/README.md"], -1) {
		listed[path.Join("docs", m[1])]++
	}
	for name := range pages {
		if strings.HasPrefix(name, "docs/") && name != "docs/README.md" && (path.Dir(name) != "docs/adr" || path.Base(name) == "README.md") && listed[name] != 1 {
			t.Errorf("%s stands %d times in docs/README.md", name, listed[name])
		}
	}
}

// TestMessages wants the headings of docs/faq.md that are messages to be messages of
// the program: the texts between … stand in its code.
func TestMessages(t *testing.T) {
	t.Parallel()
	var program strings.Builder
	for name, text := range files(t, ".go") {
		if !strings.HasSuffix(name, "_test.go") {
			program.WriteString(text)
		}
	}
	// Of the system and of inference servers, and joined of parts by Go's own packages.
	others := []string{"dial tcp", "connect: connection refused", "torch.OutOfMemoryError: CUDA out of memory"}
	said := regexp.MustCompile(`%[a-z]`).ReplaceAllString(program.String(), "…")
	said = regexp.MustCompile(`"\s*\+\s*"`).ReplaceAllString(said, "")
	messages := regexp.MustCompile("(?m)^### `(.*)`$").FindAllStringSubmatch(files(t, ".md")["docs/faq.md"], -1)
	if len(messages) < 30 {
		t.Errorf("docs/faq.md has %d messages only", len(messages))
	}
	for _, m := range messages {
		for part := range strings.SplitSeq(m[1], "…") {
			if part = strings.Trim(part, " :,"); len(part) > 3 && !strings.Contains(said, part) && !slices.Contains(others, part) {
				t.Errorf("docs/faq.md: no code says %q, of %q", part, m[1])
			}
		}
	}
}

// TestNotRun wants every page that says of something that it was not run to be on the
// list of docs/not-run.md.
func TestNotRun(t *testing.T) {
	t.Parallel()
	admits := regexp.MustCompile(`(?m)(^|\*\*|## )(Not (run|tried)\b|This has not been run)|anything else \| not tried`)
	pages := files(t, ".md")
	list := pages["docs/not-run.md"]
	found := 0
	for name, text := range pages {
		if name == "docs/not-run.md" || name == "CHANGELOG.md" || !admits.MatchString(fence.ReplaceAllString(text, "")) {
			continue
		}
		found++
		to := must.Get(filepath.Rel("docs", name))(t)
		if !strings.Contains(list, "]("+to+")") && !strings.Contains(list, "]("+to+"#") {
			t.Errorf("%s says what was not run, and docs/not-run.md has nothing of it", name)
		}
	}
	if found < 5 {
		t.Errorf("%d pages say what was not run; the others were not looked for", found)
	}
}

var (
	refers   = regexp.MustCompile(`<(\w+)[^>]*? (?:href|src)="?([^" >]+)`)
	identity = regexp.MustCompile(` id="?([^" >]+)`)
)

// TestSite makes the site and follows its links. It loads nothing from elsewhere, runs only the
// scripts of the search, and works from a disk. The search knows every page.
func TestSite(t *testing.T) {
	t.Parallel()
	env := must.Get(os.ReadFile(filepath.Join(root, ".ci/tools.env")))(t)
	version := regexp.MustCompile(`(?m)^HUGO=(.*)$`).FindSubmatch(env)
	if version == nil {
		t.Fatal(".ci/tools.env has no HUGO")
	}
	hugo := filepath.Join(root, "bin/tools/hugo-"+string(version[1]), "bin/hugo")
	if _, err := os.Stat(hugo); err != nil {
		if os.Getenv("ROWMILL_CI") != "" {
			t.Fatal(err)
		}
		t.Skip("SKIPPED, NOT TESTED: hugo is not here; .ci/tools docs fetches it")
	}
	site := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), hugo, "build", "--source", ".", "--destination", site, "--noBuildLock", "--panicOnWarning", "--quiet").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pages := make(map[string]string)
	must.Succeed(t, fs.WalkDir(os.DirFS(site), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".html" {
			return err
		}
		text, err := os.ReadFile(filepath.Join(site, name))
		pages[name] = string(text)
		return err
	}))
	for name := range files(t, ".md") {
		to := strings.TrimSuffix(name, ".md") + ".html"
		if name == "README.md" {
			to = "index.html"
		}
		if !strings.HasPrefix(name, "internal/") && pages[to] == "" {
			t.Errorf("the site has no page for %s", name)
		}
	}
	index := must.Get(fs.Glob(os.DirFS(site), "sections*.js"))(t)
	if len(index) != 1 {
		t.Fatalf("the site has %d indexes for the search, want 1", len(index))
	}
	sections := string(must.Get(os.ReadFile(filepath.Join(site, index[0])))(t))
	for name, text := range pages {
		if !strings.Contains(sections, `"path":"`+name+`"`) && name != "index.html" {
			t.Errorf("the search does not know %s", name)
		}
		if strings.Count(text, "<script") != 2 || strings.Contains(text, "raw HTML omitted") || !strings.Contains(text, "<h1") || strings.Contains(text, "<title> ") {
			t.Errorf("%s has a script, HTML that is left out, or no heading", name)
		}
		if !strings.Contains(text, `aria-current="page"`) && !strings.HasPrefix(name, "docs/adr/0") && name != "docs/README.html" {
			t.Errorf("%s is not in the menu", name)
		}
		ids := identity.FindAllStringSubmatch(text, -1)
		slices.SortFunc(ids, func(a, b []string) int { return strings.Compare(a[1], b[1]) })
		for i := 1; i < len(ids); i++ {
			if ids[i][1] == ids[i-1][1] {
				t.Errorf("%s has two places %s", name, ids[i][1])
			}
		}
		for _, m := range refers.FindAllStringSubmatch(text, -1) {
			to, err := url.Parse(strings.ReplaceAll(m[2], "&amp;", "&"))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if to.IsAbs() || to.Host != "" {
				if m[1] != "a" {
					t.Errorf("%s loads %s", name, m[2])
				}
				continue
			}
			file := name
			if to.Path != "" {
				file = path.Join(path.Dir(name), to.Path)
			}
			if info, err := os.Stat(filepath.Join(site, file)); err != nil || info.IsDir() || path.IsAbs(to.Path) {
				t.Errorf("%s: %s leads nowhere", name, m[2])
			} else if to.Fragment != "" && !strings.Contains(pages[file], ` id="`+to.Fragment+`"`) && !strings.Contains(pages[file], ` id=`+to.Fragment+`>`) {
				t.Errorf("%s: %s leads to no heading", name, m[2])
			}
		}
	}
}
