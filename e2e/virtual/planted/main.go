// Planted measures how fast the schedules of e2e/virtual find faults. It plants faults in a
// copy of the code, one at a time, and prints the time until a schedule finds each.
//
//	go run ./e2e/virtual/planted -within 10m [name …]
//
// Before that it runs schedules for -control without a planted fault. A failure there is an
// error.
//
// A fault is a file of e2e/virtual/testdata/planted: a line that describes it, the name of a
// source file, and the text there before and after. A fault whose text is not in the source
// file any more is an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const folder = "e2e/virtual/testdata/planted"

func main() {
	within := flag.Duration("within", 10*time.Minute, "how long each fault may take to be found")
	control := flag.Duration("control", time.Minute, "how long to run without a fault, before the others")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *control, *within, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "planted:", err)
		os.Exit(1)
	}
}

// A plant is a fault to plant.
type plant struct {
	name, what, file string
	before, after    string
}

func run(ctx context.Context, out io.Writer, control, within time.Duration, names []string) error {
	plants, err := read(".", names)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "rowmill-planted-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := copyTree(ctx, dir); err != nil {
		return err
	}
	for _, p := range plants { // an error must come before the long runs
		if _, err := p.in(dir); err != nil {
			return err
		}
	}
	switch got, err := schedules(ctx, dir, control); {
	case err != nil:
		return err
	case got.found != "":
		return fmt.Errorf("without a fault: %s", got.found)
	}
	missed := 0
	for _, p := range plants {
		got, err := p.try(ctx, dir, within)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", p.name, err)
		case got.found == "":
			missed++
			fmt.Fprintf(out, "%-36s NOT FOUND in %v, %s\n", p.name, within, got.ran)
		default:
			fmt.Fprintf(out, "%-36s %8v, %s  %s\n", p.name, got.took.Round(time.Second), got.ran, got.found)
		}
	}
	fmt.Fprintf(out, "%d of %d found\n", len(plants)-missed, len(plants))
	return nil
}

// read reads the plants with these names, or all, of the repository at root.
func read(root string, names []string) ([]plant, error) {
	files, err := filepath.Glob(filepath.Join(root, folder, "*.txt"))
	if err != nil {
		return nil, err
	}
	var plants []plant
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".txt")
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		head, rest, _ := strings.Cut(string(text), "\n<<<<\n")
		before, rest, _ := strings.Cut(rest, "\n====\n")
		after, _, ended := strings.Cut(rest, "\n>>>>")
		what, file, _ := strings.Cut(head, "\n")
		if !ended || file == "" {
			return nil, fmt.Errorf("%s is no plant: what it is, a file, <<<<, before, ====, after, >>>>", f)
		}
		plants = append(plants, plant{name, what, strings.TrimSpace(file), before, after})
	}
	if len(plants) == 0 {
		return nil, errors.New("no such plants; run it in the repository's root")
	}
	return plants, nil
}

// copyTree copies the files of the repository, with changes and new files.
func copyTree(ctx context.Context, dir string) error {
	list, err := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("list the files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, but still in the index
		}
		to := filepath.Join(dir, name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o700)
		}
		if err == nil {
			err = os.WriteFile(to, text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// in returns the text of the file with the fault.
func (p plant) in(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, p.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), p.before); n != 1 {
		return "", fmt.Errorf("%s: what it replaces is %d times in %s; the code has outgrown it", p.name, n, p.file)
	}
	return strings.Replace(string(text), p.before, p.after, 1), nil
}

// outcome is the outcome of schedules: their time, their number, and the first failure.
type outcome struct {
	took       time.Duration
	ran, found string
}

var (
	failure = regexp.MustCompile(`seed \d+: .*`)
	count   = regexp.MustCompile(`\d+ schedules`)
)

// try plants the fault, runs schedules and restores the file.
func (p plant) try(ctx context.Context, dir string, within time.Duration) (got outcome, err error) {
	file := filepath.Join(dir, p.file)
	was, err := os.ReadFile(file)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, os.WriteFile(file, was, 0o600)) }()
	text, err := p.in(dir)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		return got, err
	}
	return schedules(ctx, dir, within)
}

// schedules runs schedules on the code in dir until one fails.
func schedules(ctx context.Context, dir string, within time.Duration) (got outcome, err error) {
	binary := filepath.Join(dir, "virtual.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, "./e2e/virtual")
	build.Dir = dir
	if said, err := build.CombinedOutput(); err != nil {
		return got, fmt.Errorf("build: %w\n%s", err, said)
	}
	began := time.Now()
	test := exec.CommandContext(ctx, binary, "-test.run=^TestSchedules$", "-test.v", "-test.timeout=0", "-failures=1", "-shrink=false")
	test.Dir, test.Env = filepath.Join(dir, "e2e/virtual"), append(os.Environ(), "ROWMILL_VIRTUAL="+within.String())
	said, err := test.CombinedOutput()
	got = outcome{time.Since(began), count.FindString(string(said)), failure.FindString(string(said))}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return got, err
	}
	return got, nil
}
