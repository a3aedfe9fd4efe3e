package main

import (
	"regexp"
	"strings"
	"time"
)

// describeOutput matches the output of `git describe --tags --dirty` for a tagged history:
// the tag, a pre-release, commits since the tag, and whether files are changed.
var describeOutput = regexp.MustCompile(`^v(\d+\.\d+\.\d+)(?:-([0-9A-Za-z.]+?))??(?:-(\d+)-g([0-9a-f]+))?(-dirty)?$`)

// packageVersion converts a version so that dpkg and rpm sort it: 1.2.3~rc.1 before
// 1.2.3 before 1.2.3+5.abc1234, five commits later. Without a tag the result sorts
// before all tagged versions, by the time of the commit: 0~20261125091018.abc1234.
func packageVersion(version string, built time.Time) string {
	m := describeOutput.FindStringSubmatch(version)
	if m == nil {
		return "0~" + built.UTC().Format("20060102150405") + "." + strings.NewReplacer("-dirty", "+dirty", "-", ".").Replace(version)
	}
	text := m[1]
	if m[2] != "" {
		text += "~" + m[2]
	}
	if m[3] != "" {
		text += "+" + m[3] + "." + m[4]
	}
	if m[5] != "" {
		text += "+dirty"
	}
	return text
}
