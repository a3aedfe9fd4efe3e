// Dist packs a release from the binaries of `make release`: an archive, a .deb and a
// .rpm and a Python wheel for each architecture, one image and one Helm chart for all architectures, bills
// of materials, and SHA256SUMS. `make dist` calls it in the root of the repository. The
// packages do not depend on the time and the machine of the build.
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var r release
	built := ""
	flag.StringVar(&r.version, "version", "", "output of `git describe` for the sources")
	flag.StringVar(&r.commit, "commit", "", "commit of the sources")
	flag.StringVar(&built, "built", "", "time of the commit, RFC 3339: the time of all files in the packages")
	flag.StringVar(&r.binaries, "binaries", "dist/bin", "`folder` with a binary for each architecture, ARCH/rowmill")
	flag.StringVar(&r.native, "native", "bin/rowmill", "the same `program` for this machine; it writes the manual")
	flag.StringVar(&r.nfpm, "nfpm", "", "the `program` nfpm")
	flag.StringVar(&r.certificates, "certificates", "/etc/ssl/certs/ca-certificates.crt", "the authorities that the image trusts")
	flag.StringVar(&r.lgpl, "lgpl", "/usr/share/common-licenses/LGPL-2.1", "the licence of the C library")
	flag.StringVar(&r.libc, "libc", "", "the version of the C library")
	flag.StringVar(&r.to, "to", "dist/packages", "`folder` to write, which is emptied first")
	flag.Parse()
	err := r.makePackages(ctx, built, flag.Args(), r.writeArchives, r.writePackages, r.writeImage, r.writeChart, r.writeWheels, r.writeBillsOfMaterials)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// A release holds the inputs of the packages, and the files that are made for all of them.
type release struct {
	version, commit        string
	built                  time.Time
	binaries, native, nfpm string
	certificates, lgpl     string
	libc, to               string

	stage    string // folder for generated files of all packages
	licenses []byte
	programs []*releaseBinary // sorted by architecture
}

// makePackages packs the binaries for the architectures archs (Go's names). Each function in
// forms writes one form of package.
func (r *release) makePackages(ctx context.Context, built string, archs []string, forms ...func(context.Context) error) error {
	var err error
	if r.built, err = time.Parse(time.RFC3339, built); err != nil {
		return fmt.Errorf("-built: %w", err)
	}
	r.built = r.built.UTC()
	if r.version == "" || r.nfpm == "" || r.libc == "" || len(archs) == 0 {
		return errors.New("-version, -nfpm, -libc and at least one architecture are required; `make dist` sets them")
	}
	slices.Sort(archs)
	for _, arch := range archs {
		p, err := readReleaseBinary(filepath.Join(r.binaries, arch, "rowmill"), arch)
		if err != nil {
			return err
		}
		r.programs = append(r.programs, p)
	}
	if r.stage, err = os.MkdirTemp("", "rowmill-dist-*"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(r.stage) }()
	if err := os.RemoveAll(r.to); err != nil {
		return err
	}
	if err := os.MkdirAll(r.to, 0o755); err != nil { //nolint:gosec // public files
		return err
	}
	for _, step := range append([]func(context.Context) error{r.writeLicenses, r.writeManual}, forms...) {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return writeChecksums(r.to)
}

// releasePath returns the path of a release file: rowmill-VERSION-linux-ARCH.ENDING.
func (r *release) releasePath(arch, ending string) string {
	return filepath.Join(r.to, "rowmill-"+strings.TrimPrefix(r.version, "v")+"-linux-"+arch+ending)
}

// writeManual runs the program to write its manual pages for man(1), compressed, and
// completions for shells.
func (r *release) writeManual(ctx context.Context) error {
	man, completions := filepath.Join(r.stage, "man"), filepath.Join(r.stage, "completions")
	for _, dir := range []string{man, completions} {
		if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // as it is packed
			return err
		}
	}
	if _, err := r.runProgram(ctx, r.native, nil, "manual", man); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(man, "*.1"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page) //nolint:gosec // made above
		if err != nil {
			return err
		}
		if err := os.WriteFile(page+".gz", gzipBytes(text), 0o644); err != nil { //nolint:gosec // as it is packed
			return err
		}
		if err := os.Remove(page); err != nil {
			return err
		}
	}
	for shell, file := range map[string]string{"bash": "rowmill.bash", "fish": "rowmill.fish", "zsh": "_rowmill"} {
		script, err := r.runProgram(ctx, r.native, nil, "completion", shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(completions, file), script, 0o644); err != nil { //nolint:gosec // as it is packed
			return err
		}
	}
	return nil
}

// writePackages calls nfpm for each architecture and each kind of package, deb and rpm.
func (r *release) writePackages(ctx context.Context) error {
	// nfpm packs these files with their own time, so set the time of the release.
	if err := filepath.WalkDir(r.stage, func(path string, _ os.DirEntry, err error) error {
		return cmp.Or(err, os.Chtimes(path, r.built, r.built))
	}); err != nil {
		return err
	}
	for _, p := range r.programs {
		staged := filepath.Join(r.stage, "rowmill")
		if err := os.WriteFile(staged, p.bytes, 0o755); err != nil { //nolint:gosec // a program
			return err
		}
		if err := os.Chtimes(staged, r.built, r.built); err != nil {
			return err
		}
		for _, kind := range []string{"deb", "rpm"} {
			environ := []string{
				"ARCH=" + p.arch, "VERSION=" + packageVersion(r.version, r.built), "STAGE=" + r.stage,
				fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.built.Unix()),
			}
			if _, err := r.runProgram(ctx, r.nfpm, environ, "package", "--config", "deploy/package/nfpm.yaml", "--packager", kind, "--target", r.releasePath(p.arch, "."+kind)); err != nil {
				return err
			}
		}
	}
	return nil
}

// runProgram runs a program with only these environment variables, and returns its output.
func (r *release) runProgram(ctx context.Context, program string, environ []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // our own
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "TZ=UTC"}, environ...)
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s%s", program, strings.Join(args, " "), err, failure.String(), out)
	}
	return out, nil
}

// writeChecksums writes SHA256SUMS for the files in a folder, in the format of sha256sum -c.
func writeChecksums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name())) //nolint:gosec // made by us
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(b), e.Name())
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(text.String()), 0o644) //nolint:gosec // public files
}
