package jobs

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input"
)

// maxRow limits one row of a local file, in bytes. The service refuses rows above 8 MiB
// by default, but its operator may allow more.
const maxRow = 64 << 20

// kindAuto is the default value of --input-format: the command detects the format of
// the input.
const kindAuto = "auto"

// A localInput is a local input that can be read several times: once to check and count the
// rows before anything is sent, and once to send them.
type localInput struct {
	name string // name of the input in messages
	opts input.Options
	kind input.DetectedFormat
	file *os.File
	size int64
	temp bool // file is a temporary copy of standard input, which Close removes
}

// openLocalInput opens a file and detects its format. For the path "-" it copies standard
// input to a temporary file. opts come from the flags.
func openLocalInput(path string, opts input.Options, stdin io.Reader) (s *localInput, err error) {
	s = &localInput{name: path, opts: opts}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if path == stdout { // here "-" means standard input
		s.name = "standard input"
		if err := s.spoolStdin(stdin); err != nil {
			return s, fmt.Errorf("read standard input: %w", err)
		}
	} else if s.file, err = os.Open(path); err != nil {
		return s, err
	} else {
		s.opts.Name = path
	}
	info, err := s.file.Stat()
	if err != nil {
		return s, err
	}
	if !info.Mode().IsRegular() {
		return s, fmt.Errorf("%s is not a regular file; use - to read a stream", path)
	}
	if s.size = info.Size(); s.size == 0 {
		return s, fmt.Errorf("%s is empty", s.name)
	}
	s.opts.Lines = true
	s.opts.Limits = input.Limits{MaxRowBytes: maxRow}
	s.kind, err = input.Detect(s.file, s.size, s.opts)
	s.opts.Format = s.kind.Format
	return s, s.wrapError(err)
}

// spoolStdin copies standard input to a temporary file, so that it can be read twice.
func (s *localInput) spoolStdin(stdin io.Reader) error {
	file, err := os.CreateTemp("", "rowmill-input-*")
	if err != nil {
		return err
	}
	s.file, s.temp = file, true
	_, err = io.Copy(file, stdin)
	return err
}

// Close closes the file, and removes it if it is a copy of standard input.
func (s *localInput) Close() {
	if s.file == nil {
		return
	}
	s.file.Close()
	if s.temp {
		os.Remove(s.file.Name())
	}
}

// rows returns the rows of the input. It reads the input from its start, in the same
// way as the service reads a file.
func (s *localInput) rows() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		rows, err := input.Open(s.file, s.size, s.opts)
		if err != nil {
			yield("", s.wrapError(err))
			return
		}
		defer func() { _ = rows.Close() }() // the file was only read, so nothing can be lost
		var row rowmill.Row
		for {
			err := rows.Next(&row)
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(row.Text, s.wrapError(err)) || err != nil {
				return
			}
		}
	}
}

// flagNames replaces the field names of a submission by the names of flags, in a
// message of the package input.
var flagNames = strings.NewReplacer("id_column_name", "--id-column", "column_name", "--column", "input_format", "--input-format")

// wrapError adds the name of the input to an error. In an error about a field of the
// submission, it also replaces the name of the field by the name of the flag.
func (s *localInput) wrapError(err error) error {
	var failure *rowmill.Failure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failure):
		return fmt.Errorf("%s: %s", s.name, flagNames.Replace(failure.Message))
	}
	return fmt.Errorf("read %s: %w", s.name, err)
}
