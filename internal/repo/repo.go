// Package repo finds files of the repository and the rowmill program, for tests.
package repo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BuildProgram returns the path of the program under test: ROWMILL_BINARY if it is set, or
// else a program that BuildProgram builds into dir.
func BuildProgram(dir string) (string, error) {
	if path := os.Getenv("ROWMILL_BINARY"); path != "" {
		return path, nil
	}
	path := filepath.Join(dir, "rowmill")
	return path, build(".", path)
}

// build builds the program of the checkout that has the folder.
func build(folder, path string) error {
	build := exec.CommandContext(context.Background(), "go", "build", "-tags=nomsgpack", "-trimpath", "-o", path, "github.com/rowmill/rowmill/cmd/rowmill")
	build.Dir = folder
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return nil
}

// ErrNoHistory means that the clone does not have the commit of the last release.
var ErrNoHistory = errors.New("this clone has no commit of the last release: git fetch --unshallow")

// BuildLastRelease returns the path of the program of the last release before HEAD. It builds
// the program once and keeps it in the user's cache.
func BuildLastRelease() (path string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	commit, err := exec.CommandContext(context.Background(), Path(".ci", "version"), "release").Output()
	if err != nil || len(commit) == 0 {
		return "", errors.Join(ErrNoHistory, err)
	}
	path = filepath.Join(cache, "rowmill", "releases", strings.TrimSpace(string(commit)), "rowmill")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	sources, err := os.MkdirTemp("", "rowmill-release-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(sources) }()
	extract := exec.CommandContext(context.Background(), "sh", "-c", `git archive "$1" | tar -x -C "$2"`, "sh", strings.TrimSpace(string(commit)), sources)
	extract.Dir = Path()
	if out, err := extract.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %w\n%s", ErrNoHistory, err, out)
	}
	made := path + "." + filepath.Base(sources) // tests of two packages may build it at the same time
	if err := build(sources, made); err != nil {
		return "", err
	}
	return path, os.Rename(made, path)
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
