package backups

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/http/nodes"
	"github.com/rowmill/rowmill/internal/clitest"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store/backup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A vault serves the archive of a folder, or a part of an archive.
type vault struct {
	clitest.IdleService
	text []byte
	err  error // returned after the text
}

func (v *vault) Backup(context.Context) (nodes.BackupSnapshot, error) { return v, nil }
func (v *vault) SnapshotTime() time.Time                              { return time.Unix(0, 0) }
func (v *vault) Close() error                                         { return nil }

func (v *vault) Write(_ context.Context, w io.Writer) error {
	_, err := w.Write(v.text)
	return errors.Join(err, v.err)
}

// archive returns an archive of records and one object of some size.
func archive(t *testing.T, size int) []byte {
	t.Helper()
	folder := t.TempDir()
	err := errors.Join(
		os.WriteFile(filepath.Join(folder, backup.Records), []byte("records"), 0o600),
		os.Mkdir(filepath.Join(folder, backup.Objects), 0o700),
		os.WriteFile(filepath.Join(folder, backup.Objects, "a"), bytes.Repeat([]byte("a"), size), 0o600),
	)
	h := backup.Header{At: time.Unix(1_800_000_000, 0).UTC()}
	if err == nil {
		err = h.CountFiles(folder)
	}
	var out bytes.Buffer
	if err == nil {
		err = backup.Write(t.Context(), &out, h, folder)
	}
	must.Succeed(t, err)
	return out.Bytes()
}

func beside(t *testing.T, v *vault) *clitest.Program {
	t.Helper()
	return clitest.Start(t, clitest.Config{
		Service:  v,
		Commands: func(service connect.Options) []*cobra.Command { return []*cobra.Command{Command(service)} },
	})
}

// run runs a command line and returns its exit code.
func run(p *clitest.Program, args ...string) (code int) {
	p.RunArgs(args...)
	said := p.Err.String()
	must.Get(fmt.Sscanf(said[strings.LastIndex(said, "exit code "):], "exit code %d", &code))(p)
	return code
}

func TestBackup(t *testing.T) {
	t.Parallel()
	v := &vault{text: archive(t, 1<<20)}
	p := beside(t, v)
	path := filepath.Join(t.TempDir(), "rowmill.tar")
	if code := run(p, "backup", path); code != exit.OK || !strings.Contains(p.Err.String(), "records and 1 objects of 2027-01-15T08:00:00Z") {
		t.Fatalf("code %d: %s", code, &p.Err)
	}
	written, err := os.ReadFile(path)
	info, statErr := os.Stat(path)
	if err != nil || statErr != nil || !bytes.Equal(written, v.text) || info.Mode().Perm() != 0o600 {
		t.Errorf("%d bytes of %d, %v: %v", len(written), len(v.text), info, err)
	}
	if code := run(p, "backup", "-"); code != exit.OK || !bytes.Equal(p.Out.Bytes(), v.text) {
		t.Errorf("to standard output: code %d, %d bytes", code, p.Out.Len())
	}
	v.text = archive(t, 10)
	if code := run(p, "backup", path); code != exit.Usage {
		t.Errorf("over another: code %d", code)
	}
	if code := run(p, "backup", "--force", "--rate", "100MB", path); code != exit.OK {
		t.Errorf("with --force: code %d: %s", code, &p.Err)
	}
	if written, err := os.ReadFile(path); err != nil || !bytes.Equal(written, v.text) {
		t.Errorf("with --force: %d bytes of %d: %v", len(written), len(v.text), err)
	}
}

// An incomplete or damaged archive leaves no file.
func TestBackup_NotWhole(t *testing.T) {
	t.Parallel()
	text := archive(t, 1<<20)
	damaged := bytes.Clone(text)
	damaged[len(damaged)/2]++
	for name, v := range map[string]*vault{
		"broken off":     {text: text[:len(text)/2], err: errors.New("the disk fails")},
		"cut off":        {text: text[:len(text)/2]},
		"damaged":        {text: damaged},
		"no archive":     {text: bytes.Repeat([]byte("<html>"), 1000)},
		"fails at first": {err: os.ErrPermission},
	} {
		p, folder := beside(t, v), t.TempDir()
		if code := run(p, "backup", filepath.Join(folder, "rowmill.tar")); code == exit.OK {
			t.Errorf("%s: code %d: %s", name, code, &p.Err)
		}
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v: %v", name, left, err)
		}
		if code := run(p, "backup", "-"); code == exit.OK {
			t.Errorf("%s, to standard output: code %d", name, code)
		}
	}
}

func TestBackup_Refuses(t *testing.T) {
	t.Parallel()
	p := beside(t, &vault{text: archive(t, 1)})
	for _, args := range [][]string{{"--rate", "fast", "a"}, {"--rate", "1kB", "a"}, {filepath.Join(t.TempDir(), "not", "there")}} {
		if code := run(p, append([]string{"backup"}, args...)...); code != exit.Usage {
			t.Errorf("%v: code %d: %s", args, code, &p.Err)
		}
	}
}
