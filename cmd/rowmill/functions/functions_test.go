package functions

import (
	"fmt"
	"io"
	nethttp "net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/internal/clitest"
	"github.com/rowmill/rowmill/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A program is the commands with a service that answers each run with output.
type program struct {
	*clitest.Program
	dir    string
	output string   // of every run, as JSON
	runs   []string // the bodies of runs
}

func start(t *testing.T) *program {
	t.Helper()
	p := &program{dir: t.TempDir(), output: `"B+"`}
	p.Program = clitest.Start(t, clitest.Config{
		Commands: func(service connect.Options) []*cobra.Command { return []*cobra.Command{Command(service)} },
		Wrap: func(api nethttp.Handler) nethttp.Handler {
			return nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
				if !strings.HasSuffix(r.URL.Path, "/run") {
					api.ServeHTTP(w, r)
					return
				}
				body, _ := io.ReadAll(r.Body)
				p.runs = append(p.runs, r.URL.Path+" "+string(body))
				fmt.Fprintf(w, `{"job_id":"job-1","function":{"name":"f","revision":1,"model":"m"},"output":%s}`, p.output)
			})
		},
	})
	return p
}

// file writes a file and returns its path.
func (p *program) file(name, text string) string {
	p.Helper()
	path := filepath.Join(p.dir, name)
	must.Succeed(p, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// run runs a command and checks its exit code and the texts of its output. It returns
// standard output.
func (p *program) run(code int, args []string, texts ...string) string {
	p.Helper()
	p.RunArgs(append([]string{"functions"}, args...)...).WantOutput(code, texts...)
	return p.Out.String()
}

const grade = `name: grade
description: grades an essay
model: llama-3.1-8b
inputs:
  - name: essay
    required: true
  - name: level
    required: false
    description: from 1 to 9
system_prompt: You are a teacher.
prompt: |
  Grade {{essay}}
  at level {{level}}.
sampling_params:
  seed: 9007199254740993
  temperature: 0.5
json_schema:
  properties:
    grade:
      maximum: 9007199254740993
      type: integer
  type: object
`

// get prints the published file unchanged.
func TestPublishAndGet(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.run(0, []string{"publish", p.file("grade.yaml", grade)}, "revision 1 of grade is published")
	if got := p.run(0, []string{"get", "grade"}); got != grade {
		t.Errorf("got\n%s", got)
	}
	text := p.run(0, []string{"get", "grade", "-o", "json"}, `"revision": 1`)
	p.run(0, []string{"publish", p.file("grade.json", text)}, "revision 2 of grade is published")
	if got := p.run(0, []string{"get", "grade"}); got != grade {
		t.Errorf("published as JSON it is\n%s", got)
	}
	p.Stdin = strings.Replace(grade, "teacher", "tutor", 1)
	p.run(0, []string{"publish", "-", "--draft"}, "revision 3 of grade is a draft", "functions rollback grade 3")
	p.run(0, []string{"get", "grade"}, "teacher")
	p.run(0, []string{"get", "grade", "--revision", "3"}, "tutor")
	p.run(0, []string{"rollback", "grade", "3"}, "revision 3 of grade is published")
	p.run(0, []string{"get", "grade"}, "tutor")
	p.run(0, []string{"unpublish", "grade"}, "grade is not published any more")
	p.run(5, []string{"get", "grade"}, "unknown_function")
	p.run(5, []string{"get", "grade", "--revision", "4"}, "no revision 4 of grade")
	p.run(5, []string{"rollback", "grade", "4"}, "unknown_revision")
	p.run(5, []string{"unpublish", "grade"}, "unknown_function")
}

func TestLists(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.run(0, []string{"list", "-o", "json"}, `"functions": []`)
	p.run(0, []string{"publish", p.file("grade.yaml", grade)})
	p.run(0, []string{"publish", p.file("grade.yaml", grade)})
	if got := strings.Count(p.run(0, []string{"list"}, "grade  2         llama-3.1-8b  essay, level?", "grades an essay"), "\n"); got != 2 {
		t.Errorf("%d lines", got)
	}
	if got := strings.Count(p.run(0, []string{"revisions", "grade"}), "\n"); got != 3 {
		t.Errorf("%d lines", got)
	}
	p.run(0, []string{"revisions", "grade", "-o", "json"}, `"revisions": [`, `"system_prompt": "You are a teacher."`)
	p.run(2, []string{"list", "-o", "yaml"}, "table or json")
	p.run(0, []string{"list", "--account", "acme", "-o", "json"}, `"functions": []`)
}

func TestDiff(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.run(0, []string{"publish", p.file("grade.yaml", grade)})
	p.run(5, []string{"diff", "grade"}, "nothing to compare")
	p.run(0, []string{"publish", p.file("grade.yaml", strings.Replace(grade, "You are a teacher.", `"You are a tutor\e[31m."`, 1))})
	p.run(0, []string{"publish", p.file("grade.yaml", strings.Replace(grade, "0.5", "1", 1))})
	changed := func(args ...string) (lines []string) {
		for line := range strings.Lines(p.run(0, append([]string{"diff", "grade"}, args...))) {
			if line[0] != ' ' {
				lines = append(lines, strings.TrimSuffix(line, "\n"))
			}
		}
		return lines
	}
	for _, test := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"--- grade revision 2", "+++ grade revision 3", `-system_prompt: "You are a tutor\e[31m."`, "+system_prompt: You are a teacher.", "-  temperature: 0.5", "+  temperature: 1"}},
		{[]string{"1", "3"}, []string{"--- grade revision 1", "+++ grade revision 3", "-  temperature: 0.5", "+  temperature: 1"}},
		{[]string{"1"}, []string{"--- grade revision 1", "+++ grade revision 3", "-  temperature: 0.5", "+  temperature: 1"}},
		{[]string{"2", "2"}, []string{"--- grade revision 2", "+++ grade revision 2"}},
	} {
		if got := changed(test.args...); !slices.Equal(got, test.want) {
			t.Errorf("%q: %q", test.args, got)
		}
	}
	p.run(5, []string{"diff", "grade", "9"}, "no revision 9")
	p.run(2, []string{"diff", "grade", "x"}, "whole number")
}

func TestRun(t *testing.T) {
	t.Parallel()
	p := start(t)
	if got := p.run(0, []string{"run", "f", "essay=a=b", "level="}); got != "B+\n" {
		t.Errorf("printed %q", got)
	}
	p.output, p.Stdin = "[0.5,1]", `"ready"`
	p.run(0, []string{"run", "f", "--input", "-"}, "[0.5,1]")
	p.run(0, []string{"run", "f/g", "--input", p.file("in.json", `{"n": 12345678901234567890}`), "-o", "json"}, `"job_id": "job-1"`)
	p.run(0, []string{"run", "f", "--revision", "1", "essay=a"}, "[0.5,1]")
	want := []string{
		`/v1/functions/f/run {"input":{"essay":"a=b","level":""}}`, `/v1/functions/f/run {"input":"ready"}`,
		`/v1/functions/f/g/run {"input":{"n":12345678901234567890}}`,
		`/v1/functions/f/run {"input":{"essay":"a"},"revision":1}`,
	}
	if !slices.Equal(p.runs, want) {
		t.Errorf("sent %q", p.runs)
	}
	p.run(2, []string{"run", "f", "essay"}, "must be FIELD=VALUE")
	p.run(2, []string{"run", "f", "a=1", "a=2"}, "given twice")
	p.run(2, []string{"run", "f", "a=1", "--input", "-"}, "exclude each other")
	p.run(2, []string{"run", "f", "--input", p.file("bad.json", "{")}, "is not JSON")
	if len(p.runs) != len(want) {
		t.Errorf("sent %q", p.runs)
	}
}

func TestPublishRefusals(t *testing.T) {
	t.Parallel()
	p := start(t)
	for text, piece := range map[string]string{
		"":                    "it is empty",
		"null":                "it is null",
		"- a":                 "not a definition",
		"a: [":                "not a definition",
		"a: 1\n---\nb: 2":     "more than one document",
		"a: {1: 2}":           "cannot be sent as JSON",
		"name: .nan\na: .inf": "cannot be sent as JSON",
	} {
		p.run(2, []string{"publish", p.file("f.yaml", text)}, piece)
	}
	p.run(2, []string{"publish", filepath.Join(p.dir, "none.yaml")}, "no such file")
	p.run(1, []string{"publish", p.file("f.yaml", strings.Replace(grade, "{{level}}", "{{lvl}}", 1)+"tools: []\n")},
		"{{lvl}} is not among the declared inputs", "tools: is unknown")
	p.run(5, []string{"revisions", "grade"})
}

func TestDiffOfTexts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ before, after, want string }{
		{"", "", ""},
		{"a\n", "a\n", " a"},
		{"", "a\nb\n", "+a +b"},
		{"a\nb\n", "", "-a -b"},
		{"a\nb\nc\nd", "a\nx\nc\ny\nd", " a -b +x  c +y  d"},
		{"a\nb", "b\na", "-a  b +a"},
	} {
		if got := strings.Join(diffLines(test.before, test.after), " "); got != test.want {
			t.Errorf("%q, %q: %q, want %q", test.before, test.after, got, test.want)
		}
	}
	var before, after strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&before, "a%d\n", i)
		fmt.Fprintf(&after, "b%d\n", i)
	}
	if got := diffLines("x\n"+before.String()+"y\n", "x\n"+after.String()+"y\n"); len(got) != 10_002 || got[1] != "-a0" || got[5001] != "+b0" {
		t.Errorf("%d lines", len(got))
	}
}
