package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A block is a fenced block of a page. The fence says what it is: "sh", "python"
// and "go", a whole program, are run, "sh server" is run beside the others until
// the page ends,
// and "text" and "json" are the output of the block before them, in which
// … stands for anything and blanks do not count.
type block struct {
	kind, text string
	line       int // of its first line of text, from 1
	expected   *block
	name       string // page and line, for people
	out, err   string // files of what it wrote
}

// TestClientPages does what a reader of docs/clients and docs/webhooks.md would: it starts what each
// page starts, in an empty directory, runs every block in order, and compares
// the outputs that the page shows.
func TestClientPages(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/clients/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, page := range pages {
		names = append(names, filepath.Base(page))
	}
	if want := []string{"anthropic.md", "cli.md", "curl.md", "go.md", "openai.md", "python-sdk.md", "python.md"}; !slices.Equal(names, want) {
		t.Fatalf("the pages are %q, want %q", names, want)
	}
	for _, page := range append(pages, "../docs/webhooks.md") {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			read(t, filepath.Base(page), string(text))
		})
	}
}

// read runs the blocks of a page.
func read(t *testing.T, page, text string) {
	for _, tool := range []string{"bash", "curl", "jq", "openssl", "python3", "unzip"} {
		if _, err := exec.LookPath(tool); err != nil {
			unable(t, "docs/clients needs %s: %v", tool, err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "python3", "-c", "import requests, polars, openai, anthropic").CombinedOutput(); err != nil {
		unable(t, "python3 lacks requests, polars, openai or anthropic (`.ci/tools python`, and bin/tools/venv/bin in PATH): %v\n%s", err, out)
	}

	blocks, err := fenced(elsewhere(t, text))
	if err != nil {
		t.Fatalf("docs/clients/%s:%v", page, err)
	}
	dir := t.TempDir()
	home, logs := filepath.Join(dir, "reader"), filepath.Join(dir, "logs")
	for _, path := range []string{home, logs} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	path := os.Getenv("PATH")
	if page == "python-sdk.md" {
		path = sdkPath(t, "SUTRO")
	}
	env := []string{"HOME=" + home, "LANG=C.UTF-8", "PATH=" + filepath.Dir(binary) + ":" + path}
	for i := range blocks {
		b := &blocks[i]
		b.name = fmt.Sprintf("docs/clients/%s:%d", page, b.line)
		b.out, b.err = filepath.Join(logs, fmt.Sprintf("%d.out", b.line)), filepath.Join(logs, fmt.Sprintf("%d.err", b.line))
		switch b.kind {
		case "sh server":
			b.serve(t, home, env)
		case "go":
			b.build(t)
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	session := exec.CommandContext(ctx, "bash", "-c", script(t, "docs/clients/"+page, logs, blocks))
	session.Dir, session.Env = home, env
	session.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	session.Cancel = func() error { return syscall.Kill(-session.Process.Pid, syscall.SIGKILL) }
	if said, err := session.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", last(blocks), err, said)
	}
	for _, b := range blocks {
		if b.expected != nil {
			b.compare(t)
		}
	}
}

// elsewhere moves the servers of a page from the ports that it names to free ones.
func elsewhere(t *testing.T, text string) string {
	t.Helper()
	for _, port := range []string{"8088", "8099"} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close() // only then the next port is another
		_, free, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		text = regexp.MustCompile(`\b`+port+`\b`).ReplaceAllString(text, free)
	}
	return text
}

// fenced returns the blocks of a page that are run, with their outputs.
func fenced(text string) (blocks []block, err error) {
	var open *block
	for i, line := range strings.Split(text, "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case !fence && open != nil:
			open.text += line + "\n"
		case !fence:
		case open == nil:
			open = &block{kind: info, line: i + 2}
		case info != "":
			return nil, fmt.Errorf("%d: a block begins within the block of line %d", i+1, open.line)
		default:
			switch b := *open; b.kind {
			case "sh", "python", "go", "sh server":
				if b.kind != "sh server" && b.kind != "python" && slices.ContainsFunc(blocks, func(b block) bool { return b.kind == "python" }) {
					return nil, fmt.Errorf("%d: a block of %s comes after Python, which runs last", b.line, b.kind)
				}
				blocks = append(blocks, b)
			case "text", "json":
				if len(blocks) == 0 || blocks[len(blocks)-1].expected != nil || blocks[len(blocks)-1].kind == "sh server" {
					return nil, fmt.Errorf("%d: an output without a block that makes it", b.line)
				}
				blocks[len(blocks)-1].expected = &b
			default:
				return nil, fmt.Errorf("%d: a block of %q, want sh, sh server, python, go, text or json", b.line, b.kind)
			}
			open = nil
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%d: the block has no end", open.line)
	}
	if len(blocks) < 5 {
		return nil, fmt.Errorf("1: %d blocks only", len(blocks))
	}
	return blocks, nil
}

// program is the file that a block of Go is built to.
func (b *block) program() string { return b.out + ".program" }

// build compiles a program against this module.
func (b *block) build(t *testing.T) {
	t.Helper()
	source := b.out + ".go"
	if err := os.WriteFile(source, []byte(b.text), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", b.program(), source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", b.name, err, said)
	}
}

var servedPort = regexp.MustCompile(`\b\d{4,5}\b`)

// serve runs a block until the test ends, and waits until its port answers.
func (b *block) serve(t *testing.T, dir string, env []string) {
	t.Helper()
	log, err := os.Create(b.err)
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command("bash", "-euc", b.text)
	server.Dir, server.Env, server.Stdout, server.Stderr = dir, env, log, log
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := server.Start(); err != nil {
		t.Fatalf("%s: %v", b.name, err)
	}
	over := make(chan error, 1)
	go func() { over <- server.Wait() }()
	ended := false
	t.Cleanup(func() {
		_ = syscall.Kill(-server.Process.Pid, syscall.SIGKILL) // it may be gone already
		if !ended {
			<-over
		}
		log.Close()
		if t.Failed() {
			t.Logf("%s says:\n%s", b.name, tail(b.err))
		}
	})
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		response, err := client.Get("http://127.0.0.1:" + servedPort.FindString(b.text) + "/readyz")
		if err == nil {
			response.Body.Close()
			if response.StatusCode < http.StatusInternalServerError { // a file server knows no /readyz
				return
			}
		}
		select {
		case err := <-over:
			ended = true
			t.Fatalf("%s: the server ended: %v", b.name, err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: nothing answers: %v", b.name, err)
		}
	}
}

// interpreter runs blocks of Python as one program, in which the lines have
// the numbers of the page.
const interpreter = `import json, sys
scope = {"__name__": "__main__"}
for block in json.load(open(sys.argv[1])):
    sys.stdout, sys.stderr = open(block["out"], "w"), open(block["err"], "w")
    try:
        exec(compile("\n" * (block["line"] - 1) + block["text"], block["page"], "exec"), scope)
    except BaseException:
        import traceback
        traceback.print_exc()
        sys.exit(1)
    finally:
        sys.stdout.close()
        sys.stderr.flush()
`

// script returns one session of a shell that runs the blocks, each with its
// output in its files; the first that fails ends it.
func script(t *testing.T, page, logs string, blocks []block) string {
	t.Helper()
	type step struct {
		Page string `json:"page"`
		Line int    `json:"line"`
		Text string `json:"text"`
		Out  string `json:"out"`
		Err  string `json:"err"`
	}
	var shell strings.Builder
	shell.WriteString("set -euo pipefail\nexec </dev/null\n")
	var program []step
	for _, b := range blocks {
		switch b.kind {
		case "sh":
			fmt.Fprintf(&shell, "exec >'%s' 2>'%s'\n%s", b.out, b.err, b.text)
		case "go":
			fmt.Fprintf(&shell, "exec >'%s' 2>'%s'\n'%s'\n", b.out, b.err, b.program())
		case "python":
			program = append(program, step{page, b.line, b.text, b.out, b.err})
		}
	}
	if program != nil {
		data, err := json.Marshal(program)
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{"blocks.json": data, "run.py": []byte(interpreter)} {
			if err := os.WriteFile(filepath.Join(logs, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintf(&shell, "python3 '%s' '%s'\n", filepath.Join(logs, "run.py"), filepath.Join(logs, "blocks.json"))
	}
	return shell.String()
}

// last describes the last block that was begun.
func last(blocks []block) string {
	for _, b := range slices.Backward(blocks) {
		if b.kind == "sh server" {
			continue
		}
		if _, err := os.Stat(b.out); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("%s failed\n%s\n--- output\n%s\n--- errors\n%s", b.name, b.text, tail(b.out), tail(b.err))
		}
	}
	return "no block was begun"
}

// compare fails unless a block wrote what the page shows.
func (b *block) compare(t *testing.T) {
	t.Helper()
	got, err := os.ReadFile(b.out)
	if err != nil {
		t.Fatal(err)
	}
	if !matches(b.expected.text, string(got)) {
		t.Errorf("%s: the output is not that of line %d, but\n%s", b.name, b.expected.line, got)
	}
}

// matches reports whether got is pattern, in which … stands for anything; blanks
// do not count.
func matches(pattern, got string) bool {
	bare := func(text string) string { return strings.Join(strings.Fields(text), "") }
	expression := strings.ReplaceAll(regexp.QuoteMeta(bare(pattern)), "…", ".*")
	return regexp.MustCompile("^" + expression + "$").MatchString(bare(got))
}

// TestPagesAreCompared tries the comparison and the reader of blocks themselves.
func TestPagesAreCompared(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, got string
		want         bool
	}{
		{`{"id": "job-…", "n": 1}`, `{"id":"job-0a","n":1}`, true},
		{`{"id": "job-…", "n": 1}`, `{"id":"job-0a","n":2}`, false},
		{"a (b)\n…\n", "a (b)\nc\nd\n", true},
		{"a", "ab", false},
		{"", "a", false},
	} {
		if got := matches(c.pattern, c.got); got != c.want {
			t.Errorf("%q and %q: %v, want %v", c.pattern, c.got, got, c.want)
		}
	}
	for _, page := range []string{"```sh\ntrue\n", "```rust\n```\n", "```text\n```\n", "```python\n```\n```sh\n```\n", "```python\n```\n```go\n```\n", "```sh\n```sh\n"} {
		if blocks, err := fenced(page); err == nil || strings.Contains(err.Error(), "blocks only") {
			t.Errorf("%q is read as %+v, %v", page, blocks, err)
		}
	}
}

func tail(path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(data[max(0, len(data)-4096):])
}
