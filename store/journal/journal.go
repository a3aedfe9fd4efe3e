// Package journal writes the audit record to a file as well, one JSON object a line,
// for whatever gathers logs. It knows neither who acts nor where records are.
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

// A Journal is a file of entries of the audit record.
type Journal struct {
	path string

	mu   sync.Mutex
	file *os.File
}

// Open opens the file, which is made when missing, with mode 0600. It may be a pipe
// or a terminal too, such as /dev/stdout.
func Open(path string) (*Journal, error) {
	j := &Journal{path: path}
	if err := j.reopen(); err != nil {
		return nil, err
	}
	return j, nil
}

// Close closes the file.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file.Close()
}

// Of is a store whose entries of the audit record stand in the file as well. A line is
// there, and durable where the file is one on a disk, before the entry is recorded:
// every entry has one. One that cannot be written is not recorded either. What could
// be written and not recorded is a line of an act that was refused.
func (j *Journal) Of(records store.Store) store.Store { return journalled{records, j} }

type journalled struct {
	store.Store
	journal *Journal
}

func (s journalled) AppendAudit(ctx context.Context, entry store.AuditEntry) error {
	if err := entry.Check(); err != nil {
		return err
	}
	if err := s.journal.write(entry); err != nil {
		return fmt.Errorf("write to the file of the audit record: %w", err)
	}
	return s.Store.AppendAudit(ctx, entry)
}

// write appends a line, or nothing.
func (j *Journal) write(entry store.AuditEntry) error {
	line, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.follow(); err != nil {
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
	return errors.Join(err, j.file.Truncate(info.Size())) // half a line would spoil the next
}

// follow opens the file anew where another has its name, or none: what rotates logs
// has moved it away.
func (j *Journal) follow() error {
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

func (j *Journal) reopen() error {
	file, err := os.OpenFile(j.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		j.file = file
	}
	return err
}
