//go:build !linux

package redo

import "os"

// flush makes what was written to a file durable.
func flush(f *os.File) error { return f.Sync() }

type reader struct{ *os.File }

func openReader(path string) (*reader, error) {
	file, err := os.Open(path)
	return &reader{file}, err
}
