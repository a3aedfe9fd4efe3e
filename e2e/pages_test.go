package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rowmill/rowmill/internal/llama"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/port"
	"github.com/rowmill/rowmill/internal/promtest"
	"github.com/rowmill/rowmill/internal/s3test"
	"github.com/rowmill/rowmill/internal/wait"
)

// A block is a fenced block of a page, or an HTML comment that begins with its kind and
// that the page does not show. The fence names its kind:
//
//	sh, python, go        run, in order; Python as one program, last
//	sh server             run in the background from the start
//	sh background         run in the background from its place on
//	yaml NAME, conf NAME, python NAME, sql NAME
//	                      a file with this name, for the following blocks
//	text, json            the output of the block before; … means any text, and
//	                      spaces do not count
//	… not run: WHY        a block that is shown and not run
//	text shown, yaml      only shown; json too, on pages that run nothing
type block struct {
	kind, text string
	line       int // line number of its first text line, from 1
	expected   *block
	name       string // page and line, for people
	out, err   string // files of its output
}

// TestPages follows README.md, docs and other pages like a reader: it starts the
// servers of each page, in an empty directory, runs every block in order, and compares
// the output with the page. A block that is not run must give a reason.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		text := must.Get(os.ReadFile(filepath.Join("..", page)))(t)
		blocks, err := fenced(string(text))
		if err != nil {
			t.Errorf("%s:%v", page, err)
			continue
		}
		if clients := filepath.Dir(page) == "docs/clients"; len(blocks) == 0 && !clients {
			continue
		} else if clients && len(blocks) < 5 {
			t.Errorf("%s: %d blocks only", page, len(blocks))
		}
		if page == recipes {
			continue
		}
		t.Run(strings.TrimPrefix(page, "docs/"), func(t *testing.T) {
			t.Parallel()
			read(t, page, string(text))
		})
	}
}

// recipes is the page with programs that take long to start.
const recipes = "docs/clients/recipes.md"

// TestRecipes follows the page recipes. It does not run beside other tests of this package, because its
// programs need the processors for themselves to end in time.
func TestRecipes(t *testing.T) {
	read(t, recipes, string(must.Get(os.ReadFile(filepath.Join("..", recipes)))(t)))
}

// pages returns all pages of the repository with instructions.
func pages(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "bench/*.md", "deploy/*.md", "examples/*.md"} {
		found := must.Get(filepath.Glob(filepath.Join("..", pattern)))(t)
		for _, name := range found {
			names = append(names, strings.TrimPrefix(name, "../"))
		}
	}
	if len(names) < 50 {
		t.Fatalf("there are %d pages only: %q", len(names), names)
	}
	return names
}

// read runs the blocks of a page.
func read(t *testing.T, page, text string) {
	for _, tool := range []string{"bash", "curl", "jq", "openssl", "python3", "unzip"} {
		if _, err := exec.LookPath(tool); err != nil {
			unable(t, "the pages need %s: %v", tool, err)
		}
	}
	needPython(t)

	dir := t.TempDir()
	home, logs := filepath.Join(dir, "reader"), filepath.Join(dir, "logs")
	for _, path := range []string{home, logs} {
		must.Succeed(t, os.Mkdir(path, 0o700))
	}
	text, server := elsewhere(t, text, home)
	blocks, err := fenced(text)
	if err != nil {
		t.Fatalf("%s:%v", page, err)
	}
	path := os.Getenv("PATH")
	if page == "docs/clients/python-sdk.md" {
		path = sdkPath(t, "SUTRO")
	}
	source, err := filepath.Abs("..")
	must.Succeed(t, err)
	env := []string{
		"HOME=" + home, "LANG=C.UTF-8", "PATH=" + filepath.Dir(binary) + ":" + path + ":" + tools(t, page, dir), "SOURCE=" + source,
		"ROWMILL_SERVER=" + server, // the default, for pages that do not set it
		"ROWMILL_LLAMA_DIR=" + llama.Dir(),
	}
	for i := range blocks {
		b := &blocks[i]
		b.name = fmt.Sprintf("%s:%d", page, b.line)
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
	session := exec.CommandContext(ctx, "bash", "-c", script(t, page, logs, blocks))
	session.Dir, session.Env = home, env
	session.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	session.Cancel = func() error { return syscall.Kill(-session.Process.Pid, syscall.SIGKILL) }
	said, err := session.CombinedOutput()
	_ = syscall.Kill(-session.Process.Pid, syscall.SIGKILL) // ends background processes, if there are any
	if err != nil {
		t.Fatalf("%s: %v\n%s", last(blocks), err, said)
	}
	for _, b := range blocks {
		if b.expected != nil {
			b.compare(t)
		}
	}
}

// packages checks that python3 has the packages. Loading them takes seconds.
var packages = sync.OnceValues(func() (said []byte, err error) {
	return exec.Command("python3", "-c", "import requests, polars, openai, anthropic").CombinedOutput()
})

// needPython skips the test if python3 lacks a package that pages and clients import.
func needPython(t *testing.T) {
	t.Helper()
	if said, err := packages(); err != nil {
		unable(t, "python3 lacks requests, polars, openai or anthropic (`.ci/tools python`, and bin/tools/venv/bin in PATH): %v\n%s", err, said)
	}
}

// tools returns a folder of programs that a page calls and that the system does not
// have.
func tools(t *testing.T, page, dir string) string {
	t.Helper()
	folder := filepath.Join(dir, "tools")
	must.Succeed(t, os.Mkdir(folder, 0o700))
	programs := make(map[string]string)
	switch page {
	case "docs/cluster.md":
		if _, err := exec.LookPath("redis-server"); err != nil {
			unable(t, "no redis-server on this machine: %v", err)
		}
		program, err := s3test.Binary()
		if errors.Is(err, s3test.ErrNotInstalled) {
			unable(t, "%v", err)
		} else if err != nil {
			t.Fatal(err)
		}
		programs["versitygw"] = program
	case "docs/monitoring.md":
		programs["promtool"] = promtest.Tool(t, "promtool")
	case "docs/clients/recipes.md":
		llama.Program(t)
		for _, name := range []string{"airflow", "dagster", "dbt"} {
			programs[name] = "../bin/tools/" + name + "/bin/" + name
			if _, err := os.Stat("../bin/tools/" + name + "/complete"); err != nil {
				unable(t, "%[1]s is not there (`.ci/tools %[1]s`): %[2]v", name, err)
			}
		}
	}
	for name, program := range programs {
		program, err := filepath.Abs(program)
		if err == nil {
			err = os.Symlink(program, filepath.Join(folder, name))
		}
		must.Succeed(t, err)
	}
	return folder
}

// elsewhere replaces addresses and folders in a page, so that tests do not disturb each
// other: ports of servers by reserved ones, machines 10.0.0.N by addresses of this
// machine that depend on a reserved port, and system folders by the reader's. It also
// returns the server that is the default in the page.
func elsewhere(t *testing.T, text, home string) (moved, server string) {
	t.Helper()
	own := port.ReserveForTest(t)
	for named, free := range map[string]*port.Reservation{"8088": own, "8099": port.ReserveForTest(t), "8000": port.ReserveForTest(t)} {
		text = regexp.MustCompile(`\b`+named+`\b`).ReplaceAllString(text, strconv.Itoa(free.Port))
	}
	text = strings.ReplaceAll(text, "10.0.0.", fmt.Sprintf("127.%d.%d.", own.Port>>8, own.Port&0xff))
	return regexp.MustCompile(`(^|[\s"])/(etc/rowmill|srv|mnt)\b`).ReplaceAllString(text, "${1}"+home+"/$2"), "http://" + own.Address
}

// fenced returns the blocks of a page that are run, with their outputs.
func fenced(text string) (blocks []block, err error) {
	var (
		open    *block
		outputs []*block // without a block that writes them
		before  string
	)
	add := func(b block) error {
		if info, why, is := strings.Cut(b.kind, " not run:"); is {
			if !slices.Contains([]string{"sh", "python", "go"}, info) || len(strings.Fields(why)) < 3 {
				return fmt.Errorf("%d: a block that is not run says of what kind it is, and why", b.line)
			}
			return nil
		}
		kind, file, _ := strings.Cut(b.kind, " ")
		switch {
		case b.kind == "sh", b.kind == "python", b.kind == "go", b.kind == "sh server", b.kind == "sh background":
			if b.kind != "sh server" && b.kind != "python" && slices.ContainsFunc(blocks, func(b block) bool { return b.kind == "python" }) {
				return fmt.Errorf("%d: a block of %s comes after Python, which runs last", b.line, b.kind)
			}
			blocks = append(blocks, b)
		case b.kind == "text shown", b.kind == "yaml":
		case slices.Contains([]string{"yaml", "conf", "python", "sql"}, kind) && file != "":
			b.kind, b.text = "sh", fmt.Sprintf("cat > '%s' <<'END OF THE FILE'\n%sEND OF THE FILE\n", file, b.text)
			blocks = append(blocks, b)
		case b.kind == "text", b.kind == "json":
			if len(blocks) == 0 || blocks[len(blocks)-1].expected != nil || !slices.Contains([]string{"sh", "python", "go"}, blocks[len(blocks)-1].kind) {
				outputs = append(outputs, &b)
				break
			}
			blocks[len(blocks)-1].expected = &b
		default:
			return fmt.Errorf("%d: a block of %q", b.line, b.kind)
		}
		return nil
	}
	for i, line := range strings.Split(text, "\n") {
		info, fence := strings.CutPrefix(line, "```")
		hidden, comment := strings.CutPrefix(line, "<!-- sh")
		switch {
		case open != nil && (line == "```" || line == "-->"):
			if err := add(*open); err != nil {
				return nil, err
			}
			open = nil
		case open != nil && fence && info != "":
			return nil, fmt.Errorf("%d: a block begins within the block of line %d", i+1, open.line)
		case open != nil:
			open.text += line + "\n"
		case fence:
			open = &block{kind: info, line: i + 2}
		case comment:
			open = &block{kind: "sh" + hidden, line: i + 2}
		case before == "" && strings.HasPrefix(line, "    "):
			return nil, fmt.Errorf("%d: a block without a fence, which could say whether it is run", i+1)
		}
		before = line
	}
	if open != nil {
		return nil, fmt.Errorf("%d: the block has no end", open.line)
	}
	if len(outputs) > 0 && len(blocks) > 0 {
		return nil, fmt.Errorf("%d: an output without a block that makes it", outputs[0].line)
	}
	return blocks, nil
}

// program is the path of the program for a block of Go.
func (b *block) program() string { return b.out + ".program" }

// build compiles a program against this module.
func (b *block) build(t *testing.T) {
	t.Helper()
	source := b.out + ".go"
	must.Succeed(t, os.WriteFile(source, []byte(b.text), 0o600))
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
	log := must.Get(os.Create(b.err))(t)
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
		_ = syscall.Kill(-server.Process.Pid, syscall.SIGKILL) // it may have ended already
		if !ended {
			<-over
		}
		log.Close()
		if t.Failed() {
			t.Logf("%s says:\n%s", b.name, tail(b.err))
		}
	})
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	wait.For(t, b.name+" answers", func() bool {
		response, err := client.Get("http://127.0.0.1:" + servedPort.FindString(b.text) + "/readyz")
		if err == nil {
			response.Body.Close()
			if response.StatusCode < http.StatusInternalServerError { // a file server has no /readyz
				return true
			}
		}
		select {
		case err := <-over:
			ended = true
			t.Fatalf("%s: the server ended: %v", b.name, err)
		default:
		}
		return false
	})
}

// interpreter runs blocks of Python as one program with the line numbers of the page.
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

// script returns a shell session that runs the blocks and writes each one's output to
// its files. The first block that fails ends the session.
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
		case "sh background":
			fmt.Fprintf(&shell, "(\n%s) >'%s' 2>'%s' &\n", b.text, b.out, b.err)
		case "go":
			fmt.Fprintf(&shell, "exec >'%s' 2>'%s'\n'%s'\n", b.out, b.err, b.program())
		case "python":
			program = append(program, step{page, b.line, b.text, b.out, b.err})
		}
	}
	if program != nil {
		data := must.Get(json.Marshal(program))(t)
		for name, content := range map[string][]byte{"blocks.json": data, "run.py": []byte(interpreter)} {
			must.Succeed(t, os.WriteFile(filepath.Join(logs, name), content, 0o600))
		}
		fmt.Fprintf(&shell, "python3 '%s' '%s'\n", filepath.Join(logs, "run.py"), filepath.Join(logs, "blocks.json"))
	}
	return shell.String()
}

// last describes the last block that started.
func last(blocks []block) string {
	for _, b := range slices.Backward(blocks) {
		if b.kind == "sh server" || b.kind == "sh background" {
			continue
		}
		if _, err := os.Stat(b.out); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("%s failed\n%s\n--- output\n%s\n--- errors\n%s", b.name, b.text, tail(b.out), tail(b.err))
		}
	}
	return "no block was begun"
}

// compare fails unless the output of a block is as on the page.
func (b *block) compare(t *testing.T) {
	t.Helper()
	got := must.Get(os.ReadFile(b.out))(t)
	if !matches(b.expected.text, string(got)) {
		t.Errorf("%s: the output is not that of line %d, but\n%s", b.name, b.expected.line, got)
	}
}

// matches reports whether got matches pattern. In pattern, … means any text; spaces do
// not count.
func matches(pattern, got string) bool {
	bare := func(text string) string { return strings.Join(strings.Fields(text), "") }
	expression := strings.ReplaceAll(regexp.QuoteMeta(bare(pattern)), "…", ".*")
	return regexp.MustCompile("^" + expression + "$").MatchString(bare(got))
}

// TestPagesAreCompared tests the comparison and the block parser.
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
	for _, page := range []string{
		"```sh\ntrue\n", "```rust\n```\n", "```\n```\n", "```sh\n```\n```text\n```\n```text\n```\n", "```sh server\n```\n```text\n```\n",
		"```python\n```\n```sh\n```\n", "```python\n```\n```go\n```\n", "```sh\n```sh\n",
		"```sh not run: because\n```\n", "```text not run: it is an output of something\n```\n", "<!-- sh\ntrue\n", "Say:\n\n    true\n",
	} {
		if blocks, err := fenced(page); err == nil {
			t.Errorf("%q is read as %+v", page, blocks)
		}
	}
	page := "```sh not run: it takes a cluster\nkubectl\n```\n<!-- sh\ntrue\n-->\n```yaml a/b.yaml\na: 1\n```\n```text shown\n```\n```yaml\n```\n"
	blocks, err := fenced(page)
	if err != nil || len(blocks) != 2 || blocks[0].text != "true\n" || !strings.HasPrefix(blocks[1].text, "cat > 'a/b.yaml'") {
		t.Errorf("%q is read as %+v, error %v", page, blocks, err)
	}
}

func tail(path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(data[max(0, len(data)-4096):])
}
