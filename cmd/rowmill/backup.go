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

// Backup makes a snapshot of all records and of every object that they name. A node
// writes an object before it writes the record that names the object. A node deletes an
// object when no record names it any more, or when the object has expired. Backup
// begins to preserve objects before it copies the records, so an object that is deleted
// during the copy is still in the snapshot. An object that is added later is harmless,
// like an object that has no record after a crash.
func (s *nodeService) Backup(ctx context.Context) (nodes.BackupSnapshot, error) {
	m := s.storage
	records, embedded := m.Store.(*bolt.Store)
	if !embedded || m.folder == nil {
		return nil, fmt.Errorf("%w: the records are at %s, the objects at %s", nodes.ErrNoBackup, m.recordsLocation(), m.objectsLocation())
	}
	if !m.backingUp.CompareAndSwap(false, true) {
		return nil, fmt.Errorf("make a backup: another backup is in progress: %w", rowmill.ErrConflict)
	}
	b, err := m.takeSnapshot(ctx, records)
	if err != nil {
		m.backingUp.Store(false)
		return nil, fmt.Errorf("make a backup: %w", err)
	}
	return b, nil
}

// A snapshotBackup is a backup that can be downloaded: a folder with a snapshot of the
// records and objects.
type snapshotBackup struct {
	storage  *nodeStorage
	snapshot *dir.Snapshot
	header   backup.Header
}

func (b *snapshotBackup) SnapshotTime() time.Time { return b.header.At }

func (b *snapshotBackup) Write(ctx context.Context, w io.Writer) error {
	return backup.Write(ctx, w, b.header, b.snapshot.Folder)
}

func (b *snapshotBackup) Close() error {
	defer b.storage.backingUp.Store(false)
	return b.snapshot.Close()
}

// takeSnapshot makes a snapshot of the records and of every object that they name, and returns
// it as a snapshotBackup.
func (s *nodeStorage) takeSnapshot(ctx context.Context, records *bolt.Store) (*snapshotBackup, error) {
	before, err := s.listJobFolders()
	if err != nil {
		return nil, err
	}
	b := &snapshotBackup{storage: s, header: backup.Header{Format: backup.Format, Version: readBuildMetadata().Version, Deployment: s.deployment.ID}}
	b.snapshot, err = s.folder.Snapshot(ctx, func(folder string) error {
		b.header.At = s.now().UTC()
		return records.Copy(ctx, filepath.Join(folder, backup.Records))
	})
	if err != nil {
		return nil, err
	}
	if err = dropJobsAfterSnapshot(ctx, b.snapshot.Folder, before); err == nil {
		err = b.header.CountFiles(b.snapshot.Folder)
	}
	if err != nil {
		return nil, errors.Join(err, b.snapshot.Close())
	}
	return b, nil
}

// listJobFolders returns the jobs that have objects, as a set of job IDs.
func (s *nodeStorage) listJobFolders() (map[string]bool, error) {
	entries, err := os.ReadDir(filepath.Join(s.objectsLocation(), layout.Jobs))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	jobs := make(map[string]bool, len(entries))
	for _, entry := range entries {
		jobs[entry.Name()] = true
	}
	return jobs, nil
}

// dropJobsAfterSnapshot removes from a snapshot the objects of jobs that have no record in it. It
// does so only for jobs that are not in jobsBefore, the jobs with objects before the copy
// of the records, and for jobs that a client was submitting. Otherwise a node that starts
// on the backup would quarantine these objects as objects of lost jobs.
func dropJobsAfterSnapshot(ctx context.Context, folder string, jobsBefore map[string]bool) (err error) {
	at := func(key string) string { return filepath.Join(folder, backup.Objects, filepath.FromSlash(key)) }
	entries, err := os.ReadDir(at(layout.Jobs))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var copied *bolt.Store
	for _, entry := range entries {
		id := entry.Name()
		if jobsBefore[id] {
			_, err := os.Stat(at(layout.SpoolingKey(id))) // this object exists while a client submits the job
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
		for _, key := range []string{layout.JobPrefix(id), layout.SpoolingKey(id), layout.QuarantineNoteKey(id)} {
			if err := os.RemoveAll(at(key)); err != nil {
				return err
			}
		}
	}
	return nil
}
