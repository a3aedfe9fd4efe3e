// Package durable makes the names of files and folders survive a power cut.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// MakeFolder creates a folder and its missing parents, and makes each new name durable.
// It returns an error if path is a file.
func MakeFolder(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is not a folder", path)
		}
		return nil
	}
	parent := filepath.Dir(path)
	if err := MakeFolder(parent); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return SyncFolder(parent)
}

// SyncFolder makes the file names in a folder durable: created, renamed and removed
// names.
func SyncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
