package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// releaseFolder returns the release folder for `make dist/check`, and its version.
func releaseFolder(t *testing.T) (dir, version string) {
	t.Helper()
	dir, version = os.Getenv("ROWMILL_DIST"), os.Getenv("ROWMILL_DIST_VERSION")
	if dir == "" || version == "" {
		t.Skip("SKIPPED, NOT TESTED: packages are what `make dist/check` makes and tests")
	}
	return dir, version
}

// command runs a program and returns its output.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, failure.Bytes())
	}
	return string(out)
}

// SHA256SUMS is correct and complete.
func TestSums(t *testing.T) {
	t.Parallel()
	dir, _ := releaseFolder(t)
	cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	files := must.Get(os.ReadDir(dir))(t)
	text := must.Get(os.ReadFile(filepath.Join(dir, "SHA256SUMS")))(t)
	for _, f := range files {
		if f.Name() != "SHA256SUMS" && !strings.Contains(string(text), "  "+f.Name()+"\n") {
			t.Errorf("%s is not in SHA256SUMS", f.Name())
		}
	}
}

// The archive, the .deb and the .rpm of an architecture contain the same binary, and
// its bill of materials is correct.
func TestPackages_SameProgram(t *testing.T) {
	t.Parallel()
	dir, version := releaseFolder(t)
	archives, err := filepath.Glob(filepath.Join(dir, "*.tar.gz"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("%d archives, error %v", len(archives), err)
	}
	for _, archive := range archives {
		base := strings.TrimSuffix(archive, ".tar.gz")
		arch := base[strings.LastIndex(base, "-")+1:]
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			packed := must.Get(os.ReadFile(archive))(t)
			unpacked := must.Get(gzip.NewReader(bytes.NewReader(packed)))(t)
			b := must.Get(io.ReadAll(unpacked))(t)
			files := untar(t, b)
			folder := filepath.Base(base) + "/"
			for _, name := range []string{"LICENSE", "NOTICE", "licenses.txt", "rowmill.yaml", "man/rowmill-jobs-submit.1.gz", "completions/_rowmill", "systemd/rowmill.service"} {
				if len(files[folder+name].bytes) == 0 {
					t.Errorf("the archive has no %s", name)
				}
			}
			binary := files[folder+"rowmill"].bytes
			if err := checkELF(binary, arch); err != nil {
				t.Errorf("the program: %v", err)
			}
			if !bytes.Contains(binary, []byte(version)) {
				t.Errorf("the program does not hold its version %s", version)
			}
			sum := fmt.Sprintf("%x", sha256.Sum256(binary))
			out := t.TempDir()
			command(t, "dpkg-deb", "-x", base+".deb", out)
			if in, err := os.ReadFile(filepath.Join(out, "usr/bin/rowmill")); err != nil || !bytes.Equal(in, binary) {
				t.Errorf("the .deb has another program, error %v", err)
			}
			if got := strings.TrimSpace(command(t, "dpkg-deb", "-f", base+".deb", "Architecture")); got != arch {
				t.Errorf("the .deb is for %s", got)
			}
			if list := command(t, "rpm", "-qp", "--dump", base+".rpm"); !regexp.MustCompile(`(?m)^/usr/bin/rowmill .* ` + sum + ` 0100755 root root `).MatchString(list) {
				t.Errorf("the .rpm has another program:\n%s", list)
			}
			if got, want := command(t, "rpm", "-qp", "--qf", "%{ARCH}", base+".rpm"), map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]; got != want {
				t.Errorf("the .rpm is for %s, not %s", got, want)
			}
			checkBill(t, base+".cdx.json", binary, sum)
			checkLicenses(t, string(files[folder+"licenses.txt"].bytes), binary)
		})
	}
}

// checkBill compares a bill of materials with Go's build information in the program.
func checkBill(t *testing.T, path string, binary []byte, sum string) {
	t.Helper()
	text := must.Get(os.ReadFile(path))(t)
	said := parse[billOfMaterials](t, text)
	if got := said.Metadata.Component.Hashes[0].Content; got != sum {
		t.Errorf("the bill is of %s, the program %s", got, sum)
	}
	build := must.Get(buildinfo.Read(bytes.NewReader(binary)))(t)
	want := []string{"glibc", "std"}
	for _, module := range build.Deps {
		want = append(want, module.Path)
	}
	var got []string
	for _, c := range said.Components {
		if len(c.Licenses) != 1 || c.Licenses[0].Expression == "" || c.Version == "" || !strings.HasPrefix(c.PURL, "pkg:") {
			t.Errorf("the bill has %+v", c)
		}
		if !strings.HasPrefix(c.PURL, "pkg:npm/") {
			got = append(got, c.Name)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the bill has %v, the program %v", got, want)
	}
	if len(said.Components) < len(got)+20 { // at least 20 JavaScript packages
		t.Errorf("the bill has %d components, %d of them of the program", len(said.Components), len(got))
	}
}

// checkLicenses checks that licenses.txt has every linked module and the required
// licences.
func checkLicenses(t *testing.T, text string, binary []byte) {
	t.Helper()
	build := must.Get(buildinfo.Read(bytes.NewReader(binary)))(t)
	for _, module := range build.Deps {
		if !strings.Contains(text, "\n"+module.Path+" "+module.Version+"\n") {
			t.Errorf("licenses.txt has none of %s %s", module.Path, module.Version)
		}
	}
	for _, of := range []string{"Mozilla Public License", "GNU LESSER GENERAL PUBLIC LICENSE", "Apache License", "Shantanu Jain", "The Go Authors", "## react-dom"} {
		if !strings.Contains(text, of) {
			t.Errorf("licenses.txt does not hold %q", of)
		}
	}
}

// systemd-analyze reports a low exposure of the units.
func TestExposure(t *testing.T) {
	t.Parallel()
	releaseFolder(t)
	for _, unit := range []string{"rowmill.service", "rowmill-node@.service"} {
		// The threshold is in tenths; 10 would be full exposure. Without network
		// access, which the program needs, the value would be 0.5.
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=20", "../package/"+unit).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
		t.Logf("%s", out[bytes.LastIndex(bytes.TrimSpace(out), []byte("\n"))+1:])
	}
}

// machine runs a script of testdata on a disposable machine, and returns the folder
// that the script sees as /io.
func machine(t *testing.T, script string, files map[string]string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	text, err := os.ReadFile("testdata/" + script)
	must.Succeed(t, err)
	files["check.sh"] = string(text)
	for name, content := range files {
		must.Succeed(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup", "--fork", "--kill-child",
		"bash", "testdata/machine.sh", folder).CombinedOutput()
	if err != nil {
		log, unread := os.ReadFile(filepath.Join(folder, "log"))
		t.Fatalf("%v\n%s\n%s\n%v", err, out, log, unread)
	}
	return folder
}

func contents(t *testing.T, path string) string {
	t.Helper()
	b := must.Get(os.ReadFile(path))(t)
	return string(b)
}

// TestInstalled installs each kind of package, runs jobs with its units, upgrades and
// removes it.
func TestInstalled(t *testing.T) {
	dir, version := releaseFolder(t)
	if os.Getuid() != 0 {
		t.Fatal("a disposable machine needs root")
	}
	first := filepath.Join(dir, "rowmill-"+strings.TrimPrefix(version, "v")+"-linux-"+runtime.GOARCH)
	later := t.TempDir()
	t.Run("make a later version", func(t *testing.T) {
		t.Chdir("../..")
		r := &release{
			version: "v999.0.0", commit: "later", binaries: "dist/bin", native: "bin/rowmill", nfpm: os.Getenv("ROWMILL_DIST_NFPM"),
			lgpl: "/usr/share/common-licenses/LGPL-2.1", libc: "2", to: later,
		}
		must.Succeed(t, r.makePackages(t.Context(), "2027-01-01T00:00:00Z", []string{runtime.GOARCH}, r.writePackages))
	})
	second := filepath.Join(later, "rowmill-999.0.0-linux-"+runtime.GOARCH)
	for kind, ask := range map[string][]string{
		"deb": {"dpkg-deb", "-f", first + ".deb", "Version"},
		"rpm": {"rpm", "-qp", "--qf", "%{VERSION}-%{RELEASE}", first + ".rpm"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			machine(t, "package.sh", map[string]string{
				"kind": kind, "first": command(t, ask[0], ask[1:]...), "second": "999.0.0-1",
				"first." + kind: contents(t, first+"."+kind), "second." + kind: contents(t, second+"."+kind),
			})
		})
	}
}

// TestImageRuns runs a job in the image.
func TestImageRuns(t *testing.T) {
	t.Parallel()
	dir, version := releaseFolder(t)
	tag := strings.TrimPrefix(version, "v")
	machine(t, "image.sh", map[string]string{"version": tag, "image.tar": contents(t, filepath.Join(dir, "rowmill-"+tag+"-oci.tar"))})
}
