package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Page is a part of a list that is ordered by ids.
type Page struct {
	Limit     int    // at most so many, above 0
	After     string // those beyond this id, in the direction of the list, which need not exist; empty: from its beginning
	Ascending bool   // by their ids; else descending, the newest first
}

// Check refuses a page that cannot be.
func (p Page) Check() error {
	if p.Limit < 1 {
		return fmt.Errorf("a page of %d", p.Limit)
	}
	return nil
}

// File is what a client uploaded, or what a batch has left for its client. A
// record never changes.
type File struct {
	ID      string     `json:"id"` // "file-" and a UUID of version 7 without hyphens: ids sort by the time of creation
	Account string     `json:"account"`
	Purpose string     `json:"purpose"` // in the words of the dialect, such as "batch"
	Name    string     `json:"name"`    // as the client gave it; any text
	Size    int64      `json:"size"`    // bytes
	Created time.Time  `json:"created"`
	Expires *time.Time `json:"expires,omitempty"` // it is gone from then on
	Key     string     `json:"key"`               // blob key
	Job     string     `json:"job,omitempty"`     // the object is an artifact of this job, and goes with it; else it is the file's own
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

// Files are the records of files. Objects are their callers' to write before and to
// remove after.
type Files interface {
	// CreateFile stores a file. An id that exists is rowmill.ErrConflict, unless
	// the file is the same: then nothing happens.
	CreateFile(ctx context.Context, f File) error
	// GetFile returns a file, expired or not, or rowmill.ErrNotFound.
	GetFile(ctx context.Context, id string) (File, error)
	// ListFiles returns a page of an account's files, those of a purpose where that
	// is not empty, and whether there are more behind it. Files created or deleted
	// meanwhile cause neither skips nor repeats.
	ListFiles(ctx context.Context, account, purpose string, page Page) (files []File, more bool, err error)
	// DeleteFile removes the record of a file; an unknown id is
	// rowmill.ErrNotFound.
	DeleteFile(ctx context.Context, id string) error
	// ExpiredFiles returns up to limit files that have expired at now, those that
	// did first, first.
	ExpiredFiles(ctx context.Context, now time.Time, limit int) ([]File, error)
}
