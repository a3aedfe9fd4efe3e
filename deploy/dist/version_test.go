package main

import (
	"os/exec"
	"testing"
	"time"
)

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
