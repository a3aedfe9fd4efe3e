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

// A Sink takes the files of an archive, one after the other. content ends at the
// size of the file, and what the sink leaves of it is read over.
type Sink func(name string, modified time.Time, content io.Reader) error

// Discard is a Sink for an archive that is only checked.
func Discard(string, time.Time, io.Reader) error { return nil }

// Read reads an archive to its end and checks all of it: what sink has got counts
// only once Read has returned without an error. told may be nil; it is called with
// the header and with how many bytes of files have been read so far, often.
//
// ErrCutOff is an archive without its end. Others say what is wrong: it is no
// backup, a newer release made it, or a file in it is damaged, and which.
func Read(ctx context.Context, r io.Reader, sink Sink, told func(h Header, bytes int64)) (Header, error) {
	if told == nil {
		told = func(Header, int64) {}
	}
	a := &reader{ctx: ctx, tar: tar.NewReader(r), sink: sink, told: told}
	err := a.read()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return a.header, err
}

// A reader reads an archive.
type reader struct {
	ctx    context.Context
	tar    *tar.Reader
	sink   Sink
	told   func(Header, int64)
	header Header
	files  []summed
	bytes  int64
}

// A summed file was read.
type summed struct {
	name string
	sum  [sha256.Size]byte
}

func (a *reader) read() error {
	entry, err := a.tar.Next()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ErrCutOff
	case errors.Is(err, tar.ErrHeader):
		return errNone("it is no tar archive; one that was compressed has to be decompressed first")
	case err != nil:
		return err
	case entry.Name != nameHeader:
		return errNone("it begins with %.200q, where %s was expected", entry.Name, nameHeader)
	}
	if err := a.document(&a.header); err != nil {
		return err
	}
	switch h := a.header; {
	case h.Format > Format:
		return fmt.Errorf("this backup has format %d and was made by rowmill %s; this program reads up to format %d: restore it with that version or a newer one", h.Format, h.Version, Format)
	case h.Format < 1:
		return errNone("its %s names no format", nameHeader)
	}
	a.told(a.header, 0)
	for {
		entry, err := a.next()
		if err != nil {
			return err
		}
		if entry.Name == nameChecksums {
			return a.end()
		}
		if err := a.file(entry); err != nil {
			return err
		}
	}
}

// next is the next file; there has to be one.
func (a *reader) next() (*tar.Header, error) {
	if err := a.ctx.Err(); err != nil {
		return nil, err
	}
	entry, err := a.tar.Next()
	switch {
	case err != nil:
		return nil, explain(err)
	case entry.Typeflag != tar.TypeReg:
		return nil, errNone("%.200q in it is no plain file", entry.Name)
	}
	return entry, nil
}

// explain says what an error of the archive means.
func explain(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ErrCutOff
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong):
		return fmt.Errorf("the archive is damaged: %w", err)
	}
	return err
}

func (a *reader) document(into any) error {
	text, err := io.ReadAll(io.LimitReader(a.tar, maxDocument+1))
	switch {
	case err != nil:
		return explain(err)
	case len(text) > maxDocument:
		return errNone("a document in it has more than %d bytes", maxDocument)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return errNone("%w", err)
	}
	return nil
}

// file gives a file to the sink.
func (a *reader) file(entry *tar.Header) error {
	if err := checkName(entry.Name); err != nil {
		return err
	}
	sum := sha256.New()
	content := &counted{from: a, sum: sum}
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
	a.files = append(a.files, summed{entry.Name, [sha256.Size]byte(sum.Sum(nil))})
	return nil
}

// A counted reader reads a file of the archive and takes its checksum.
type counted struct {
	from *reader
	sum  io.Writer
	err  error // other than the end
}

func (c *counted) Read(p []byte) (int, error) {
	if err := c.from.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.from.tar.Read(p)
	_, _ = c.sum.Write(p[:n]) // a hash takes everything
	c.from.bytes += int64(n)
	c.from.told(c.from.header, c.from.bytes)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = explain(err)
		err = c.err
	}
	return n, err
}

// end checks what was read against the checksums, and these against the manifest.
func (a *reader) end() error {
	sum := sha256.New()
	said := bufio.NewReader(io.TeeReader(a.tar, sum))
	for _, f := range a.files {
		want, err := said.ReadBytes('\n')
		if err != nil {
			return a.explainSums(err)
		}
		if !bytes.Equal(want, []byte(checksumLine(f.name, f.sum[:]))) {
			return fmt.Errorf("the archive is damaged: %s is not what its checksum says (%.200q); take another copy of it, or an earlier backup", f.name, bytes.TrimSpace(want))
		}
	}
	if _, err := said.ReadByte(); !errors.Is(err, io.EOF) {
		if err != nil {
			return explain(err)
		}
		return errors.New("the archive is damaged: it has checksums of files that are not in it")
	}
	entry, err := a.next()
	if err != nil {
		return err
	}
	if entry.Name != nameManifest {
		return errNone("%.200q follows its checksums", entry.Name)
	}
	var m manifest
	if err := a.document(&m); err != nil {
		return err
	}
	switch {
	case m.Checksums != fmt.Sprintf("%x", sum.Sum(nil)):
		return errors.New("the archive is damaged: its checksums are not those that it was ended with")
	case m.Header != a.header, m.Files != int64(len(a.files)), m.Bytes != a.bytes:
		return fmt.Errorf("the archive is damaged: its end speaks of %d files and %d bytes, and there are %d and %d", m.Files, m.Bytes, len(a.files), a.bytes)
	case len(a.files) == 0 || a.files[0].name != Records:
		return errNone("its first file is not %s", Records)
	}
	if _, err := a.tar.Next(); !errors.Is(err, io.EOF) {
		if err != nil {
			return explain(err)
		}
		return errNone("something follows its manifest")
	}
	return nil
}

// explainSums says why a line of the checksums is missing.
func (a *reader) explainSums(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the archive is damaged: it has files without a checksum")
	}
	return explain(err)
}
