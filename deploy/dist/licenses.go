package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licenseFile matches the names of licence and notice files: licences require that the
// binary comes with their text.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|unlicense)([-._].*)?$`)

// writeLicenses writes licenses.txt: the licences of Rowmill, of all linked modules and
// of all bundled components, each text once.
func (r *release) writeLicenses(ctx context.Context) error {
	texts := map[string][]string{} // by text of a licence: the names of its components
	add := func(of string, b []byte) {
		text := strings.TrimSpace(strings.ReplaceAll(string(b), "\r\n", "\n"))
		if !slices.Contains(texts[text], of) {
			texts[text] = slices.Sorted(slices.Values(append(texts[text], of)))
		}
	}
	for _, p := range r.programs {
		if err := collectModuleLicenses(ctx, p, add); err != nil {
			return err
		}
	}
	root, err := findGoRoot(ctx)
	if err != nil {
		return err
	}
	for of, file := range map[string]string{
		"the standard library of Go":                 filepath.Join(root, "LICENSE"),
		"the GNU C Library " + r.libc:                r.lgpl,
		"rank files of tiktoken, in tokenize/ranks/": "tokenize/ranks/LICENSE",
	} {
		b, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("licence of %s: %w", of, err)
		}
		add(of, b)
	}
	console, err := readConsoleLicenses()
	if err != nil {
		return err
	}
	own, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	notice, err := os.ReadFile("NOTICE")
	if err != nil {
		return err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s\n%s\n%s", notice, formatHeading("Rowmill"), own)
	printLicenses(&out, texts)
	fmt.Fprintf(&out, "\n%s\n%s\n", formatHeading("packages of JavaScript in the web console"), bytes.TrimSpace(console))
	r.licenses = out.Bytes()
	return os.WriteFile(filepath.Join(r.stage, "licenses.txt"), r.licenses, 0o644) //nolint:gosec // as it is packed
}

// printLicenses writes each licence below the names of its components.
func printLicenses(out io.Writer, texts map[string][]string) {
	for _, text := range slices.SortedFunc(maps.Keys(texts), func(a, b string) int {
		return cmp.Or(slices.Compare(texts[a], texts[b]), strings.Compare(a, b))
	}) {
		fmt.Fprintf(out, "\n%s\n%s\n", formatHeading(texts[text]...), text)
	}
}

func formatHeading(names ...string) string {
	return strings.Repeat("-", 72) + "\n" + strings.Join(names, "\n") + "\n" + strings.Repeat("-", 72) + "\n"
}

// findGoRoot returns the root folder of the Go toolchain that is in use.
func findGoRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// collectModuleLicenses reads the licences of the linked packages: from the folder of each
// package and the folders above, up to the module's root.
func collectModuleLicenses(ctx context.Context, p *releaseBinary, add func(of string, text []byte)) error {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-tags="+buildSetting(p, "-tags"), "-json=Dir,Module", "./cmd/rowmill") //nolint:gosec // the tags are the build's
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+p.arch, "CGO_ENABLED="+cmp.Or(buildSetting(p, "CGO_ENABLED"), "0"))
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w\n%s", err, failure.Bytes())
	}
	folders := map[string]string{} // module path, by folder
	roots := map[string]string{}   // module path with version, by module path
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg struct {
			Dir    string
			Module *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("go list: %w", err)
		}
		if pkg.Module == nil || pkg.Module.Main {
			continue
		}
		for dir := pkg.Dir; len(dir) >= len(pkg.Module.Dir); dir = filepath.Dir(dir) {
			folders[dir] = pkg.Module.Path
		}
		roots[pkg.Module.Path] = pkg.Module.Path + " " + pkg.Module.Version
	}
	for _, module := range p.build.Deps {
		if roots[module.Path] == "" {
			return fmt.Errorf("the binary for %s contains %s, but the sources do not import it; build it again", p.arch, module.Path)
		}
	}
	found := map[string]bool{}
	for _, dir := range slices.Sorted(maps.Keys(folders)) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.IsDir() || !licenseFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return err
			}
			add(roots[folders[dir]], text)
			found[folders[dir]] = true
		}
	}
	for _, module := range slices.Sorted(maps.Keys(roots)) {
		if !found[module] {
			return fmt.Errorf("%s is linked, but the folders of its packages contain no licence", roots[module])
		}
	}
	return nil
}

// readConsoleLicenses returns the page with the licences of the packages in the console.
func readConsoleLicenses() ([]byte, error) {
	f, err := os.Open("console/dist/licenses.md.gz")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(unpacked)
}
