package dir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/must"
)

// create opens a writer and writes content.
func create(t testing.TB, b *Bucket, key string, content []byte) blob.Writer {
	t.Helper()
	w := must.Get(b.Create(t.Context(), key, ""))(t)
	must.Get(w.Write(content))(t)
	return w
}

func mustPut(t testing.TB, b *Bucket, key string, content []byte) blob.ObjectInfo {
	t.Helper()
	info := must.Get(create(t, b, key, content).Commit())(t)
	return info
}

func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	if _, err := Open(Config{}); err == nil || !strings.Contains(err.Error(), "Root") {
		t.Errorf("no root: %v", err)
	}
	b := openBucket(t, Config{Root: t.TempDir()})
	for _, base := range []string{"x", "ftp://h", "http://", "http://h?q=1", "http://h#f", "http://u:p@h", "://"} {
		if _, err := Open(Config{Root: t.TempDir(), PublicURL: base}); err == nil || !strings.Contains(err.Error(), "PublicURL") {
			t.Errorf("%q: %v", base, err)
		}
		if err := b.SetPublicURL(base); err == nil {
			t.Errorf("SetPublicURL accepts %q", base)
		}
	}
	if _, err := b.SignURL(t.Context(), "GET", "k", "", time.Minute); err == nil || !strings.Contains(err.Error(), "signing keys") {
		t.Errorf("sign without keys: %v", err)
	}
	b = openBucket(t, Config{Root: t.TempDir(), Keys: loadKeys(t, newValues())})
	if _, err := b.SignURL(t.Context(), "GET", "k", "", time.Minute); err == nil || !strings.Contains(err.Error(), "public URL") {
		t.Errorf("sign without a public URL: %v", err)
	}
}

// fullDisk fails one step of writing a file.
type fullDisk struct {
	file
	step string
	left int // bytes that it accepts
}

func (f *fullDisk) Write(p []byte) (int, error) {
	if f.step == "write" && len(p) > f.left {
		n, _ := f.file.Write(p[:f.left])
		f.left = 0
		return n, &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	}
	f.left -= len(p)
	return f.file.Write(p)
}

func (f *fullDisk) Sync() error {
	if f.step == "sync" {
		return &os.PathError{Op: "sync", Path: "x", Err: syscall.ENOSPC}
	}
	return f.file.Sync()
}

func (f *fullDisk) Close() error {
	err := f.file.Close()
	if f.step == "close" {
		return &os.PathError{Op: "close", Path: "x", Err: syscall.ENOSPC}
	}
	return err
}

// TestDiskFull fails each step. The old object must stay, no file may be left
// over, and the error must name the cause.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"create", "write", "sync", "close"} {
		for _, size := range []int{100, 1 << 20} { // within the buffer, and beyond it
			root := t.TempDir()
			b := openBucket(t, Config{Root: root})
			mustPut(t, b, "a/k", []byte("old"))
			err := func() error {
				w, err := b.create(t.Context(), "a/k", "", func(path string) (file, error) {
					if step == "create" {
						return nil, &os.PathError{Op: "open", Path: path, Err: syscall.ENOSPC}
					}
					f, err := createFile(path)
					return &fullDisk{file: f, step: step, left: 50}, err
				})
				if err != nil {
					return err
				}
				defer w.Abort()
				_, writeErr := w.Write(make([]byte, size))
				_, err = w.Commit() // also if the caller missed the error of Write
				if err == nil {
					t.Errorf("%s: the commit succeeds; the write said %v", step, writeErr)
				}
				return err
			}()
			if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "a/k") {
				t.Errorf("%s: %v, want ENOSPC and the key", step, err)
			}
			noLeftovers(t, root)
			if raw, err := os.ReadFile(filepath.Join(root, "objects", "a", "k")); err != nil || string(raw) != "old" {
				t.Errorf("%s: the old object holds %.10q, %v", step, raw, err)
			}
			mustPut(t, b, "a/k", make([]byte, size))
		}
	}
}

func TestKeyUnderAnObject(t *testing.T) {
	t.Parallel()
	b := openBucket(t, Config{Root: t.TempDir()})
	mustPut(t, b, "a/b", nil)
	for _, key := range []string{"a/b/c", "a/b/c/d", "a"} {
		if _, err := b.Create(t.Context(), key, ""); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if _, err := b.Create(t.Context(), strings.Repeat("x", 300), ""); err == nil || !strings.Contains(err.Error(), "240") {
		t.Errorf("a long element: %v", err)
	}
	if _, err := b.Create(t.Context(), "k", "no type"); err == nil {
		t.Error("an invalid content type is accepted")
	}
}

// TestOpenKeepsFilesOfRunningProcesses opens a directory that another process uses.
func TestOpenKeepsFilesOfRunningProcesses(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	living := openBucket(t, Config{Root: root})
	w := create(t, living, "a/k", []byte("content"))
	for _, dead := range []string{"empty", "unlocked"} {
		must.Succeed(t, os.MkdirAll(filepath.Join(root, "tmp", dead), 0o700))
	}
	for _, name := range []string{lockName, "1", "2"} {
		must.Succeed(t, os.WriteFile(filepath.Join(root, "tmp", "unlocked", name), nil, 0o600))
	}
	other := openBucket(t, Config{Root: root})
	entries, err := os.ReadDir(filepath.Join(root, "tmp"))
	if err != nil || len(entries) != 2 {
		t.Errorf("%d processes have folders, want the 2 living; %v", len(entries), err)
	}
	if _, err := w.Commit(); err != nil {
		t.Errorf("the writer of the living process: %v", err)
	}
	if _, err := other.Stat(t.Context(), "a/k"); err != nil {
		t.Errorf("the other process: %v", err)
	}
}

// TestFoldersAreBounded checks that memory does not grow with the number of
// jobs.
func TestFoldersAreBounded(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f := must.Get(openFolders(root, true))(t)
	for i := range 2*maxDurableFolders + 10 {
		must.Succeed(t, f.makeDurable(filepath.Join(root, fmt.Sprint(i))))
	}
	if len(f.known) > maxDurableFolders {
		t.Errorf("%d folders are remembered", len(f.known))
	}
}

func TestClosedBucket(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	b := openBucket(t, Config{Root: root})
	mustPut(t, b, "k", []byte("x"))
	w := must.Get(b.Create(t.Context(), "open", ""))(t)
	for range 2 {
		must.Succeed(t, b.Close())
	}
	if _, err := w.Commit(); err == nil {
		t.Error("a writer commits after Close")
	}
	if _, err := b.Create(t.Context(), "new", ""); err == nil {
		t.Error("a writer is opened after Close")
	}
	if _, err := b.Stat(t.Context(), "k"); err != nil {
		t.Errorf("stat: %v", err)
	}
	noLeftovers(t, root)
}

func FuzzCheckKey(f *testing.F) {
	for _, key := range []string{"a/b", "../x", "a//b", "", "a\x00", strings.Repeat("x/", 300), "a=~._-"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if checkKey(key) != nil {
			return
		}
		path := filepath.Join("/root/objects", filepath.FromSlash(key))
		if path != "/root/objects/"+key {
			t.Errorf("key %q is the path %q", key, path)
		}
	})
}
