// Package journal writes the audit record to a file, in addition to the store: one JSON
// object per line, for log collectors. It does not know who acts or where records are
// stored.
package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/rowmill/rowmill/store"
)

// An AuditJournal writes audit entries to a file.
type AuditJournal struct {
	path string

	mu   sync.Mutex
	file *os.File
}

// Open opens the file, or creates it with mode 0600. The path may also name a pipe or a
// terminal, such as /dev/stdout.
func Open(path string) (*AuditJournal, error) {
	j := &AuditJournal{path: path}
	if err := j.reopen(); err != nil {
		return nil, err
	}
	return j, nil
}

// Close closes the file.
func (j *AuditJournal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file.Close()
}

// WrapStore wraps records in a store that also writes audit entries to the file. It writes the
// line, and syncs a regular file, before it stores the entry, so that every stored entry
// has a line. If the line cannot be written, the entry is not stored. If the line was
// written but the entry cannot be stored, the file has a line of an action that was
// refused.
func (j *AuditJournal) WrapStore(records store.Store) store.Store { return auditedStore{records, j} }

type auditedStore struct {
	store.Store
	journal *AuditJournal
}

func (s auditedStore) AppendAudit(ctx context.Context, entry store.AuditEntry) error {
	if err := entry.Check(); err != nil {
		return err
	}
	if err := s.journal.write(entry); err != nil {
		return fmt.Errorf("write to the audit file: %w", err)
	}
	return s.Store.AppendAudit(ctx, entry)
}

// write appends an entry to the file as one line. If the write fails, it removes the
// incomplete line from a regular file.
func (j *AuditJournal) write(entry store.AuditEntry) error {
	line, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.reopenIfMoved(); err != nil {
		return err
	}
	info, err := j.file.Stat()
	if err != nil {
		return err
	}
	_, err = j.file.Write(append(line, '\n'))
	if !info.Mode().IsRegular() {
		return err
	}
	if err == nil {
		return j.file.Sync()
	}
	return errors.Join(err, j.file.Truncate(info.Size())) // an incomplete line would damage the next line
}

// reopenIfMoved opens the path again if log rotation has moved or deleted the open file.
func (j *AuditJournal) reopenIfMoved() error {
	named, err := os.Stat(j.path)
	if err == nil {
		open, err := j.file.Stat()
		if err == nil && os.SameFile(named, open) {
			return nil
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	former := j.file
	if err := j.reopen(); err != nil {
		return err
	}
	return former.Close()
}

func (j *AuditJournal) reopen() error {
	file, err := os.OpenFile(j.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		j.file = file
	}
	return err
}
