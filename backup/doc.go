// Package backup owns the form of a backup: how the files of a node's data
// directory travel in one archive, and how they come out of it again. It knows
// neither records nor objects, nor how they are held still while they are read.
//
// An archive is a plain tar (POSIX, with times to the nanosecond, which the
// objects' ETags follow from), in this order:
//
//	backup.json        a Header: what this is, and how much is to come
//	rowmill.db         the records
//	objects/…          the objects, and beside some their content types
//	checksums.sha256   a line for each file before, as sha256sum -c takes it
//	manifest.json      a Manifest: the header once more, and the hash of the checksums
//
// The manifest is the end: an archive without it was cut off.
package backup

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
)

// Format is the form that this release writes, and the newest that it reads.
const Format = 1

// The names in an archive.
const (
	nameHeader    = "backup.json"
	nameChecksums = "checksums.sha256"
	nameManifest  = "manifest.json"

	// Records is the file of the records, and Objects the folder of the objects.
	Records = "rowmill.db"
	Objects = "objects"
)

// maxDocument bounds the header and the manifest, which have some hundred bytes.
const maxDocument = 64 << 10

// A Header says what an archive holds.
type Header struct {
	Format     int       `json:"rowmill_backup"`
	Version    string    `json:"version"`    // of the program that wrote it
	Deployment string    `json:"deployment"` // whose records and objects these are
	At         time.Time `json:"at"`         // the records are those of this moment
	Files      int64     `json:"files"`      // records and objects
	Bytes      int64     `json:"bytes"`      // of them
}

// A manifest ends an archive.
type manifest struct {
	Header
	Checksums string `json:"checksums_sha256"` // of checksums.sha256, hexadecimal
}

// ErrCutOff says that an archive has no end.
var ErrCutOff = errors.New("the archive ends before its manifest: it was cut off while it was written or copied, and cannot be restored; take an earlier one, or make another")

// errNone says that something is no archive of ours.
func errNone(why string, args ...any) error {
	return fmt.Errorf("this is no backup that rowmill has made: "+why, args...)
}

// checkName refuses what cannot be the path of a record or object file.
func checkName(name string) error {
	if name == Records || strings.HasPrefix(name, Objects+"/") && path.Clean(name) == name && !strings.ContainsAny(name, "\x00\n\\") {
		return nil
	}
	return errNone("it holds the file %.200q", name)
}

// checksumLine is the line of a file, as sha256sum writes it.
func checksumLine(name string, sum []byte) string { return fmt.Sprintf("%x  %s\n", sum, name) }
