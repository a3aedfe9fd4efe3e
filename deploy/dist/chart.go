package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// writeChart writes rowmill-VERSION.tgz for helm, with the release version as version of the
// chart and of the image.
func (r *release) writeChart(context.Context) error {
	const root = "deploy/helm/rowmill"
	version := chartVersion(r.version)
	var all []tarEntry
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		text, err := os.ReadFile(path) //nolint:gosec // a link leads to the rules and the dashboard
		if err != nil {
			return err
		}
		if d.Name() == "Chart.yaml" {
			if text, err = setChartVersions(text, version, strings.TrimPrefix(r.version, "v")); err != nil {
				return err
			}
		}
		name, err := filepath.Rel(filepath.Dir(root), path)
		all = append(all, tarEntry{name: filepath.ToSlash(name), mode: 0o644, bytes: text})
		return err
	})
	if err != nil {
		return err
	}
	b, err := tarFiles(all, r.built)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.to, "rowmill-"+version+".tgz"), gzipBytes(b), 0o644) //nolint:gosec // public files
}

// versionLine and appVersionLine match the version lines of Chart.yaml.
var (
	versionLine    = regexp.MustCompile(`(?m)^version: .*$`)
	appVersionLine = regexp.MustCompile(`(?m)^appVersion: .*$`)
)

// setChartVersions returns Chart.yaml with the versions of the chart and of the image.
func setChartVersions(text []byte, version, tag string) ([]byte, error) {
	for line, value := range map[*regexp.Regexp]string{versionLine: "version: " + version, appVersionLine: fmt.Sprintf("appVersion: %q", tag)} {
		if !line.Match(text) {
			return nil, fmt.Errorf("Chart.yaml has no line %s", line)
		}
		text = line.ReplaceAllLiteral(text, []byte(value))
	}
	return text, nil
}

// chartVersion converts a version to a semantic version for Helm: 1.2.3-rc.1, and
// 1.2.3+5.gabc1234 five commits later. Without a tag the result sorts before all tagged
// versions.
func chartVersion(version string) string {
	m := describeOutput.FindStringSubmatch(version)
	if m == nil {
		return "0.0.0-g" + strings.ReplaceAll(version, "-", ".")
	}
	text := m[1]
	if m[2] != "" {
		text += "-" + m[2]
	}
	var since []string
	if m[3] != "" {
		since = append(since, m[3], "g"+m[4])
	}
	if m[5] != "" {
		since = append(since, "dirty")
	}
	if len(since) > 0 {
		text += "+" + strings.Join(since, ".")
	}
	return text
}
