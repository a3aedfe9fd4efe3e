package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/internal/golden"
)

// TestGolden compares the output of the commands with testdata/golden. Each file is a
// script of command lines and their output, with a service that answers from
// testdata/service.txt.
func TestGolden(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("testdata/golden/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("%d scripts, error %v", len(scripts), err)
	}
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			golden.CheckScript(t, path, (&shell{t: t, service: startFake(t, "testdata/service.txt"), dir: t.TempDir()}).run)
		})
	}
}

// TestHelp does the same for --help of every command.
func TestHelp(t *testing.T) {
	t.Parallel()
	help := func(t *testing.T, args string) string {
		t.Helper()
		code, out, errOut := runCommand(t.Context(), nil, "", strings.Fields(args+" --help")...)
		if code != 0 || errOut != "" {
			t.Errorf("rowmill %s --help: code %d\n%s", args, code, errOut)
		}
		return "$ rowmill " + strings.TrimSpace(args+" --help") + "\n" + out
	}
	golden.CheckFile(t, "testdata/help/rowmill.txt", help(t, ""))
	for _, cmd := range newRootCommand(&terminal.IO{}).Commands() {
		var text []string
		var walk func(c *cobra.Command)
		walk = func(c *cobra.Command) {
			text = append(text, help(t, strings.TrimPrefix(c.CommandPath(), "rowmill ")))
			for _, below := range c.Commands() {
				walk(below)
			}
		}
		walk(cmd)
		golden.CheckFile(t, "testdata/help/"+cmd.Name()+".txt", strings.Join(text, "\n"))
	}
}
