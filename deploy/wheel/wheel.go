// Package wheel writes the Python package rowmill as a wheel, which carries the program of one
// platform. The format is in the Python Packaging User Guide, "Binary distribution format".
package wheel

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A Wheel has the content of a wheel.
type Wheel struct {
	Version string            // output of `git describe`
	Arch    string            // Go's name of the architecture
	Program []byte            // the program for Linux, without dynamic linking
	Python  fs.FS             // the folder client/python
	Texts   map[string][]byte // licences, by file name
	Built   time.Time         // time of all files
}

// platforms maps Go's names of architectures to the tags of wheels for any Linux with glibc of
// 2014 or later. The program needs no libraries, so it runs on older systems too.
var platforms = map[string]string{"amd64": "manylinux2014_x86_64", "arm64": "manylinux2014_aarch64"}

// describeOutput matches the output of `git describe` for a release, or commits after one.
var describeOutput = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)(?:-(\d+)-g([0-9a-f]+))?$`)

// version returns the version by the rules of PEP 440.
func (w Wheel) version() string {
	switch m := describeOutput.FindStringSubmatch(w.Version); {
	case m == nil:
		return "0.dev" + w.Built.UTC().Format("20060102150405")
	case m[2] != "":
		return m[1] + ".post" + m[2] + "+g" + m[3]
	default:
		return m[1]
	}
}

func (w Wheel) tag() string { return "py3-none-" + platforms[w.Arch] }

// Name returns the file name of the wheel.
func (w Wheel) Name() string { return fmt.Sprintf("rowmill-%s-%s.whl", w.version(), w.tag()) }

// metadata has the fields of the package. %s is the version.
const metadata = `Metadata-Version: 2.4
Name: rowmill
Version: %s
Summary: Run a language or embedding model over the rows of a data frame, on your own GPUs
License-Expression: Apache-2.0
Requires-Python: >=3.10
Requires-Dist: pyarrow>=15
`

// Write writes the wheel to out. Equal content gives equal bytes.
func (w Wheel) Write(out io.Writer) error {
	if platforms[w.Arch] == "" {
		return fmt.Errorf("write a wheel: there is no platform for the architecture %q", w.Arch)
	}
	info := "rowmill-" + w.version() + ".dist-info/"
	files := map[string][]byte{
		"rowmill-" + w.version() + ".data/scripts/rowmill": w.Program,
		info + "METADATA": fmt.Appendf(nil, metadata, w.version()),
		info + "WHEEL":    fmt.Appendf(nil, "Wheel-Version: 1.0\nGenerator: rowmill\nRoot-Is-Purelib: false\nTag: %s\n", w.tag()),
	}
	for name, text := range w.Texts {
		files[info+"licenses/"+name] = text
	}
	modules, err := fs.Glob(w.Python, "rowmill/*.py")
	if err != nil || len(modules) == 0 {
		return fmt.Errorf("write a wheel: the folder has no modules rowmill/*.py: %w", err)
	}
	for _, name := range append(modules, "rowmill/py.typed") {
		if files[name], err = fs.ReadFile(w.Python, name); err != nil {
			return fmt.Errorf("write a wheel: %w", err)
		}
	}
	archive := zip.NewWriter(out)
	var record bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		sum := sha256.Sum256(files[name])
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(files[name]))
		if err := w.add(archive, name, files[name]); err != nil {
			return err
		}
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	if err := w.add(archive, info+"RECORD", record.Bytes()); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("write a wheel: %w", err)
	}
	return nil
}

// add adds a file to the wheel.
func (w Wheel) add(archive *zip.Writer, name string, content []byte) error {
	head := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: w.Built.UTC()}
	head.SetMode(0o644)
	if strings.Contains(path.Dir(name), ".data/scripts") {
		head.SetMode(0o755)
	}
	file, err := archive.CreateHeader(head)
	if err == nil {
		_, err = file.Write(content)
	}
	if err != nil {
		return fmt.Errorf("write %s to a wheel: %w", name, err)
	}
	return nil
}
