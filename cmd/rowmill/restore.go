package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/cmd/rowmill/backups"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/store/backup"
)

// restoreBuffer is the size of each read from an archive. A larger buffer would not be
// faster.
const restoreBuffer = 1 << 20

func restoreCommand(term *terminal.IO) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "restore FILE|-",
		Short: "Put a backup into an empty data directory",
		Long: `Restore an archive of rowmill backup into an empty data directory. --data names the
directory; without --data, the settings name it. FILE is the archive; - means standard input.

First stop the node that the backup was made from: otherwise the old node and the restored
node run the same jobs, and send events to the same webhooks.

The command first reads the whole archive into the folder "restoring" of the directory,
and checks the checksum of every file. Then it moves the files to their places. After an
error the directory is empty again. If the command is killed, the folder "restoring"
stays; remove it, and run the command again.

Run the command as the user of the node, because this user must own the files:

    sudo -u rowmill rowmill restore rowmill.tar --data /var/lib/rowmill

Then start the restored node. It continues the jobs that ran during the backup, uses the
keys and settings of that time, and removes data that has expired since.

` + exit.Help,
		Example: `  rowmill restore rowmill.tar --data /srv/rowmill && rowmill serve --data /srv/rowmill
  zstd -dc rowmill.tar.zst | rowmill restore - --data /srv/rowmill
  rowmill restore --check rowmill.tar        # read and check it, write nothing`,
		Args: cobra.ExactArgs(1),
	}
	load := addSettingsFlags(cmd.Flags(), term)
	cmd.Flags().BoolVarP(&term.Quiet, "quiet", "q", term.Quiet, "no progress, and no messages except errors")
	cmd.Flags().BoolVar(&check, "check", false, "only read and check the whole archive")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := load()
		if err != nil {
			return err
		}
		file, err := term.Open(args[0])
		if err != nil {
			return exit.WithCode(exit.Usage, err)
		}
		defer file.Close()
		in := bufio.NewReaderSize(file, restoreBuffer)
		progress := terminal.NewProgress(term)
		defer progress.Clear()
		if check {
			h, err := backup.Read(cmd.Context(), in, backup.Discard, backups.NewProgressReporter(term, progress, "check"))
			if err != nil {
				return fmt.Errorf("check %s: %w", args[0], err)
			}
			progress.Clear()
			return printArchiveSummary(term.Out, "complete and undamaged", h)
		}
		if !s.Store.IsEmbedded() || s.Objects.URL != "" {
			return exit.WithCode(exit.Usage, errors.New("the settings name Redis or S3: rowmill restore fills a data directory, that of a node without store.url and objects.url"))
		}
		directory, err := filepath.Abs(s.Data)
		if err != nil {
			return err
		}
		if err := checkDirectoryOwner(directory); err != nil {
			return exit.WithCode(exit.Usage, err)
		}
		h, err := backup.Restore(cmd.Context(), in, directory, backups.NewProgressReporter(term, progress, "restore"))
		if err != nil {
			return err
		}
		progress.Clear()
		return printArchiveSummary(term.Out, "restored into "+directory, h)
	}
	panicIf(cmd.MarkFlagFilename("config", "yaml", "yml"))
	panicIf(cmd.MarkFlagDirname("data"))
	return cmd
}

// printArchiveSummary prints one line about an archive to w. The line begins with the text
// prefix.
func printArchiveSummary(w io.Writer, prefix string, h backup.Header) error {
	_, err := fmt.Fprintf(w, "%s: records and %s objects of %s, %s, deployment %s, made by rowmill %s\n",
		prefix, terminal.FormatCount(h.Files-1), h.At.Format(time.RFC3339), textfmt.FormatSize(h.Bytes), terminal.SanitizeLine(h.Deployment), terminal.SanitizeLine(h.Version))
	return err
}

// checkDirectoryOwner returns an error if root runs the command and another user owns the
// directory: the node of this user could not read the files that root writes there.
func checkDirectoryOwner(directory string) error {
	info, err := os.Stat(directory)
	if errors.Is(err, fs.ErrNotExist) || os.Geteuid() != 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 {
		return fmt.Errorf("%s belongs to the user with id %d, who could not read files that root writes there: run the command as that user, with sudo -u '#%d' rowmill …", directory, owner.Uid, owner.Uid)
	}
	return nil
}
