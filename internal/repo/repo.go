// Package repo finds files of the repository and the rowmill program, for tests.
package repo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// BuildProgram returns the path of the program under test: ROWMILL_BINARY if it is set, or
// else a program that BuildProgram builds into dir.
func BuildProgram(dir string) (string, error) {
	if path := os.Getenv("ROWMILL_BINARY"); path != "" {
		return path, nil
	}
	path := filepath.Join(dir, "rowmill")
	build := exec.CommandContext(context.Background(), "go", "build", "-tags=nomsgpack", "-trimpath", "-o", path, "github.com/rowmill/rowmill/cmd/rowmill")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return path, nil
}

// Path returns the path of a file from the working directory of a test, such as
// "../../bin/tools/promtool" for "bin", "tools", "promtool". The path is relative, so
// that the result of the test can be cached for another clone.
func Path(elements ...string) string {
	root := "."
	for range 10 { // no package is more than 10 folders below the root
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		root = filepath.Join(root, "..")
	}
	return filepath.Join(append([]string{root}, elements...)...)
}
