package jobs

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// endings maps the format of results to the ending of the file name.
var endings = map[string]string{"parquet": ".parquet", "csv": ".zip", "json": ".json", "jsonl": ".jsonl"}

// stdout is the file name that means standard output.
const stdout = "-"

// resultFlags holds the flags that say where and how results are written.
type resultFlags struct {
	want  client.Results
	path  string // empty until resolvePath derives it from the name of the input
	force bool
	skip  bool           // write no file: the service writes the results to a sink
	flags *pflag.FlagSet // all these flags

	plainCSV bool // write CSV results as a CSV file, not as a ZIP archive
}

// addFlags adds the flags for writing results to a command. short is the short form of
// --output; empty for none.
func (s *resultFlags) addFlags(cmd *cobra.Command, short string) {
	flags := pflag.NewFlagSet("results", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.StringVarP(&s.path, "output", short, "", "file for the results, - for standard output (default: NAME.results.parquet in the current folder; NAME is the name of the input or of the job)")
	flags.StringVar(&s.want.Format, "format", "", "parquet, csv (a ZIP archive holding it), json or jsonl (default: by the ending of --output, else parquet)")
	flags.BoolVar(&s.want.Inputs, "include-inputs", false, "write the inputs beside the outputs")
	flags.StringVar(&s.want.Columns, "columns", "", "kept columns of the input (see --keep) to write too: '*' or names separated by commas (default with --keep: '*')")
	flags.BoolVar(&s.want.Unpack, "unpack", false, "write the properties of the answers as columns, for a job with --schema")
	flags.BoolVar(&s.want.Meta, "include-meta", false, "write columns about the run of each row: finish_reason, input_tokens, output_tokens, server, duration_seconds, attempts, error_code, error")
	flags.BoolVar(&s.want.Logprobs, "include-logprobs", false, "write 100 · exp(mean token log probability) of each output, a number from 0 to 100")
	flags.BoolVar(&s.force, "force", false, "replace the file if it exists")
	s.flags = flags
	cmd.Flags().AddFlagSet(flags)
	command.CompleteFlagValues(cmd, "format", "parquet", "csv", "json", "jsonl")
}

// resolvePath sets the format and the path of the results. It returns an error for problems
// that would otherwise appear only after the job has run. name is the default file
// name, without an ending.
func (s *resultFlags) resolvePath(name string) error {
	if err := s.setPath(name); err != nil {
		return err
	}
	return s.checkPath()
}

// setPath sets the format and the path of the results. name is as for resolvePath.
func (s *resultFlags) setPath(name string) error {
	ending := strings.ToLower(filepath.Ext(s.path))
	if s.want.Format == "" {
		s.want.Format = "parquet"
		for format := range endings {
			if s.endingOf(format) == ending {
				s.want.Format = format
			}
		}
	}
	switch want := s.endingOf(s.want.Format); {
	case want == "":
		return exit.WithCode(exit.Usage, fmt.Errorf("--format must be parquet, csv, json or jsonl, is %q", s.want.Format))
	case s.path == "":
		kind := ".results"
		if s.want.Partial {
			kind = ".partial" // complete results have another name
		}
		s.path = name + kind + want
	case ending == ".csv" && !s.plainCSV:
		return exit.WithCode(exit.Usage, fmt.Errorf("--output %s: CSV results come as a ZIP archive; name it %s.zip with --format csv", s.path, s.path))
	}
	return nil
}

// endingOf returns the ending of a file of results in a format; empty for an unknown format.
func (s *resultFlags) endingOf(format string) string {
	if format == "csv" && s.plainCSV {
		return ".csv"
	}
	return endings[format]
}

// checkPath returns an error if the results cannot be written to the path.
func (s *resultFlags) checkPath() error {
	if s.path == stdout {
		return nil
	}
	if info, err := os.Stat(s.path); err == nil {
		if info.IsDir() {
			return exit.WithCode(exit.Usage, fmt.Errorf("--output %s is a folder; name a file in it", s.path))
		}
		if !s.force {
			return exit.WithCode(exit.Usage, fmt.Errorf("%s exists; choose another file with --output or replace it with --force", s.path))
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return exit.WithCode(exit.Usage, fmt.Errorf("--output: %w", err))
	}
	if info, err := os.Stat(filepath.Dir(s.path)); err != nil || !info.IsDir() {
		return exit.WithCode(exit.Usage, fmt.Errorf("--output: the folder %s does not exist", filepath.Dir(s.path)))
	}
	return nil
}

// formatFlags returns the flags for a command that should write the same file, each after a
// space; empty if there is no path.
func (s *resultFlags) formatFlags() string {
	if s.path == "" {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, " --output %s --format %s", shellQuote(s.path), s.want.Format)
	s.flags.VisitAll(func(f *pflag.Flag) {
		switch value := f.Value.String(); {
		case value == "true" && (strings.HasPrefix(f.Name, "include-") || f.Name == "unpack"):
			out.WriteString(" --" + f.Name)
		case value != "" && f.Name == "columns":
			out.WriteString(" --columns " + shellQuote(value))
		}
	})
	return out.String()
}

// saveResults writes the results of a job to a file or to standard output. The results of several
// jobs become one Parquet file.
func (c *jobCommands) saveResults(ctx context.Context, api *client.Client, ids []string, s *resultFlags) error {
	if len(ids) > 1 {
		return c.saveJoint(ctx, api, ids, s)
	}
	id := ids[0]
	if s.path == stdout {
		if _, err := api.Stream(ctx, id, s.want, c.Term.Out); err != nil {
			return fmt.Errorf("results of %s: %w", id, err)
		}
		return nil
	}
	path := s.path
	isZIP := s.plainCSV && s.want.Format == "csv"
	if isZIP {
		path += ".zip"
		defer os.Remove(path)
	}
	progress := terminal.NewProgress(c.Term)
	size, err := api.Save(ctx, id, s.want, path, func(done, total int64) {
		if c.Term.Live {
			progress.Update(terminal.ProgressSnapshot{Now: c.Term.Now(), Phase: "download", Done: done, Total: total, Size: true})
		}
	})
	progress.Clear()
	if err == nil && isZIP {
		size, err = unzip(path, s.path)
	}
	if err != nil {
		return fmt.Errorf("results of %s: %w", id, err)
	}
	c.Term.Say("wrote %s (%s)", s.path, textfmt.FormatSize(size))
	return nil
}

// unzip writes the only file of an archive to path, and returns its size in bytes.
func unzip(archive, path string) (size int64, err error) {
	opened, err := zip.OpenReader(archive)
	if err != nil {
		return 0, err
	}
	defer func() { _ = opened.Close() }() // the archive was only read, so nothing can be lost
	file, err := opened.File[0].Open()
	if err != nil {
		return 0, err
	}
	defer file.Close()
	err = replaceFile(path, func(w io.Writer) error {
		size, err = io.Copy(w, file) //nolint:gosec // an archive of the service, as large as the results
		return err
	})
	return size, err
}

// replaceFile replaces the file at path by what write writes. After a crash the file has the
// old content or the new content.
func replaceFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	if err = errors.Join(write(file), file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// shellQuote writes a word so that a POSIX shell reads it back unchanged.
func shellQuote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./=:@,+~", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
