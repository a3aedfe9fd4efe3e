package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A tarEntry is a file in a tar, or a directory if its name ends in a slash.
type tarEntry struct {
	name  string
	mode  int64
	owner int // ID of the user and of the group
	bytes []byte
}

// tarFiles returns a tar of the entries, sorted by name. Equal entries give equal bytes on
// every machine. All files get the time built.
func tarFiles(entries []tarEntry, built time.Time) ([]byte, error) {
	slices.SortFunc(entries, func(a, b tarEntry) int { return strings.Compare(a.name, b.name) })
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		head := &tar.Header{Name: e.name, Mode: e.mode, Uid: e.owner, Gid: e.owner, Size: int64(len(e.bytes)), ModTime: built, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if strings.HasSuffix(e.name, "/") {
			head.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(head); err != nil {
			return nil, fmt.Errorf("pack %s: %w", e.name, err)
		}
		if _, err := w.Write(e.bytes); err != nil {
			return nil, fmt.Errorf("pack %s: %w", e.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// gzipBytes returns b compressed with gzip, without a time or a file name in the header:
// equal input gives equal output.
func gzipBytes(b []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		panic(err) // cannot happen: the level is valid
	}
	_, _ = w.Write(b) // writes to a bytes.Buffer never fail
	_ = w.Close()
	return out.Bytes()
}

// writeArchives writes a tar.gz for each architecture, for machines without a package
// manager: one folder with the program and the other files of the packages.
func (r *release) writeArchives(context.Context) error {
	var beside []tarEntry
	for name, file := range map[string]string{
		"LICENSE": "LICENSE", "NOTICE": "NOTICE",
		"systemd/rowmill.service": "deploy/package/rowmill.service", "systemd/rowmill-node@.service": "deploy/package/rowmill-node@.service",
		"rowmill.yaml": "deploy/package/rowmill.yaml",
	} {
		b, err := os.ReadFile(file) //nolint:gosec // from the table above
		if err != nil {
			return err
		}
		beside = append(beside, tarEntry{name: name, mode: 0o644, bytes: b})
	}
	if err := fs.WalkDir(os.DirFS(r.stage), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(r.stage, path))
		beside = append(beside, tarEntry{name: path, mode: 0o644, bytes: b})
		return err
	}); err != nil {
		return err
	}
	for _, p := range r.programs {
		path := r.releasePath(p.arch, ".tar.gz")
		folder := strings.TrimSuffix(filepath.Base(path), ".tar.gz") + "/"
		all := []tarEntry{{name: folder, mode: 0o755}, {name: folder + "rowmill", mode: 0o755, bytes: p.bytes}}
		for _, e := range beside {
			e.name = folder + e.name
			all = append(all, e)
		}
		b, err := tarFiles(all, r.built)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, gzipBytes(b), 0o644); err != nil { //nolint:gosec // public files
			return err
		}
	}
	return nil
}
