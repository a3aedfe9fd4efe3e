package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"

	"github.com/rowmill/rowmill/deploy/wheel"
)

// writeWheels writes the Python package for each architecture.
func (r *release) writeWheels(context.Context) error {
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	for _, p := range r.programs {
		w := wheel.Wheel{
			Version: r.version, Arch: p.arch, Program: p.bytes, Python: os.DirFS("client/python"), Built: r.built,
			Texts: map[string][]byte{"LICENSE": license, "LICENSES": r.licenses},
		}
		var out bytes.Buffer
		if err := w.Write(&out); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.to, w.Name()), out.Bytes(), 0o644); err != nil { //nolint:gosec // public files
			return err
		}
	}
	return nil
}
