// Package golden compares the output of a program with a file. A failing test prints
// the difference. The flag -update writes the files again; read the changes before you
// commit them. The package does not know the meaning of the texts.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/internal/must"
)

var update = flag.Bool("update", false, "write the golden files again")

// prompt is the start of a command line in a script.
const prompt = "$ "

// CheckFile checks that a text equals the content of a file.
func CheckFile(t testing.TB, path, got string) {
	t.Helper()
	if *update {
		must.Succeed(t, write(path, got))
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run the test with -update to write the file", err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s differs (-file +now); run the test with -update to write it again:\n%s", path, diff)
	}
}

func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// CheckScript runs the commands of a file, which are the lines that begin with "$ ", and
// checks that each command's output follows its line. Empty lines and lines with #
// before a command are remarks.
func CheckScript(t testing.TB, path string, run func(command string) string) {
	t.Helper()
	text := must.Get(os.ReadFile(path))(t)
	now, commands := replay(string(text), run)
	if commands == 0 {
		t.Fatalf("%s holds no command: no line begins with %q", path, prompt)
	}
	CheckFile(t, path, now)
}

// replay runs the commands of a script. It returns the script with the present output
// of its commands, and the number of commands.
func replay(script string, run func(command string) string) (transcript string, commands int) {
	var out, remarks []string
	for line := range strings.SplitSeq(strings.TrimRight(script, "\n"), "\n") {
		command, isCommand := strings.CutPrefix(line, prompt)
		switch {
		case isCommand:
			out = append(append(out, remarks...), line)
			if said := strings.TrimRight(run(command), "\n"); said != "" {
				out = append(out, said)
			}
			remarks = nil
			commands++
		case line == "" || strings.HasPrefix(line, "#"):
			remarks = append(remarks, line)
		default:
			remarks = nil // these lines were output of the command before
		}
	}
	return strings.Join(append(out, remarks...), "\n") + "\n", commands
}
