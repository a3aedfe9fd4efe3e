package backup

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// CountFiles counts the files and bytes in a folder of records and objects.
func (h *Header) CountFiles(folder string) error {
	h.Files, h.Bytes = 0, 0
	return forEachFile(folder, func(_ string, info fs.FileInfo) error {
		h.Files++
		h.Bytes += info.Size()
		return nil
	})
}

// forEachFile calls visit with the records file and then with each object file in folder. name
// is the name of the file in the archive.
func forEachFile(folder string, visit func(name string, info fs.FileInfo) error) error {
	info, err := os.Stat(filepath.Join(folder, Records))
	if err == nil {
		err = visit(Records, info)
	}
	if err != nil {
		return err
	}
	return filepath.WalkDir(filepath.Join(folder, Objects), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		return visit(filepath.ToSlash(name), info)
	})
}

// Write writes an archive of a folder of records and objects. The folder must not
// change after h.CountFiles. Write keeps the list of checksums in a file in the folder,
// and uses a few hundred kilobytes of memory for any number of files.
func Write(ctx context.Context, w io.Writer, h Header, folder string) error {
	spool, err := os.OpenFile(filepath.Join(folder, nameChecksums), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write a backup: %w", err)
	}
	defer spool.Close()
	a := &archiver{ctx: ctx, tar: tar.NewWriter(w), folder: folder, at: h.At, sums: bufio.NewWriter(spool)}
	h.Format = Format
	err = a.writeDocument(nameHeader, h)
	if err == nil {
		err = forEachFile(folder, a.writeFile)
	}
	if err == nil && (a.files != h.Files || a.bytes != h.Bytes) {
		err = fmt.Errorf("the folder changed: measured %d files and %d bytes, wrote %d files and %d bytes", h.Files, h.Bytes, a.files, a.bytes)
	}
	if err == nil {
		err = a.writeTrailer(h, spool)
	}
	if err != nil {
		return fmt.Errorf("write a backup: %w", err)
	}
	return nil
}

// An archiver writes an archive.
type archiver struct {
	ctx    context.Context
	tar    *tar.Writer
	folder string
	at     time.Time
	sums   *bufio.Writer
	files  int64
	bytes  int64
}

// writeTarHeader writes the tar header of a file.
func (a *archiver) writeTarHeader(name string, size int64, modified time.Time) error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	return a.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: modified, Format: tar.FormatPAX,
	})
}

func (a *archiver) writeDocument(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if err := a.writeTarHeader(name, int64(len(text)), a.at); err != nil {
		return err
	}
	_, err = a.tar.Write(text)
	return err
}

// writeFile writes a file of the folder to the archive, and its checksum to the checksum list.
func (a *archiver) writeFile(name string, info fs.FileInfo) error {
	if err := a.writeTarHeader(name, info.Size(), info.ModTime()); err != nil {
		return err
	}
	source, err := os.Open(filepath.Join(a.folder, filepath.FromSlash(name)))
	if err != nil {
		return err
	}
	defer source.Close()
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(a.tar, sum), source, info.Size()); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	a.files++
	a.bytes += info.Size()
	_, err = a.sums.WriteString(checksumLine(name, sum.Sum(nil)))
	return err
}

// writeTrailer writes the checksum list in spool and the manifest, the last two files of the
// archive.
func (a *archiver) writeTrailer(h Header, spool *os.File) error {
	if err := a.sums.Flush(); err != nil {
		return err
	}
	size, err := spool.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = spool.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = a.writeTarHeader(nameChecksums, size, a.at)
	}
	if err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(a.tar, sum), spool); err != nil {
		return err
	}
	if err := a.writeDocument(nameManifest, manifest{Header: h, Checksums: fmt.Sprintf("%x", sum.Sum(nil))}); err != nil {
		return err
	}
	return a.tar.Close()
}
