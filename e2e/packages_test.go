package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// A pypi is a package of PyPI that uses batches by a base URL. Its program is
// testdata/packages/NAME.py.
type pypi struct {
	name, pin string
	shared    bool   // it runs in the environment of the small packages
	model     string // if the package accepts only some model names
	refused   refusalKept
	parses    bool // it asks for objects, so answers differ from the answers to plain prompts
}

// A refusalKept says how a package handles a request that the server refuses.
type refusalKept uint8

const (
	tellsRefusal refusalKept = iota // it reports the row
	dropsRefusal                    // it does not read the error file of a batch
	breaksOnIt                      // it loses or misnumbers the other rows, so it gets no such request
)

var pypis = []pypi{
	{name: "batch-openai", pin: "BATCH_OPENAI", shared: true},
	{name: "batchkit-ai", pin: "BATCHKIT_AI", shared: true},
	{name: "openai-batch", pin: "OPENAI_BATCH", shared: true},
	{name: "openai-batch-helper", pin: "OPENAI_BATCH_HELPER", shared: true},
	{name: "openai-batch-sdk", pin: "OPENAI_BATCH_SDK", shared: true},
	{name: "OpenaiBatchAPI", pin: "OPENAIBATCHAPI", shared: true, model: "gpt-4o-mini"},
	{name: "openapi-batch", pin: "OPENAPI_BATCH", shared: true},
	{name: "openbatch", pin: "OPENBATCH", shared: true},
	{name: "any-llm-sdk", pin: "ANY_LLM_SDK", refused: dropsRefusal},
	{name: "autobatcher", pin: "AUTOBATCHER"},
	{name: "distilabel", pin: "DISTILABEL", refused: breaksOnIt},
	{name: "inspect-ai", pin: "INSPECT_AI", refused: breaksOnIt},
	{name: "instructor", pin: "INSTRUCTOR", refused: dropsRefusal, parses: true},
	{name: "litellm", pin: "LITELLM"},
	{name: "portkey-ai", pin: "PORTKEY_AI"},
}

// A packageReport is the output of a program of testdata/packages.
type packageReport struct {
	Version string
	Answers []packageAnswer
	Failed  []int
	Usage   []int // input and output tokens, of packages with a sum
}

type packageAnswer struct {
	Row    int
	Text   string
	Input  int `json:"input_tokens"`
	Output int `json:"output_tokens"`
}

// TestPackages runs packages of PyPI, unmodified, against a node. It compares their
// results with the inference server's answers to single requests.
func TestPackages(t *testing.T) {
	t.Parallel()
	if os.Getenv("ROWMILL_PACKAGES") == "" {
		t.Skip("runs in make suites, which installs 1 GB of packages")
	}
	s := startSimulated(t, "--ttft", "1ms", "--per-token", "0s")
	catalog := filepath.Join(t.TempDir(), "catalog.yaml")
	must.Succeed(t, os.WriteFile(catalog, []byte("extends: default\naliases: {gpt-4o-mini: llama-3.1-8b}\n"), 0o600))
	n := on(t, "catalog: "+catalog, s).start(t)
	prompts := []string{"Wie geht's, Müller? 三", "two\nlines", "\u2028 and \u0085", `"quoted" \ {}`}
	for i := range 30 {
		prompts = append(prompts, fmt.Sprintf("What is %d?", i))
	}
	const refused = 7
	prompts[refused] = "[[sim:reject]]"
	want := make([]packageAnswer, len(prompts))
	for i, prompt := range prompts {
		if i != refused {
			want[i] = askAlone(t, s.url, prompt)
		}
	}
	for _, p := range pypis {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			prompts, want, failed := slices.Clone(prompts), slices.Clone(want), []int{refused}
			if p.refused == breaksOnIt {
				prompts[refused], want[refused], failed = prompts[0], want[0], nil
			} else {
				want[refused].Row = -1
			}
			if p.refused == dropsRefusal {
				failed = nil
			}
			p.check(t, p.run(t, n, prompts), want, failed)
		})
	}
}

// askAlone asks an inference server for one answer.
func askAlone(t *testing.T, server, prompt string) packageAnswer {
	t.Helper()
	body := must.Get(json.Marshal(map[string]any{
		"model": "llama-3.1-8b", "max_tokens": 8, "messages": []any{map[string]any{"role": "user", "content": prompt}},
	}))(t)
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, server+"/v1/chat/completions", bytes.NewReader(body)))(t)
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	must.Succeed(t, err)
	defer response.Body.Close()
	var got struct {
		Choices []struct{ Message struct{ Content string } }
		Usage   struct {
			Input  int `json:"prompt_tokens"`
			Output int `json:"completion_tokens"`
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil || len(got.Choices) != 1 {
		t.Fatalf("the server answers %q with status %d: %v", prompt, response.StatusCode, err)
	}
	return packageAnswer{Text: got.Choices[0].Message.Content, Input: got.Usage.Input, Output: got.Usage.Output}
}

// run runs the program of a package and reads its report.
func (p pypi) run(t *testing.T, n *node, prompts []string) (got packageReport) {
	t.Helper()
	python := filepath.Join("..", "bin", "tools", "packages", "bin", "python3")
	if !p.shared {
		python = filepath.Join(pythonTool(t, p.name, p.pin), "python3")
	} else if _, err := os.Stat(python); err != nil {
		unable(t, "the packages are not there (`.ci/tools packages`): %v", err)
	}
	model := p.model
	if model == "" {
		model = "llama-3.1-8b"
	}
	folder := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	args := append([]string{"testdata/packages/" + p.name + ".py", n.base, apiKey, model, folder}, prompts...)
	c := exec.CommandContext(ctx, python, args...)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder, "LANG=C.UTF-8", "TMPDIR=" + folder, "PYTHONDONTWRITEBYTECODE=1"}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	said, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", p.name, err, said[max(0, len(said)-4000):])
	}
	_, line, found := bytes.Cut(said, []byte("\nREPORT "))
	line, _, _ = bytes.Cut(line, []byte("\n"))
	if err := json.Unmarshal(line, &got); err != nil || !found {
		t.Fatalf("%s reports nothing: %v\n%s", p.name, err, said[max(0, len(said)-4000):])
	}
	return got
}

// check compares the report of a package with the answers of the server. In the
// answers, row -1 means no answer.
func (p pypi) check(t *testing.T, got packageReport, want []packageAnswer, failed []int) {
	t.Helper()
	if version := toolVersion(t, p.pin); got.Version != version {
		t.Errorf("version %s, want %s", got.Version, version)
	}
	if !slices.Equal(got.Failed, failed) {
		t.Errorf("the package says that rows %v failed, want %v", got.Failed, failed)
	}
	answers := got.Answers
	var input, output int
	for i, w := range want {
		if w.Row < 0 {
			continue
		}
		w.Row = i
		if len(answers) == 0 || answers[0].Row != i {
			t.Fatalf("row %d is not the next of %v", i, answers)
		}
		a := answers[0]
		answers, input, output = answers[1:], input+w.Input, output+w.Output
		if p.parses {
			var card struct{ Word, Count any }
			if err := json.Unmarshal([]byte(a.Text), &card); err != nil || card.Word == nil || card.Count == nil || a.Output < 8 {
				t.Errorf("row %d: %+v: %v", i, a, err)
			}
			w.Text, w.Output = a.Text, a.Output
		}
		if a != w {
			t.Errorf("row %d: %+v, want %+v", i, a, w)
		}
	}
	if len(answers) > 0 {
		t.Errorf("%d answers too many: %v", len(answers), answers)
	}
	if sums := []int{input, output}; got.Usage != nil && !slices.Equal(got.Usage, sums) {
		t.Errorf("the package counts %v tokens, want %v", got.Usage, sums)
	}
}

// TestPackagesAreDocumented compares the table of packages with their programs and with
// the page that lists them.
func TestPackagesAreDocumented(t *testing.T) {
	t.Parallel()
	found := must.Get(filepath.Glob("testdata/packages/*.py"))(t)
	page := must.Get(os.ReadFile("../docs/clients/openai.md"))(t)
	want := []string{"testdata/packages/rows.py"}
	for _, p := range pypis {
		want = append(want, "testdata/packages/"+p.name+".py")
		if row := "\n| " + p.name + " " + toolVersion(t, p.pin); !strings.Contains(string(page), row) {
			t.Errorf("docs/clients/openai.md has no row %q", row[1:])
		}
	}
	slices.Sort(want)
	slices.Sort(found)
	if !slices.Equal(found, want) {
		t.Errorf("programs %v\nwant %v", found, want)
	}
}
