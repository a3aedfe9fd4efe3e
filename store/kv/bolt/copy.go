package bolt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/rowmill/rowmill/store/kv"
)

// Copy writes a consistent copy of all records to a new file, which Open can open. Writes
// continue during the copy. The pages that these writes replace become free only after the
// copy, so the record file grows meanwhile. The copy is not synced. It is an error if path
// exists.
func (e *Backend) Copy(ctx context.Context, path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("copy record file %s: %w", e.config.Path, err)
	}
	w := &copyWriter{ctx: ctx, file: file}
	err = e.db.View(func(btx *bbolt.Tx) error {
		_, err := btx.WriteTo(w)
		return cmp.Or(w.err, err) // bbolt keeps only the text of the error
	})
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		err = kv.ErrClosed
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(fmt.Errorf("copy record file %s: %w", e.config.Path, err), os.Remove(path))
	}
	return nil
}

// A copyWriter writes to a file. It fails as soon as ctx has ended.
type copyWriter struct {
	ctx  context.Context
	file *os.File
	err  error
}

func (w *copyWriter) Write(p []byte) (n int, err error) {
	if w.err = w.ctx.Err(); w.err == nil {
		n, w.err = w.file.Write(p)
	}
	return n, w.err
}
