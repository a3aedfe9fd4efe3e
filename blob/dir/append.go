package dir

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
)

var _ blob.Appender = (*writer)(nil)

// Expect does nothing: a file is written in the same way for any size.
func (w *writer) Expect(int64) {}

// Append lets the operating system copy from file to file. Some file systems do this
// without writing data. The source file is opened again, so that it has its own read
// position.
func (w *writer) Append(o blob.Object, offset, size int64) error {
	err := w.failed
	switch {
	case w.ended:
		err = errEnded
	case err == nil:
		err = w.appendFile(o.Info(), offset, size)
		w.failed = err
	}
	return blob.Wrap(err, "append "+o.Info().Key+" to object", w.key)
}

func (w *writer) appendFile(from blob.ObjectInfo, offset, size int64) error {
	if err := w.buffer.Flush(); err != nil {
		return err
	}
	source, err := os.Open(w.bucket.path(from.Key))
	if errors.Is(err, fs.ErrNotExist) {
		return rowmill.ErrNotFound
	}
	if err != nil {
		return err
	}
	defer source.Close()
	if now, err := source.Stat(); err != nil {
		return err
	} else if describe(from.Key, now).ETag != from.ETag {
		return blob.ErrLost
	}
	if _, err := source.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	left := &io.LimitedReader{R: source, N: size}
	err = w.retryDisk(func() error {
		before, at := left.N, offset+size-left.N
		n, err := io.Copy(w.file, left)
		if err != nil { // io.Copy may have read more bytes than it has written
			left.N = before - n
			_, seekErr := source.Seek(at+n, io.SeekStart)
			err = errors.Join(err, seekErr)
		}
		return err
	})
	if err == nil && left.N > 0 {
		err = io.ErrUnexpectedEOF
	}
	return err
}
