// Pack compresses a built console into the files that are committed. The standard
// library's gzip makes the same bytes on every machine.
//
//	pack FROM TO          replaces folder TO by the files of folder FROM, each as .gz
//	pack -check FROM TO   lists the files in which TO and FROM differ
package main

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	check := flag.Bool("check", false, "only compare the files in both folders, and write nothing")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: pack [-check] FROM TO")
		os.Exit(2)
	}
	run := packFolder
	if *check {
		run = comparePacked
	}
	if err := run(flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// packFolder replaces folder to by the compressed files of folder from.
func packFolder(from, to string) error {
	built, err := readFiles(from)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	for name, b := range built {
		var packed bytes.Buffer
		w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		file := filepath.Join(to, name+".gz")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, packed.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// comparePacked returns an error that lists the files in which to and from differ.
func comparePacked(from, to string) error {
	built, err := readFiles(from)
	if err != nil {
		return err
	}
	packed, err := readFiles(to)
	if err != nil {
		return err
	}
	var differ []string
	for name, b := range packed {
		name = strings.TrimSuffix(name, ".gz")
		r, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		was, err := io.ReadAll(r)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if is, ok := built[name]; !ok || !bytes.Equal(is, was) {
			differ = append(differ, name)
		}
		delete(built, name)
	}
	for name := range built {
		differ = append(differ, name)
	}
	if len(differ) > 0 {
		slices.Sort(differ)
		return fmt.Errorf("these files of %s differ from the built console; run make console:\n  %s", to, strings.Join(differ, "\n  "))
	}
	return nil
}

// readFiles reads all files below a folder. The keys of the map are paths relative to the
// folder, with slashes.
func readFiles(folder string) (map[string][]byte, error) {
	found := make(map[string][]byte)
	err := filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		found[filepath.ToSlash(name)], err = os.ReadFile(file)
		return err
	})
	return found, err
}
