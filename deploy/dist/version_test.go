package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// All files that name the last release name the same one.
func TestRelease(t *testing.T) {
	t.Parallel()
	version := strings.TrimSpace(string(must.Get(os.ReadFile("../../VERSION"))(t)))
	for file, line := range map[string]string{
		"../../CHANGELOG.md":      `(?m)^## \[(\d.*)\]`,
		"../../http/openapi.yaml": `(?m)^  version: "(.*)"$`,
	} {
		m := regexp.MustCompile(line).FindSubmatch(must.Get(os.ReadFile(file))(t))
		if m == nil || "v"+string(m[1]) != version {
			t.Errorf("%s names %q, VERSION %s", file, m, version)
		}
	}
}

// The version of a checkout counts the commits since the release.
func TestVersionOfCheckout(t *testing.T) {
	t.Parallel()
	script := must.Get(os.ReadFile("../../.ci/version"))(t)
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	commit := func(version string) string {
		t.Helper()
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "VERSION"), []byte(version+"\n"), 0o600))
		run("git", "add", ".")
		run("git", "-c", "user.name=n", "-c", "user.email=e", "commit", "--quiet", "--allow-empty", "-m", "m")
		return run("git", "rev-parse", "HEAD")
	}
	must.Succeed(t, os.Mkdir(filepath.Join(dir, ".ci"), 0o700))
	must.Succeed(t, os.WriteFile(filepath.Join(dir, ".ci", "version"), script, 0o700)) //nolint:gosec // a script runs
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "VERSION"), []byte("v0.1.0\n"), 0o600))
	want := func(version, release string) { // by sh: a child of another test may still hold the script open for writing
		t.Helper()
		if got := run("sh", ".ci/version"); got != version {
			t.Errorf("the version is %s, want %s", got, version)
		}
		if release == "" {
			return
		}
		if got := run("sh", ".ci/version", "release"); got != release {
			t.Errorf("the last release is %s, want %s", got, release)
		}
	}
	want("v0.1.0", "") // an archive of the sources
	run("git", "init", "--quiet")
	first := commit("v0.1.0")
	want("v0.1.0", first)
	later := commit("v0.1.0")
	want(fmt.Sprintf("v0.1.0-1-g%.8s", later), first)
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "VERSION"), []byte("v0.2.0\n"), 0o600))
	want(fmt.Sprintf("v0.2.0-1-g%.8s-dirty", later), first)
	second := commit("v0.2.0")
	want("v0.2.0", first)
	commit("v0.2.0")
	if got := run("sh", ".ci/version", "release"); got != second {
		t.Errorf("the last release is %s, want %s", got, second)
	}
}

func TestPackageVersion(t *testing.T) {
	t.Parallel()
	built := time.Date(2026, 11, 25, 9, 10, 18, 0, time.FixedZone("", 3600))
	// Each version is later than the one above.
	versions := []struct{ describeOutput, want string }{
		{"bc9bee8", "0~20261125081018.bc9bee8"},
		{"v0.9.0-rc.1", "0.9.0~rc.1"},
		{"v0.9.0-rc.1-12-gbc9bee8", "0.9.0~rc.1+12.bc9bee8"},
		{"v0.9.0", "0.9.0"},
		{"v0.9.0-dirty", "0.9.0+dirty"},
		{"v0.9.1-beta", "0.9.1~beta"},
		{"v0.9.1", "0.9.1"},
		{"v0.9.1-5-gbc9bee8", "0.9.1+5.bc9bee8"},
		{"v0.9.1-5-gbc9bee8-dirty", "0.9.1+5.bc9bee8+dirty"},
		{"v0.9.1-12-gbc9bee8", "0.9.1+12.bc9bee8"},
		{"v0.10.0", "0.10.0"},
	}
	_, noDpkg := exec.LookPath("dpkg")
	if noDpkg != nil {
		t.Log("NOT TESTED: how dpkg orders them: ", noDpkg)
	}
	for i, v := range versions {
		got := packageVersion(v.describeOutput, built)
		if got != v.want {
			t.Errorf("%s is %s, not %s", v.describeOutput, got, v.want)
		}
		if i == 0 || noDpkg != nil {
			continue
		}
		before := packageVersion(versions[i-1].describeOutput, built)
		if err := exec.CommandContext(t.Context(), "dpkg", "--compare-versions", before, "lt", got).Run(); err != nil {
			t.Errorf("dpkg does not take %s to be before %s: %v", before, got, err)
		}
	}
	if got := packageVersion("heads-up-dirty", built); got != "0~20261125081018.heads.up+dirty" {
		t.Errorf("got %s", got)
	}
}
