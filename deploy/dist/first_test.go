package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A way is a documented sequence of commands, from nothing to a finished job.
type way struct{ page, heading string }

var (
	byDebian     = way{"install.md", "## Debian, Ubuntu"}
	byFedora     = way{"install.md", "## Fedora, RHEL, openSUSE"}
	byImage      = way{"install.md", "## The image"}
	byKubernetes = way{"kubernetes.md", "## From nothing to a finished job"}
	bySources    = way{"../README.md", "## Try it"}
)

// maxCommands is the largest number of commands in a way.
const maxCommands = 5

// commands returns the commands of the first code block below the heading.
func (w way) commands(t *testing.T) (all []string) {
	t.Helper()
	_, below, found := strings.Cut(contents(t, filepath.Join("../../docs", w.page)), "\n"+w.heading+"\n")
	block := regexp.MustCompile("(?s)^.*?\n```sh[^\n]*\n(.*?)\n```\n").FindStringSubmatch(below)
	if !found || block == nil {
		t.Fatalf("%s has no commands below %s", w.page, w.heading)
	}
	open := false
	for _, line := range strings.Split(block[1], "\n") {
		switch line = strings.TrimSuffix(line, "\\"); {
		case open:
			all[len(all)-1] += strings.TrimLeft(line, " ")
		case line != "" && !strings.HasPrefix(line, "#"):
			all = append(all, line)
		}
		open = strings.HasSuffix(line, " ") // before a backslash
	}
	return all
}

// No way needs more than maxCommands commands.
func TestMaxCommands(t *testing.T) {
	t.Parallel()
	for _, w := range []way{byDebian, byFedora, byImage, byKubernetes, bySources} {
		if n := len(w.commands(t)); n > maxCommands {
			t.Errorf("%s, %s: %d commands, want at most %d", w.page, w.heading, n, maxCommands)
		}
	}
}

// TestFirstJob runs the commands of the pages on empty machines until a job has
// finished, and logs the time of each command.
func TestFirstJob(t *testing.T) {
	dir, version := releaseFolder(t)
	version = strings.TrimPrefix(version, "v")
	filled := func(w way) (all []string) {
		for _, c := range w.commands(t) {
			all = append(all, strings.NewReplacer("VERSION", version, "ARCH", runtime.GOARCH).Replace(c))
		}
		return all
	}
	t.Run("deb", func(t *testing.T) {
		name := "rowmill-" + version + "-linux-" + runtime.GOARCH + ".deb"
		firstOnMachine(t, filled(byDebian), map[string]string{
			name: contents(t, filepath.Join(dir, name)), "prepare.sh": "",
			"undo.sh": "apt-get purge -y rowmill\nrm -rf /var/lib/rowmill\n",
		})
	})
	t.Run("image", func(t *testing.T) {
		name := "rowmill-" + version + "-oci.tar"
		firstOnMachine(t, filled(byImage), map[string]string{
			name: contents(t, filepath.Join(dir, name)), "prepare.sh": contents(t, "testdata/podman.sh"),
			"undo.sh": "podman rm --force --time 45 rowmill\npodman volume rm rowmill\n",
		})
	})
	t.Run("chart", func(t *testing.T) { chartFirst(t, dir, filled(byKubernetes)) })
	t.Run("demo", func(t *testing.T) { demoFirst(t, bySources.commands(t)[0]) })
}

// firstOnMachine runs commands on a disposable machine.
func firstOnMachine(t *testing.T, commands []string, files map[string]string) {
	t.Helper()
	for i, c := range commands {
		files[fmt.Sprintf("%d.sh", i+1)] = c + "\n"
	}
	folder := machine(t, "first.sh", files)
	sums := map[string]time.Duration{}
	for _, line := range strings.Split(strings.TrimSpace(contents(t, filepath.Join(folder, "times"))), "\n") {
		fields := strings.Fields(line)
		number, err := strconv.Atoi(fields[1])
		seconds, err2 := strconv.ParseFloat(fields[2], 64)
		if err != nil || err2 != nil || number > len(commands) {
			t.Fatalf("%q: %v, %v", line, err, err2)
		}
		took := time.Duration(seconds * float64(time.Second))
		sums[fields[0]] += took
		t.Logf("round %s: %6.1f s  %s", fields[0], took.Seconds(), commands[number-1])
	}
	t.Logf("%d commands: %.1f s on a machine that has nothing, %.1f s once more", len(commands), sums["1"].Seconds(), sums["2"].Seconds())
}

// chartFirst renders the release's chart with the page's helm install, and validates it
// by the rules of Kubernetes. It does not run commands that need a cluster.
func chartFirst(t *testing.T, dir string, commands []string) {
	t.Helper()
	tools := strings.Fields(os.Getenv("ROWMILL_HELM"))
	if len(tools) != 4 {
		t.Skip("SKIPPED, NOT TESTED: `make dist/first` has Helm")
	}
	for i, path := range tools {
		if !filepath.IsAbs(path) {
			tools[i] = filepath.Join("../..", path)
		}
	}
	at := slices.IndexFunc(commands, func(c string) bool { return strings.HasPrefix(c, "helm install ") })
	if at < 0 {
		t.Fatalf("the page installs nothing: %q", commands)
	}
	fields := strings.Fields(commands[at]) // helm install NAME CHART …
	charts, err := filepath.Glob(filepath.Join(dir, "rowmill-*.tgz"))
	if err != nil || len(charts) != 1 || !strings.HasSuffix(fields[3], ".tgz") {
		t.Fatalf("%q of the charts %q: %v", commands[at], charts, err)
	}
	args := slices.DeleteFunc(append([]string{"template", fields[2], charts[0]}, fields[4:]...), func(a string) bool { return a == "--wait" })
	for _, round := range []string{"1", "2"} {
		begun := time.Now()
		manifests := command(t, tools[0], args...)
		rendered := time.Since(begun)
		admit := exec.CommandContext(t.Context(), tools[1], "-restricted")
		admit.Stdin = strings.NewReader(manifests)
		if out, err := admit.CombinedOutput(); err != nil {
			t.Errorf("Kubernetes would refuse it: %v\n%s", err, out)
		}
		schemas := exec.CommandContext(t.Context(), tools[2], "../helm/testdata/schemas.py", tools[3], "1.37.0")
		schemas.Stdin = strings.NewReader(manifests)
		if out, err := schemas.CombinedOutput(); err != nil {
			t.Errorf("Kubernetes does not know it: %v\n%s", err, out)
		}
		t.Logf("round %s: rendered in %.1f s, and with the checks in %.1f s; the commands that need a cluster, of %d, are NOT RUN", round, rendered.Seconds(), time.Since(begun).Seconds(), len(commands))
	}
}

// demoFirst runs the command twice in a clone of the last commit, first with an empty
// build cache and no modules.
func demoFirst(t *testing.T, demo string) {
	t.Helper()
	if os.Getenv("ROWMILL_FIRST") == "" {
		t.Skip("SKIPPED, NOT TESTED: `make dist/first` builds from nothing")
	}
	dir := t.TempDir()
	clone := filepath.Join(dir, "rowmill")
	command(t, "git", "clone", "--quiet", "../..", clone)
	newcomers := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "ROWMILL_") || strings.HasPrefix(variable, "MAKE")
	})
	for _, round := range []string{"1", "2"} {
		run := exec.CommandContext(t.Context(), "bash", "-euc", demo)
		run.Dir = clone
		run.Env = append(newcomers[:len(newcomers):len(newcomers)], "GOCACHE="+filepath.Join(dir, "cache"), "GOMODCACHE="+filepath.Join(dir, "modules"), "GOFLAGS=-modcacherw")
		begun := time.Now()
		out, err := run.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("The result is in ")) {
			t.Fatalf("%s: %v\n%s", demo, err, out)
		}
		t.Logf("round %s: %6.1f s  %s", round, time.Since(begun).Seconds(), demo)
	}
}
