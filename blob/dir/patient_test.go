package dir

import (
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/retry"
)

// A crampedFile takes a few bytes of each write until there is room.
type crampedFile struct {
	file
	until time.Time
	room  int
}

func (f *crampedFile) Write(p []byte) (int, error) {
	if time.Now().Before(f.until) {
		fits := min(f.room, len(p))
		f.room -= fits
		n, err := f.file.Write(p[:fits])
		return n, errors.Join(err, &os.PathError{Op: "write", Err: syscall.ENOSPC})
	}
	return f.file.Write(p)
}

// A writer whose context is patient waits on a full disk with what it has got,
// and writes no byte twice.
func TestWriter_WaitsForRoom(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b, err := Open(Config{Root: root, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		content := make([]byte, 3*writeBuffer)
		for i := range content {
			content[i] = byte(i / 100)
		}
		began, told := time.Now(), 0
		w, err := b.create(retry.Patient(t.Context(), func(error) { told++ }), "a/raw", "", func(path string) (file, error) {
			f, err := createFile(path)
			return &crampedFile{f, began.Add(time.Hour), writeBuffer + 1000}, err
		})
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(content); at += 1000 {
			if n, err := w.Write(content[at:min(at+1000, len(content))]); err != nil {
				t.Fatalf("%d bytes at %d: %v", n, at, err)
			}
		}
		if _, err := w.Commit(); err != nil || time.Since(began) < time.Hour || told < 10 {
			t.Errorf("%v after %v, told %d times", err, time.Since(began), told)
		}
		o, err := b.Open(t.Context(), "a/raw")
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		if got, err := io.ReadAll(blob.NewReader(o)); err != nil || string(got) != string(content) {
			t.Errorf("%d bytes were read, not those that were written: %v", len(got), err)
		}
	})
}
