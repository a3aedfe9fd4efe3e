package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// Helm accepts all chart versions.
func TestChartVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v1.2.3":                     "1.2.3",
		"v1.2.3-rc.1":                "1.2.3-rc.1",
		"v1.2.3-5-g0123abc":          "1.2.3+5.g0123abc",
		"v1.2.3-rc.1-5-g0123abc":     "1.2.3-rc.1+5.g0123abc",
		"v1.2.3-5-g0123abc-dirty":    "1.2.3+5.g0123abc.dirty",
		"v1.2.3-dirty":               "1.2.3+dirty",
		"0123456":                    "0.0.0-g0123456", // a number must not begin with 0
		"0123456-dirty":              "0.0.0-g0123456.dirty",
		"devel":                      "0.0.0-gdevel",
		"v1.2.3-alpha-1-g0123abc":    "1.2.3-alpha+1.g0123abc",
		"v10.20.30-2-gabcdef0-dirty": "10.20.30+2.gabcdef0.dirty",
	} {
		if got := chartVersion(version); got != want {
			t.Errorf("of %s: %s, want %s", version, got, want)
		}
	}
}

// TestChart packs the chart twice: both have the same bytes, only files of the chart,
// the versions of the release, and the rules and dashboard of the repository.
func TestChart(t *testing.T) {
	t.Chdir("../..")
	r := release{version: "v1.2.3-5-g0123abc", built: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), to: t.TempDir()}
	path := filepath.Join(r.to, "rowmill-1.2.3+5.g0123abc.tgz")
	packed := func() []byte {
		must.Succeed(t, r.writeChart(t.Context()))
		b := must.Get(os.ReadFile(path))(t)
		return b
	}
	first := packed()
	if !bytes.Equal(first, packed()) {
		t.Error("packed twice, the charts differ")
	}
	zipped, err := gzip.NewReader(bytes.NewReader(first))
	must.Succeed(t, err)
	files := map[string]string{}
	for archive := tar.NewReader(zipped); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must.Succeed(t, err)
		text, err := io.ReadAll(archive)
		must.Succeed(t, err)
		if head.Typeflag != tar.TypeReg || !head.ModTime.Equal(r.built) {
			t.Errorf("%s is %+v", head.Name, head)
		}
		files[head.Name] = string(text)
	}
	for name, is := range map[string]string{"rowmill/files/rules.yaml": "deploy/prometheus/rules.yaml", "rowmill/files/dashboard.json": "deploy/grafana/rowmill.json", "rowmill/values.yaml": "deploy/helm/rowmill/values.yaml"} {
		if want, err := os.ReadFile(is); err != nil || files[name] != string(want) {
			t.Errorf("%s is not %s, error %v", name, is, err)
		}
	}
	if about := files["rowmill/Chart.yaml"]; !strings.Contains(about, "\nversion: 1.2.3+5.g0123abc\nappVersion: \"1.2.3-5-g0123abc\"\n") {
		t.Errorf("Chart.yaml is\n%s", about)
	}

	tools := strings.Fields(os.Getenv("ROWMILL_HELM"))
	if len(tools) == 0 {
		t.Skip("SKIPPED, NOT TESTED with helm: `make chart` does")
	}
	out, err := exec.CommandContext(t.Context(), tools[0], "template", "mill", path, "--values", "deploy/helm/examples/try.yaml").CombinedOutput()
	for _, want := range []string{`image: "registry.example.org/rowmill:1.2.3-5-g0123abc"`, `helm.sh/chart: "rowmill-1.2.3_5.g0123abc"`} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("error %v, and no %s in\n%s", err, want, out)
		}
	}
}
