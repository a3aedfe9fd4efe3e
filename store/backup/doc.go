// Package backup writes and reads the archive format of backups: the files of a node's
// data directory in one tar archive. It does not know the contents of records and
// objects. The caller must keep them unchanged during a backup.
//
// An archive is a plain tar file in POSIX format, with times to the nanosecond, because
// the ETags of objects derive from them. Its files, in order:
//
//	backup.json        a Header: version, time, number of files and bytes
//	rowmill.db         the records
//	objects/…          the objects, and files with content types beside some
//	checksums.sha256   a line for each file above, as sha256sum -c reads it
//	manifest.json      a Manifest: the header again, and the hash of checksums.sha256
//
// The manifest is the last file: if it is missing, the archive was cut off.
package backup

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
)

// Format is the format version that this release writes, and the newest that it reads.
const Format = 1

// Names of files and folders in an archive.
const (
	nameHeader    = "backup.json"
	nameChecksums = "checksums.sha256"
	nameManifest  = "manifest.json"

	// Records is the file with the records, and Objects the folder with the objects.
	Records = "rowmill.db"
	Objects = "objects"
)

// maxDocument limits the size of the header and of the manifest in bytes. They usually
// have a few hundred bytes.
const maxDocument = 64 << 10

// A Header describes the contents of an archive.
type Header struct {
	Format     int       `json:"rowmill_backup"`
	Version    string    `json:"version"`    // program version that wrote the archive
	Deployment string    `json:"deployment"` // id of the deployment that was backed up
	At         time.Time `json:"at"`         // when the records were copied
	Files      int64     `json:"files"`      // number of files: the records and the objects
	Bytes      int64     `json:"bytes"`      // total size of these files
}

// A manifest is the last file of an archive.
type manifest struct {
	Header
	Checksums string `json:"checksums_sha256"` // hash of checksums.sha256, hexadecimal
}

// ErrCutOff reports an archive without a manifest.
var ErrCutOff = errors.New("the archive ends before its manifest: it was cut off while it was written or copied, and cannot be restored; restore an earlier archive, or make another backup")

// newNotBackupError returns the error for a file that is not a rowmill backup.
func newNotBackupError(format string, args ...any) error {
	return fmt.Errorf("this is not a rowmill backup: "+format, args...)
}

// checkName refuses a name that cannot be a record or object file.
func checkName(name string) error {
	if name == Records || strings.HasPrefix(name, Objects+"/") && path.Clean(name) == name && !strings.ContainsAny(name, "\x00\n\\") {
		return nil
	}
	return newNotBackupError("it contains the file %.200q", name)
}

// checksumLine returns the line for a file in the format of sha256sum.
func checksumLine(name string, sum []byte) string { return fmt.Sprintf("%x  %s\n", sum, name) }
