// Package backups holds the command that copies all data of a running node into an
// archive. It writes the archive to a file or to standard output and checks that it is
// complete; package backup defines the format.
package backups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/internal/durable"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/store/backup"
)

// stdout is the file name that means standard output.
const stdout = "-"

// slowest is the lowest rate that --rate may set, in bytes per second. At a lower rate
// the node would assume that its client has disconnected, and a backup would take days.
const slowest = 1 << 20

// backupCommand holds the flags of `rowmill backup`.
type backupCommand struct {
	command.GroupOptions
	rate  string
	force bool
}

// Command returns `rowmill backup`.
func Command(service connect.Options) *cobra.Command {
	c := &backupCommand{GroupOptions: command.GroupOptions{Options: service}}
	cmd := &cobra.Command{
		Use:   "backup FILE|-",
		Short: "Copy all data of a single node, while it runs",
		Long: `Copy all data of a single node into one tar archive, while it runs: the records
of a single moment, and every object that they name. It needs an administrator's
key of the account default. Jobs continue meanwhile.

Jobs that had ended by that moment are in the archive byte for byte; a running job
continues from its last recorded parts after the archive is restored:

    rowmill restore FILE --data /srv/rowmill

FILE appears, with mode 0600, after everything has arrived and was checked. For
standard output, -, only exit code 0 says that the archive is complete. The archive
holds the inputs and results of all accounts, the hashes of API keys, and the
secrets that sign URLs and webhooks: protect it as you protect these. It does not
hold an administrator key that the node gets from its environment or a file.

The node first copies its records to its own disk, which must have room for them.
Objects get a second name (a hard link) and need no room. But the room of objects
that are removed while the backup runs is free only after the backup.

A node with records in Redis and objects in S3 answers no_backup: docs/backup.md
says what to copy, and in which order.

` + command.Help,
		Example: `  rowmill backup /mnt/backups/rowmill-$(date +%F).tar
  rowmill backup - | zstd > rowmill.tar.zst
  rowmill backup --rate 50MB rowmill.tar     # leave the disk and the network to jobs`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&c.rate, "rate", "", "read at most this many bytes each second, such as 50MB (default: no limit)")
	cmd.Flags().BoolVar(&c.force, "force", false, "replace the file if it exists")
	c.AddFlags(cmd)
	return c.SetBody(cmd, func(ctx context.Context, api *client.Client, args []string) error {
		pace, err := c.parseRate()
		if err != nil {
			return exit.WithCode(exit.Usage, fmt.Errorf("--rate: %w", err))
		}
		if args[0] == stdout {
			return c.streamArchive(ctx, api, pace)
		}
		return c.saveArchive(ctx, api, args[0], pace)
	})
}

// parseRate returns the value of --rate in bytes per second; 0 means no limit.
func (c *backupCommand) parseRate() (int64, error) {
	if c.rate == "" {
		return 0, nil
	}
	pace, err := settings.ParseBytes(c.rate)
	if err == nil && pace < slowest {
		err = fmt.Errorf("%q is too slow; the lowest rate is %s each second", c.rate, textfmt.FormatSize(slowest))
	}
	return int64(pace), err
}

// streamArchive writes the archive to standard output.
func (c *backupCommand) streamArchive(ctx context.Context, api *client.Client, bytesPerSecond int64) error {
	if out, ok := c.Term.Out.(*os.File); ok && term.IsTerminal(int(out.Fd())) {
		return exit.WithCode(exit.Usage, errors.New("standard output is a terminal; name a file, or pipe the archive into a command"))
	}
	_, err := c.downloadArchive(ctx, api, c.Term.Out, bytesPerSecond)
	return err
}

// saveArchive writes the archive to a file that appears only after it is complete.
func (c *backupCommand) saveArchive(ctx context.Context, api *client.Client, path string, bytesPerSecond int64) (err error) {
	switch _, err := os.Lstat(path); {
	case err == nil && !c.force:
		return exit.WithCode(exit.Usage, fmt.Errorf("%s exists; choose another name or replace it with --force", path))
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return exit.WithCode(exit.Usage, err)
	}
	part, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part") // CreateTemp gives the file mode 0600
	if err != nil {
		return exit.WithCode(exit.Usage, fmt.Errorf("write the backup: %w", err))
	}
	defer os.Remove(part.Name())
	defer part.Close()
	header, err := c.downloadArchive(ctx, api, part, bytesPerSecond)
	if err != nil {
		return err
	}
	err = errors.Join(part.Sync(), part.Close())
	if err == nil {
		err = os.Rename(part.Name(), path)
	}
	if err == nil {
		err = durable.SyncFolder(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	c.Term.Say("%s: records and %s objects of %s, %s", path, terminal.FormatCount(header.Files-1), header.At.Format(time.RFC3339), textfmt.FormatSize(header.Bytes))
	return nil
}

// downloadArchive downloads the archive to out, and checks the archive at the same time.
func (c *backupCommand) downloadArchive(ctx context.Context, api *client.Client, out io.Writer, bytesPerSecond int64) (backup.Header, error) {
	progress := terminal.NewProgress(c.Term)
	defer progress.Clear()
	checked, feed := io.Pipe()
	var header backup.Header
	var fault error
	done := make(chan struct{})
	go func() {
		defer close(done)
		header, fault = backup.Read(ctx, checked, backup.Discard, NewProgressReporter(c.Term, progress, "backup"))
		if fault == nil {
			_, fault = io.Copy(io.Discard, checked) // read the padding at the end of the archive
		}
		checked.CloseWithError(fault)
	}()
	w := &rateLimitedWriter{ctx: ctx, out: out, pace: bytesPerSecond, began: time.Now()}
	_, err := api.Backup(ctx, io.MultiWriter(w, feed))
	feed.CloseWithError(err) // after a nil error, the reader gets the end of the archive
	<-done
	switch {
	case w.err != nil:
		return header, fmt.Errorf("write the backup: %w", w.err)
	case err != nil && (fault == nil || errors.Is(fault, err)):
		return header, fmt.Errorf("backup: %w", err)
	case fault != nil:
		return header, fmt.Errorf("backup: %w", fault)
	}
	return header, nil
}

// showEvery is the time between two updates of the progress line.
const showEvery = 200 * time.Millisecond

// NewProgressReporter returns a function that shows in the progress line how many bytes of an
// archive have been read.
func NewProgressReporter(t *terminal.IO, progress *terminal.Progress, phase string) func(h backup.Header, bytes int64) {
	var last time.Time
	return func(h backup.Header, bytes int64) {
		if now := t.Now(); now.Sub(last) >= showEvery || bytes == h.Bytes {
			last = now
			progress.Update(terminal.ProgressSnapshot{Now: now, Phase: phase, Done: bytes, Total: h.Bytes, Size: true})
		}
	}
}

// A rateLimitedWriter is a writer that passes data to out and limits the rate of the writes.
type rateLimitedWriter struct {
	ctx   context.Context
	out   io.Writer
	pace  int64 // bytes per second; 0 means no limit
	began time.Time
	bytes int64
	err   error // last error of a write to out
}

func (s *rateLimitedWriter) Write(p []byte) (n int, err error) {
	n, s.err = s.out.Write(p)
	s.bytes += int64(n)
	if s.err != nil || s.pace == 0 {
		return n, s.err
	}
	early := time.Duration(float64(s.bytes)/float64(s.pace)*float64(time.Second)) - time.Since(s.began)
	if early <= 0 {
		return n, nil
	}
	select {
	case <-time.After(early):
		return n, nil
	case <-s.ctx.Done():
		return n, context.Cause(s.ctx)
	}
}
