// Package console holds the built web console (built from web/): the compressed files, and
// the template of the index page. It does not know who may see the files or how they are
// served.
package console

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
)

//go:embed all:dist
var dist embed.FS

// A Site is the built console. It is immutable.
type Site struct {
	files map[string][]byte // contents compressed with gzip, by file name without .gz
	index []byte
}

// Files returns the console that is embedded in this binary.
var Files = sync.OnceValue(func() *Site {
	s, err := loadSite(dist)
	if err != nil {
		panic(err) // the files in this binary are damaged
	}
	return s
})

// Open returns a file, compressed by gzip, and its content type. hashed is true if the
// name contains a hash of the content, so that the content under this name never
// changes. ok is false if there is no such file. Open does not return the index page:
// see Index.
func (s *Site) Open(name string) (gz []byte, contentType string, hashed, ok bool) {
	gz, ok = s.files[name]
	if !ok {
		return nil, "", false, false
	}
	return gz, contentTypeOf(name), strings.HasPrefix(name, "assets/"), true
}

// Index returns the uncompressed index page. The server replaces {{nonce}} in the page.
func (s *Site) Index() []byte { return bytes.Clone(s.index) }

// loadSite reads the built console from the folder dist.
func loadSite(dist fs.FS) (*Site, error) {
	s := &Site{files: make(map[string][]byte)}
	err := fs.WalkDir(dist, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(dist, name)
		if err != nil {
			return err
		}
		name = strings.TrimSuffix(strings.TrimPrefix(name, "dist/"), ".gz")
		if name == "index.html" {
			s.index, err = gunzip(b)
			return err
		}
		s.files[name] = b
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the files of the web console: %w", err)
	}
	if s.index == nil {
		return nil, fmt.Errorf("read the files of the web console: no index.html")
	}
	return s, nil
}

func gunzip(b []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// contentTypeOf returns the content type of a file by its name. It does not use the MIME
// tables of the machine, because they differ between machines.
func contentTypeOf(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".md":
		return "text/plain; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	default:
		return "application/octet-stream"
	}
}
