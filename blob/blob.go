// Package blob stores objects: inputs, shards, parts and results. It defines the
// contract (Bucket) and its conformance suite (blobtest). blob/dir stores objects in a
// directory, blob/s3 on an S3 server. No package of blob knows the content of objects.
// Only blob/layout knows which keys Rowmill uses.
//
// Keys are slash-separated paths of the characters A-Z a-z 0-9 . _ ~ = and -,
// without empty, "." or ".." elements, at most 512 bytes long.
package blob

import (
	"context"
	"errors"
	"io"
	"time"
)

// ErrLost means that an object was replaced or deleted during a read, and that
// the bucket cannot keep the old version.
var ErrLost = errors.New("the object was replaced or deleted while it was read")

// Bucket holds objects by key.
type Bucket interface {
	// Create opens a new object for writing. Commit makes it visible; before
	// that nothing is visible under key. Commit replaces an existing object
	// atomically. contentType is the type in the response to GET. The writer
	// may stop working when ctx ends.
	Create(ctx context.Context, key, contentType string) (Writer, error)

	// Open opens an object for reading, or returns rowmill.ErrNotFound. If the object
	// is replaced or deleted while it is open, the reader continues with the version
	// that it opened or, if the bucket cannot keep that version, fails with ErrLost. It
	// never mixes two versions. The object may stop working when ctx ends.
	Open(ctx context.Context, key string) (Object, error)

	// Stat describes an object, or returns rowmill.ErrNotFound.
	Stat(ctx context.Context, key string) (ObjectInfo, error)

	// List returns the objects whose keys start with prefix, in key order.
	// prefix must end in a slash or be empty.
	List(ctx context.Context, prefix string) ([]ObjectInfo, error)

	// Folders returns the names of folders in the folder prefix, which must end in a
	// slash or be empty. For the prefix "a/" and the key "a/b/c" it returns "b". It
	// returns at most limit names (> 0), in the order of their keys. If after is not
	// empty, the names start after this name. A returned folder may be empty.
	Folders(ctx context.Context, prefix, after string, limit int) ([]string, error)

	// Copy copies the object at from to the key to. The copy appears atomically,
	// replaces an existing object, and stays if its source is deleted. The error is
	// rowmill.ErrNotFound if there is no source. If the storage can copy bytes itself,
	// they do not pass through this process.
	Copy(ctx context.Context, from, to string) error

	// Delete removes an object. A missing object is not an error.
	Delete(ctx context.Context, key string) error

	// DeletePrefix removes every object whose key starts with prefix, which
	// must end in a slash, and the unfinished data of writers under prefix.
	// Writers of this process that are open now cannot commit there afterwards.
	DeletePrefix(ctx context.Context, prefix string) error

	// SignURL returns a URL for one method, GET or HEAD. The URL is valid for the time
	// expires, 1 s to 7 days. filename is the file name of the
	// download, sent as Content-Disposition.
	SignURL(ctx context.Context, method, key, filename string, expires time.Duration) (string, error)

	// MinStorageCopySize returns the smallest length in bytes from which an Appender of
	// this bucket can append a range of an object inside the storage, at least in
	// part. The bytes of a shorter range always pass through this process. 0
	// means that the length does not matter.
	MinStorageCopySize() int64

	// Name returns the bucket's name, for the answer of the API call results-url.
	Name() string
}

// Writer writes one object. The caller must call either Commit or Abort. Abort
// after Commit does nothing, so it can be deferred.
type Writer interface {
	io.Writer
	// Commit makes the object durable and visible.
	Commit() (ObjectInfo, error)
	// Abort drops the written data.
	Abort()
}

// Object is an open object. ReadAt is safe for concurrent use.
type Object interface {
	io.ReaderAt
	io.Closer
	Size() int64
	// Info describes the object at the time of Open.
	Info() ObjectInfo
}

// ObjectInfo describes an object.
type ObjectInfo struct {
	Key      string
	Size     int64     // bytes
	ETag     string    // a strong ETag, with its quotes; objects with equal content may have the same ETag
	Modified time.Time // when the object was written, precise to a second or better; Commit returns its own approximate time
}

// NewReader returns a sequential reader over a whole object.
func NewReader(o Object) *io.SectionReader { return io.NewSectionReader(o, 0, o.Size()) }
