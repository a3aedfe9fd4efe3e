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
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/retry"
)

// crampedFile accepts a few bytes of each write until there is room.
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

// disk refuses writes for a while. If lost is set, it refuses writes to older
// files forever, as if it came back without them.
type disk struct {
	err   error
	until time.Time
	loses bool
	begun time.Time
}

type diskFile struct {
	file
	disk *disk
	made time.Time
}

func (d *disk) open(path string) (file, error) {
	f, err := createFile(path)
	return &diskFile{f, d, time.Now()}, err
}

func (f *diskFile) Write(p []byte) (int, error) {
	now := time.Now()
	if now.After(f.disk.begun) && (now.Before(f.disk.until) || f.disk.loses && f.made.Before(f.disk.until)) {
		return 0, &os.PathError{Op: "write", Err: f.disk.err}
	}
	return f.file.Write(p)
}

// A writer with a patient context must wait for a disk that is read-only or
// fails, and then continue. If the disk comes back without the file, the writer
// must fail soon. A writer with another context must fail at once.
func TestWriter_WaitsForAFailingDisk(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"read-only": syscall.EROFS, "failing": syscall.EIO, "stale": syscall.ESTALE} {
		for _, how := range []string{"comes back", "comes back without the file", "in a hurry"} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				root := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					b := must.Get(Open(Config{Root: root, NoSync: true}))(t)
					defer b.Close()
					began := time.Now()
					d := &disk{err: err, begun: began, until: began.Add(time.Hour), loses: how == "comes back without the file"}
					ctx := retry.WithUnlimited(t.Context(), func(error) {})
					if how == "in a hurry" {
						ctx = t.Context()
					}
					w := must.Get(b.create(ctx, "a/raw", "", d.open))(t)
					defer w.Abort()
					time.Sleep(time.Second)
					content := make([]byte, 3*writeBuffer)
					_, got := w.Write(content)
					took := time.Since(began)
					switch {
					case how == "in a hurry" && (!errors.Is(got, err) || took > time.Minute),
						how == "comes back without the file" && (!errors.Is(got, err) || took < time.Hour || took > time.Hour+time.Minute),
						how == "comes back" && (got != nil || took < time.Hour || took > time.Hour+time.Minute):
						t.Fatalf("%v after %v", got, took)
					case got != nil:
						return
					}
					if info, err := w.Commit(); err != nil || info.Size != int64(len(content)) {
						t.Errorf("%d bytes, %v", info.Size, err)
					}
				})
				noLeftovers(t, root)
			})
		}
	}
}

// A writer with a patient context must wait on a full disk, keep its data, and
// write no byte twice.
func TestWriter_WaitsForRoom(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := must.Get(Open(Config{Root: root, NoSync: true}))(t)
		defer b.Close()
		content := make([]byte, 3*writeBuffer)
		for i := range content {
			content[i] = byte(i / 100)
		}
		began, reports := time.Now(), 0
		w := must.Get(b.create(retry.WithUnlimited(t.Context(), func(error) { reports++ }), "a/raw", "", func(path string) (file, error) {
			f, err := createFile(path)
			return &crampedFile{f, began.Add(time.Hour), writeBuffer + 1000}, err
		}))(t)
		for at := 0; at < len(content); at += 1000 {
			if n, err := w.Write(content[at:min(at+1000, len(content))]); err != nil {
				t.Fatalf("%d bytes at %d: %v", n, at, err)
			}
		}
		if _, err := w.Commit(); err != nil || time.Since(began) < time.Hour || reports < 10 {
			t.Errorf("%v after %v, reported %d times", err, time.Since(began), reports)
		}
		o := must.Get(b.Open(t.Context(), "a/raw"))(t)
		defer o.Close()
		if got, err := io.ReadAll(blob.NewReader(o)); err != nil || string(got) != string(content) {
			t.Errorf("%d bytes were read, but other bytes were written: %v", len(got), err)
		}
	})
}

// A rename is not repeated when the sync of the folder after it fails.
func TestWriter_PublishAgainAfterAFailedSync(t *testing.T) {
	t.Parallel()
	b := must.Get(Open(Config{Root: t.TempDir()}))(t)
	defer b.Close()
	created := must.Get(b.Create(t.Context(), "a/raw", ""))(t)
	defer created.Abort()
	w, ok := created.(*writer)
	if !ok {
		t.Fatalf("%T", created)
	}
	for range 2 {
		if err := w.publish(); err != nil {
			t.Error(err)
		}
	}
	if _, err := b.Stat(t.Context(), "a/raw"); err != nil {
		t.Error(err)
	}
}
