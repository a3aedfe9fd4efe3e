package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A PageRequest selects a part of a list that is ordered by id.
type PageRequest struct {
	Limit     int    // most entries, above 0
	After     string // start after this id, in the order of the list; the id need not exist; empty: from the beginning
	Ascending bool   // true: ascending by id, the oldest first; false: the newest first
}

// Check refuses a page whose limit is below 1.
func (p PageRequest) Check() error {
	if p.Limit < 1 {
		return fmt.Errorf("the limit of the page is %d and must be at least 1", p.Limit)
	}
	return nil
}

// File is an uploaded file of a client, or an output file of a batch. Its record never
// changes.
type File struct {
	ID      string     `json:"id"` // "file-" and a UUID of version 7 without hyphens: ids sort by the time of creation
	Account string     `json:"account"`
	Purpose string     `json:"purpose"` // in the terms of the dialect, such as "batch"
	Name    string     `json:"name"`    // from the client; any text
	Size    int64      `json:"size"`    // bytes
	Created time.Time  `json:"created"`
	Expires *time.Time `json:"expires,omitempty"` // from this time on, the file does not exist for clients
	Key     string     `json:"key"`               // blob key of the file's object
	Job     string     `json:"job,omitempty"`     // the object is an artifact of this job and is removed with it; empty: the object belongs to the file
}

// Check refuses a file that cannot be stored.
func (f File) Check() error {
	for _, name := range []struct{ what, text string }{
		{"the id", f.ID}, {"the account", f.Account}, {"the purpose", f.Purpose}, {"the key", f.Key},
	} {
		if err := CheckName(name.what+" of a file", name.text); err != nil {
			return err
		}
	}
	if f.Created.IsZero() || f.Size < 0 {
		return errors.New("its time of creation is not set, or its size is below 0")
	}
	return nil
}

// Files holds the records of files. The caller writes the object before it creates the
// record, and removes the object after the record.
type Files interface {
	// CreateFile stores a file. An existing id is rowmill.ErrConflict, unless the
	// stored file is the same: then nothing changes.
	CreateFile(ctx context.Context, f File) error
	// GetFile returns a file, expired or not, or rowmill.ErrNotFound.
	GetFile(ctx context.Context, id string) (File, error)
	// ListFiles returns a page of an account's files. If purpose is not empty, it returns
	// only files with this purpose. more reports whether further files follow. If files
	// are created or deleted between two calls, no other file is skipped or repeated.
	ListFiles(ctx context.Context, account, purpose string, page PageRequest) (files []File, more bool, err error)
	// DeleteFile removes the record of a file. For an unknown id the error is
	// rowmill.ErrNotFound.
	DeleteFile(ctx context.Context, id string) error
	// ExpiredFiles returns up to limit files that have expired at now, in the order of
	// expiry.
	ExpiredFiles(ctx context.Context, now time.Time, limit int) ([]File, error)
}
