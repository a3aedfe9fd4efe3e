package journal_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/journal"
)

func records(t *testing.T) store.Store {
	t.Helper()
	s := must.Get(bolt.Open(t.Context(), bolt.Config{Path: filepath.Join(t.TempDir(), "rowmill.db")}))(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func open(t *testing.T, path string) *journal.AuditJournal {
	t.Helper()
	j := must.Get(journal.Open(path))(t)
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func entry(id string) store.AuditEntry {
	return store.AuditEntry{
		ID: id, At: time.Unix(1_700_000_000, 0).UTC(), Account: "acme", Action: "key.create", Target: "5f2c9a01d3e4",
		ByAccount: "default", ByKey: "0a1b2c3d4e5f", ByName: "line\nbreak", Request: "r1", Details: json.RawMessage(`{"name":"nightly"}`),
	}
}

// lines returns the entries of a file, which must end with a complete line.
func lines(t *testing.T, path string) (entries []store.AuditEntry) {
	t.Helper()
	text := must.Get(os.ReadFile(path))(t)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		t.Fatalf("the file ends within a line: %q", text)
	}
	for line := range strings.Lines(string(text)) {
		var e store.AuditEntry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		entries = append(entries, e)
	}
	return entries
}

// Every stored entry has a line, in order, even when the file is moved away and when
// many goroutines write at once.
func TestEveryEntryHasALine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	s := records(t)
	first := open(t, path).WrapStore(s)
	must.Succeed(t, first.AppendAudit(t.Context(), entry("a")))
	again := open(t, path).WrapStore(s)
	must.Succeed(t, again.AppendAudit(t.Context(), entry("b")))
	if diff := cmp.Diff([]store.AuditEntry{entry("a"), entry("b")}, lines(t, path)); diff != "" {
		t.Errorf("the file (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v; want mode 0600", info, err)
	}
	must.Succeed(t, os.Rename(path, path+".1"))
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if err := again.AppendAudit(t.Context(), entry(fmt.Sprint("c", i))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if old, now := lines(t, path+".1"), lines(t, path); len(old) != 2 || len(now) != 20 {
		t.Errorf("%d lines in the file that was moved away and %d in the next, want 2 and 20", len(old), len(now))
	}
	kept, _, err := s.ListAudit(t.Context(), "acme", 100, "")
	if err != nil || len(kept) != 22 {
		t.Errorf("%d entries are recorded, want 22: %v", len(kept), err)
	}
}

// No entry is stored without its line, and an invalid entry has no line.
func TestNoEntryWithoutALine(t *testing.T) {
	t.Parallel()
	s := records(t)
	full := open(t, "/dev/full").WrapStore(s)
	if err := full.AppendAudit(t.Context(), entry("a")); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("on a full disk: %v", err)
	}
	folder := filepath.Join(t.TempDir(), "folder")
	must.Succeed(t, os.Mkdir(folder, 0o700))
	path := filepath.Join(folder, "audit.jsonl")
	gone := open(t, path).WrapStore(s)
	must.Succeed(t, os.RemoveAll(folder))
	if err := gone.AppendAudit(t.Context(), entry("a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without its folder: %v", err)
	}
	if kept, _, err := s.ListAudit(t.Context(), "acme", 100, ""); err != nil || len(kept) != 0 {
		t.Errorf("%d entries are recorded, want none: %v", len(kept), err)
	}
	must.Succeed(t, os.Mkdir(folder, 0o700))
	if err := gone.AppendAudit(t.Context(), entry("")); err == nil {
		t.Error("an entry without an id is recorded")
	}
	if err := gone.AppendAudit(t.Context(), entry("a")); err != nil || len(lines(t, path)) != 1 {
		t.Errorf("with its folder back: %v", err)
	}
	if _, err := journal.Open(folder); err == nil {
		t.Error("a folder is a journal")
	}
}

// An entry that could not be stored leaves a line of a refused action.
func TestRefusedActionLeavesALine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	away := errors.New("away")
	s := open(t, path).WrapStore(failing{err: away})
	if err := s.AppendAudit(t.Context(), entry("a")); !errors.Is(err, away) || len(lines(t, path)) != 1 {
		t.Errorf("error %v, want that of the store, and a line", err)
	}
}

type failing struct {
	store.Store
	err error
}

func (f failing) AppendAudit(context.Context, store.AuditEntry) error { return f.err }

// A journal to a pipe, for example to a log collector, cannot be synced but still
// works.
func TestJournalIsAPipe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.pipe")
	must.Succeed(t, syscall.Mkfifo(path, 0o600))
	reader, err := os.OpenFile(path, os.O_RDWR, 0o600)
	must.Succeed(t, err)
	defer reader.Close()
	if err := open(t, path).WrapStore(records(t)).AppendAudit(t.Context(), entry("a")); err != nil {
		t.Errorf("a line for a pipe: %v", err)
	}
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil || !strings.Contains(line, `"a"`) {
		t.Errorf("the reader of the pipe has %q, %v", line, err)
	}
}
