package dir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// maxKnown is how many folders are remembered as durable: enough for the jobs
// that are active, a few hundred kilobytes at most. Beyond it all are
// forgotten, which costs a sync each.
const maxKnown = 4096

// folders makes folders durable: a folder is, once the folder it is in was
// synced after it appeared. One that merely exists may have been made by a
// process that was killed before its sync, or by a neighbour still at it.
type folders struct {
	base   string // folders above it are not ours to sync if they exist
	noSync bool
	mu     sync.Mutex
	known  map[string]struct{} // durable folders
}

func newFolders(base string, noSync bool) *folders {
	return &folders{base: base, noSync: noSync, known: map[string]struct{}{}}
}

// make makes a folder and its parents where they are missing.
func (f *folders) make(path string) error {
	f.mu.Lock()
	_, durable := f.known[path]
	f.mu.Unlock()
	if durable {
		return nil
	}
	parent := filepath.Dir(path)
	if parent == path {
		return nil
	}
	if err := f.make(parent); err != nil {
		return err
	}
	err := os.Mkdir(path, 0o700)
	if err != nil {
		info, statErr := os.Stat(path)
		switch {
		case statErr != nil:
			return err
		case !info.IsDir():
			return &os.PathError{Op: "mkdir", Path: path, Err: errors.New("an object has this name, so no key can continue it")}
		}
	}
	if err == nil || strings.HasPrefix(path, f.base) {
		if err := f.sync(parent); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.known) >= maxKnown {
		clear(f.known)
	}
	f.known[path] = struct{}{}
	return nil
}

// forget forgets a folder that is gone and those that were in it.
func (f *folders) forget(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for known := range f.known {
		if known == path || strings.HasPrefix(known, path+string(filepath.Separator)) {
			delete(f.known, known)
		}
	}
}

// sync makes the names in a folder durable.
func (f *folders) sync(path string) error {
	if f.noSync {
		return nil
	}
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
