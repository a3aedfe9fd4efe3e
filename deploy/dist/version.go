package main

import (
	"regexp"
	"strings"
	"time"
)

// described is what `git describe --tags --dirty` says of a tagged history:
// the tag, a pre-release in it, commits since, and whether files are changed.
var described = regexp.MustCompile(`^v(\d+\.\d+\.\d+)(?:-([0-9A-Za-z.]+?))??(?:-(\d+)-g([0-9a-f]+))?(-dirty)?$`)

// packageVersion is a version as dpkg and rpm both order it: 1.2.3~rc.1 before
// 1.2.3 before 1.2.3+5.abc1234, five commits later. Where there is no tag it is
// before all of them, by the time of the commit: 0~20261125091018.abc1234.
func packageVersion(version string, built time.Time) string {
	m := described.FindStringSubmatch(version)
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
