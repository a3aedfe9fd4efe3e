// Package golden holds what a program says against a file of what it shall
// say. Tests that fail print the difference; the flag -update writes the files
// anew, for whoever changes them to read before committing. It knows nothing
// of what the texts are about.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// prompt begins a line of a script that is run.
const prompt = "$ "

// Equal wants a text to be the content of a file.
func Equal(t testing.TB, path, got string) {
	t.Helper()
	if *update {
		if err := write(path, got); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; -update writes it", err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s differs (-file +now); -update writes it anew:\n%s", path, diff)
	}
}

func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// Script runs the commands of a file, the lines that begin with "$ ", and
// wants each to say what follows it there. What stands before a command in
// lines that begin with #, or are empty, is for people.
func Script(t testing.TB, path string, run func(command string) string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	now, commands := replay(string(text), run)
	if commands == 0 {
		t.Fatalf("%s holds no command: no line begins with %q", path, prompt)
	}
	Equal(t, path, now)
}

// replay returns a script with what its commands say now, and how many there
// are.
func replay(script string, run func(command string) string) (now string, commands int) {
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
			remarks = nil // what the command before has said, up to here
		}
	}
	return strings.Join(append(out, remarks...), "\n") + "\n", commands
}
