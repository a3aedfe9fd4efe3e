package backup

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Sink receives the files of an archive one by one. content ends at the end of the
// file; Read skips bytes that the sink does not read.
type Sink func(name string, modified time.Time, content io.Reader) error

// Discard is a Sink that ignores all files, for checks of an archive.
func Discard(string, time.Time, io.Reader) error { return nil }

// Read reads and checks a whole archive. The files that sink got are valid only if Read
// returns no error. progress may be nil; it is called often, with the header and the
// number of file bytes read so far.
//
// Read returns ErrCutOff for an archive without its end. Other errors say that the file
// is not a backup, that a newer release made it, or which file is damaged.
func Read(ctx context.Context, r io.Reader, sink Sink, progress func(h Header, bytes int64)) (Header, error) {
	if progress == nil {
		progress = func(Header, int64) {}
	}
	a := &reader{ctx: ctx, tar: tar.NewReader(r), sink: sink, progress: progress}
	err := a.read()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return a.header, err
}

// A reader reads an archive.
type reader struct {
	ctx      context.Context
	tar      *tar.Reader
	sink     Sink
	progress func(Header, int64)
	header   Header
	files    []fileSum
	bytes    int64
}

// A fileSum is the checksum of a file that was read.
type fileSum struct {
	name string
	sum  [sha256.Size]byte
}

func (a *reader) read() error {
	entry, err := a.tar.Next()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ErrCutOff
	case errors.Is(err, tar.ErrHeader):
		return newNotBackupError("it is not a tar archive; decompress a compressed backup first")
	case err != nil:
		return err
	case entry.Name != nameHeader:
		return newNotBackupError("its first file is %.200q, not %s", entry.Name, nameHeader)
	}
	if err := a.readDocument(&a.header); err != nil {
		return err
	}
	switch h := a.header; {
	case h.Format > Format:
		return fmt.Errorf("this backup has format %d and was made by rowmill %s; this program reads up to format %d: restore it with that version or a newer one", h.Format, h.Version, Format)
	case h.Format < 1:
		return newNotBackupError("its %s has no format version", nameHeader)
	}
	a.progress(a.header, 0)
	for {
		entry, err := a.nextEntry()
		if err != nil {
			return err
		}
		if entry.Name == nameChecksums {
			return a.verifyTrailer()
		}
		if err := a.readFile(entry); err != nil {
			return err
		}
	}
}

// nextEntry returns the next entry. A missing entry is an error.
func (a *reader) nextEntry() (*tar.Header, error) {
	if err := a.ctx.Err(); err != nil {
		return nil, err
	}
	entry, err := a.tar.Next()
	switch {
	case err != nil:
		return nil, explainTarError(err)
	case entry.Typeflag != tar.TypeReg:
		return nil, newNotBackupError("%.200q in it is not a regular file", entry.Name)
	}
	return entry, nil
}

// explainTarError translates an error of the tar reader into an error for operators.
func explainTarError(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ErrCutOff
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong):
		return fmt.Errorf("the archive is damaged: %w", err)
	}
	return err
}

// readDocument decodes the current file of the archive, a JSON document.
func (a *reader) readDocument(into any) error {
	text, err := io.ReadAll(io.LimitReader(a.tar, maxDocument+1))
	switch {
	case err != nil:
		return explainTarError(err)
	case len(text) > maxDocument:
		return newNotBackupError("a document in it has more than %d bytes", maxDocument)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return newNotBackupError("%w", err)
	}
	return nil
}

// readFile passes a file of the archive to the sink and stores its checksum in a.files.
func (a *reader) readFile(entry *tar.Header) error {
	if err := checkName(entry.Name); err != nil {
		return err
	}
	sum := sha256.New()
	content := &fileReader{from: a, sum: sum}
	err := a.sink(entry.Name, entry.ModTime, content)
	if err == nil {
		_, err = io.Copy(io.Discard, content)
	}
	if content.err != nil {
		return content.err
	}
	if err != nil {
		return err
	}
	a.files = append(a.files, fileSum{entry.Name, [sha256.Size]byte(sum.Sum(nil))})
	return nil
}

// A fileReader reads one file of the archive, computes its checksum and counts its
// bytes.
type fileReader struct {
	from *reader
	sum  io.Writer
	err  error // read error other than io.EOF
}

func (c *fileReader) Read(p []byte) (int, error) {
	if err := c.from.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.from.tar.Read(p)
	_, _ = c.sum.Write(p[:n]) // a hash never fails
	c.from.bytes += int64(n)
	c.from.progress(c.from.header, c.from.bytes)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = explainTarError(err)
		err = c.err
	}
	return n, err
}

// verifyTrailer compares the checksums of the files with the checksum list, and the checksum list
// with the manifest.
func (a *reader) verifyTrailer() error {
	sum := sha256.New()
	listed := bufio.NewReader(io.TeeReader(a.tar, sum))
	for _, f := range a.files {
		want, err := listed.ReadBytes('\n')
		if err != nil {
			return a.explainChecksumError(err)
		}
		if !bytes.Equal(want, []byte(checksumLine(f.name, f.sum[:]))) {
			return fmt.Errorf("the archive is damaged: the contents of %s do not match its checksum (%.200q); use another copy of the archive, or an earlier backup", f.name, bytes.TrimSpace(want))
		}
	}
	if _, err := listed.ReadByte(); !errors.Is(err, io.EOF) {
		if err != nil {
			return explainTarError(err)
		}
		return errors.New("the archive is damaged: it has checksums of missing files")
	}
	entry, err := a.nextEntry()
	if err != nil {
		return err
	}
	if entry.Name != nameManifest {
		return newNotBackupError("%.200q follows its checksums, not the manifest", entry.Name)
	}
	var m manifest
	if err := a.readDocument(&m); err != nil {
		return err
	}
	switch {
	case m.Checksums != fmt.Sprintf("%x", sum.Sum(nil)):
		return errors.New("the archive is damaged: its checksums do not match its manifest")
	case m.Header != a.header, m.Files != int64(len(a.files)), m.Bytes != a.bytes:
		return fmt.Errorf("the archive is damaged: its manifest lists %d files and %d bytes, but it contains %d files and %d bytes", m.Files, m.Bytes, len(a.files), a.bytes)
	case len(a.files) == 0 || a.files[0].name != Records:
		return newNotBackupError("its first file is not %s", Records)
	}
	if _, err := a.tar.Next(); !errors.Is(err, io.EOF) {
		if err != nil {
			return explainTarError(err)
		}
		return newNotBackupError("another file follows its manifest")
	}
	return nil
}

// explainChecksumError translates an error that occurred while the checksum list was read.
func (a *reader) explainChecksumError(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the archive is damaged: it has files without a checksum")
	}
	return explainTarError(err)
}
