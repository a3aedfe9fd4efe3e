package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/http/nodes"
	"github.com/rowmill/rowmill/store/backup"
	"github.com/rowmill/rowmill/store/bolt"
)

// Backup holds the records of a single moment and every object that they name. A node
// writes an object before a record names it, and deletes it after no record names it,
// or when it has expired. Backup starts to hold objects before it copies the records,
// so an object that is deleted later stays in the snapshot. An object that is added
// later is harmless, like an object without a record after a crash.
func (s *service) Backup(ctx context.Context) (nodes.Backup, error) {
	m := s.storage
	records, embedded := m.Store.(*bolt.Store)
	if !embedded || m.folder == nil {
		return nil, fmt.Errorf("%w: they are at %s and %s", nodes.ErrNoBackup, m.records(), m.objects())
	}
	if !m.backingUp.CompareAndSwap(false, true) {
		return nil, fmt.Errorf("make a backup: another is under way: %w", rowmill.ErrConflict)
	}
	b, err := m.hold(ctx, records)
	if err != nil {
		m.backingUp.Store(false)
		return nil, fmt.Errorf("make a backup: %w", err)
	}
	return b, nil
}

// A heldBackup is a folder of records and objects that do not change.
type heldBackup struct {
	storage  *storage
	snapshot *dir.Snapshot
	header   backup.Header
}

func (b *heldBackup) At() time.Time { return b.header.At }

func (b *heldBackup) Write(ctx context.Context, w io.Writer) error {
	return backup.Write(ctx, w, b.header, b.snapshot.Folder)
}

func (b *heldBackup) Close() error {
	defer b.storage.backingUp.Store(false)
	return b.snapshot.Close()
}

// hold makes a snapshot of the records and of every object that they name.
func (s *storage) hold(ctx context.Context, records *bolt.Store) (*heldBackup, error) {
	before, err := s.jobFolders()
	if err != nil {
		return nil, err
	}
	b := &heldBackup{storage: s, header: backup.Header{Format: backup.Format, Version: buildInfo().Version, Deployment: s.deployment.ID}}
	b.snapshot, err = s.folder.Snapshot(ctx, func(folder string) error {
		b.header.At = s.now().UTC()
		return records.Copy(ctx, filepath.Join(folder, backup.Records))
	})
	if err != nil {
		return nil, err
	}
	if err = dropLater(ctx, b.snapshot.Folder, before); err == nil {
		err = b.header.Measure(b.snapshot.Folder)
	}
	if err != nil {
		return nil, errors.Join(err, b.snapshot.Close())
	}
	return b, nil
}

// jobFolders returns the ids of the jobs that have objects.
func (s *storage) jobFolders() (map[string]bool, error) {
	entries, err := os.ReadDir(filepath.Join(s.objects(), layout.Jobs))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	jobs := make(map[string]bool, len(entries))
	for _, entry := range entries {
		jobs[entry.Name()] = true
	}
	return jobs, nil
}

// dropLater removes from a snapshot the jobs that came after the copy of the records
// and that the records do not know. A node that starts on the backup would quarantine
// their objects like the objects of lost jobs. Objects stay if they had no record
// before the backup and no client was submitting their job.
func dropLater(ctx context.Context, folder string, before map[string]bool) (err error) {
	at := func(key string) string { return filepath.Join(folder, backup.Objects, filepath.FromSlash(key)) }
	entries, err := os.ReadDir(at(layout.Jobs))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var copied *bolt.Store
	for _, entry := range entries {
		id := entry.Name()
		if before[id] {
			_, err := os.Stat(at(layout.Spooling(id))) // a client was submitting it
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
		}
		if copied == nil {
			if copied, err = bolt.Open(ctx, bolt.Config{Path: filepath.Join(folder, backup.Records)}); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, copied.Close()) }()
		}
		_, err := copied.Get(ctx, id)
		if err == nil {
			continue
		}
		if !errors.Is(err, rowmill.ErrNotFound) {
			return err
		}
		for _, key := range []string{layout.Job(id), layout.Spooling(id), layout.SetAside(id)} {
			if err := os.RemoveAll(at(key)); err != nil {
				return err
			}
		}
	}
	return nil
}
