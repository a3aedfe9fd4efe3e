package dir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/rowmill/rowmill/internal/durable"
)

// maxDurableFolders is the largest number of folders that are remembered as durable: enough for
// the active jobs, with a few hundred kilobytes of memory at most. If there are more
// folders, all are forgotten, and each folder then needs another sync.
const maxDurableFolders = 4096

// folders makes folders and makes them durable. A folder is durable if its
// parent was synced after the folder appeared. A folder that exists may still not
// be durable: the process that made it may have been killed before the sync, or has
// not synced yet. Making and syncing are separate steps: if a file is written and
// synced between the two steps, most file systems need almost no time to sync the
// folders.
type folders struct {
	base   string // this folder and its parents are durable
	noSync bool
	mu     sync.Mutex
	known  map[string]struct{} // durable folders below base
}

// openFolders makes base and its missing parents, durably.
func openFolders(base string, noSync bool) (*folders, error) {
	f := &folders{base: base, noSync: noSync, known: map[string]struct{}{}}
	var missing []string
	for at := base; ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil {
			break
		}
		missing = append(missing, at)
	}
	if err := os.MkdirAll(base, 0o700); err != nil {
		return nil, err
	}
	for _, made := range append(missing, base) { // also base: a process may have made it and been killed before the sync
		if err := f.sync(filepath.Dir(made)); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// makeFolder makes a folder below base, and its missing parents.
func (f *folders) makeFolder(path string) error {
	if f.isDurable(path) {
		return nil
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		if refused, ok := errors.AsType[*os.PathError](err); ok {
			if info, statErr := os.Stat(refused.Path); statErr == nil && !info.IsDir() {
				refused.Err = errors.New("an object has this name, so it cannot also be a folder of other objects")
			}
		}
		return err
	}
	return nil
}

// makeDurable makes the file names in a folder durable, and the folder itself.
func (f *folders) makeDurable(path string) error {
	if err := f.sync(path); err != nil {
		return err
	}
	for ; !f.isDurable(path); path = filepath.Dir(path) {
		if err := f.sync(filepath.Dir(path)); err != nil {
			return err
		}
		f.markDurable(path)
	}
	return nil
}

func (f *folders) isDurable(path string) bool {
	if path == f.base {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, known := f.known[path]
	return known
}

func (f *folders) markDurable(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.known) >= maxDurableFolders {
		clear(f.known)
	}
	f.known[path] = struct{}{}
}

// forget forgets a folder that was removed, and the folders in it.
func (f *folders) forget(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for known := range f.known {
		if known == path || strings.HasPrefix(known, path+string(filepath.Separator)) {
			delete(f.known, known)
		}
	}
}

// sync makes the file names in a folder durable.
func (f *folders) sync(path string) error {
	if f.noSync {
		return nil
	}
	return durable.SyncFolder(path)
}
