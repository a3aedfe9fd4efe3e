package redo

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// flush makes what was written to a file durable, and its length. Times are not.
func flush(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}

// A reader reads a file by a map of it, in which what was written is seen at once: a
// commit looks at some hundred places.
type reader struct {
	file *os.File
	data []byte
}

func openReader(path string) (*reader, error) {
	file, err := os.Open(path)
	return &reader{file: file}, err
}

// ReadAt maps the file once more where it has grown.
func (r *reader) ReadAt(b []byte, at int64) (int, error) {
	if end := at + int64(len(b)); end > int64(len(r.data)) || end < at {
		info, err := r.file.Stat()
		if err == nil && (end > info.Size() || end < at) {
			err = io.EOF
		}
		if err == nil {
			err = r.unmap()
		}
		if err == nil {
			r.data, err = unix.Mmap(int(r.file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
		}
		if err != nil {
			return 0, err
		}
	}
	return copy(b, r.data[at:]), nil
}

func (r *reader) unmap() error {
	if r.data == nil {
		return nil
	}
	data := r.data
	r.data = nil
	return unix.Munmap(data)
}

func (r *reader) Close() error { return errors.Join(r.unmap(), r.file.Close()) }
