package jobs

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// maxLine bounds one line of a text input, in bytes. The service refuses rows
// above 8 MiB by default; an object may hold more beside its row.
const maxLine = 64 << 20

// The kinds of local input.
const (
	kindAuto    = "auto"
	kindCSV     = "csv"
	kindParquet = "parquet"
	kindJSONL   = "jsonl"
	kindLines   = "lines"
)

// A source is a local input that can be read several times: once to check and
// count it before anything is sent, once to send it.
type source struct {
	name    string // for messages
	kind    string
	column  string
	file    *os.File
	size    int64
	gzip    bool
	objects bool // the first of its JSON lines is an object
	temp    bool // a copy of standard input, to be removed
}

// openSource opens a file, or copies standard input to a temporary file for
// the path "-", and finds out what it holds: by content where that is certain
// (Parquet, gzip), else by name, else by its first line.
func openSource(path, kind, column string, stdin io.Reader) (s *source, err error) {
	s = &source{name: path, kind: kind, column: column}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if path == stdout { // "-" is standard input here
		s.name = "standard input"
		if err := s.spool(stdin); err != nil {
			return s, fmt.Errorf("read standard input: %w", err)
		}
	} else if s.file, err = os.Open(path); err != nil {
		return s, err
	}
	info, err := s.file.Stat()
	if err != nil {
		return s, err
	}
	if !info.Mode().IsRegular() {
		return s, fmt.Errorf("%s is no regular file; use - to read a stream", path)
	}
	if s.size = info.Size(); s.size == 0 {
		return s, fmt.Errorf("%s is empty", s.name)
	}
	if err := s.detect(); err != nil || s.kind != kindJSONL {
		return s, err
	}
	return s, s.look()
}

// look finds out whether JSON lines are objects.
func (s *source) look() error {
	for line, err := range s.lines() {
		if err != nil {
			return err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			s.objects = line[0] == '{'
			break
		}
	}
	if !s.objects && s.column != "" {
		return fmt.Errorf("%s has JSON strings, which have no column; leave out --column %s", s.name, s.column)
	}
	return nil
}

// spool copies a stream to disk, where it can be read twice.
func (s *source) spool(stdin io.Reader) error {
	file, err := os.CreateTemp("", "rowmill-input-*")
	if err != nil {
		return err
	}
	s.file, s.temp = file, true
	_, err = io.Copy(file, stdin)
	return err
}

// Close closes the file and removes what was copied.
func (s *source) Close() {
	if s.file == nil {
		return
	}
	s.file.Close()
	if s.temp {
		os.Remove(s.file.Name())
	}
}

// detect settles the kind.
func (s *source) detect() error {
	magic := make([]byte, 4)
	if n, err := s.file.ReadAt(magic, 0); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", s.name, err)
	} else if bytes.HasPrefix(magic[:n], []byte{0x1f, 0x8b}) {
		s.gzip = true
	}
	isParquet := string(magic) == "PAR1"
	if s.kind != kindAuto {
		if (s.kind == kindParquet) != isParquet {
			return fmt.Errorf("%s: --input-format is %s, but the content says otherwise", s.name, s.kind)
		}
		return nil
	}
	name := strings.TrimSuffix(strings.ToLower(s.name), ".gz")
	switch ending := filepath.Ext(name); {
	case isParquet:
		s.kind = kindParquet
	case ending == ".parquet":
		return fmt.Errorf("%s is no Parquet file, whatever its name says; choose with --input-format", s.name)
	case ending == ".csv":
		s.kind = kindCSV
	case ending == ".jsonl" || ending == ".ndjson":
		s.kind = kindJSONL
	case ending == ".txt":
		s.kind = kindLines
	default:
		return s.guess()
	}
	return nil
}

// guess tells JSON lines from plain ones by the first line. CSV without its
// name is not guessed: any text is CSV of one column.
func (s *source) guess() error {
	s.kind = kindLines
	for line, err := range s.lines() {
		if err != nil {
			return err
		}
		line = bytes.TrimSpace(line)
		if len(line) > 0 && (line[0] == '{' || line[0] == '"') && json.Valid(line) {
			s.kind = kindJSONL
		}
		if bytes.Equal(line, []byte("[")) || len(line) > 0 && line[0] == '[' && json.Valid(line) {
			return fmt.Errorf("%s looks like one JSON array; write one JSON value on each line (jq -c '.[]'), or force --input-format lines", s.name)
		}
		break
	}
	return nil
}

// rows reads the input from its beginning.
func (s *source) rows() iter.Seq2[string, error] {
	switch s.kind {
	case kindJSONL:
		if !s.objects || s.column == "" {
			return s.jsonRows()
		}
	case kindLines:
		return s.lineRows()
	}
	return s.tableRows()
}

// lineRows makes every line a row, empty ones too, so that row n is line n+1.
func (s *source) lineRows() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		n := 0
		for line, err := range s.lines() {
			n++
			if err == nil && !utf8.Valid(line) {
				err = fmt.Errorf("%s line %d: not UTF-8; convert the file, for example with iconv", s.name, n)
			}
			if !yield(string(line), err) || err != nil {
				return
			}
		}
	}
}

// lines reads the text line by line, without line ends. A line is valid until
// the next one.
func (s *source) lines() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var in io.Reader = io.NewSectionReader(s.file, 0, s.size)
		if s.gzip {
			unzip, err := gzip.NewReader(in)
			if err != nil {
				yield(nil, fmt.Errorf("read %s: %w", s.name, err))
				return
			}
			in = unzip
		}
		buffered := bufio.NewReaderSize(in, 256<<10)
		var line []byte
		for n := 1; ; n++ {
			line = line[:0]
			err := bufio.ErrBufferFull
			for errors.Is(err, bufio.ErrBufferFull) {
				var piece []byte
				piece, err = buffered.ReadSlice('\n')
				line = append(line, piece...)
				if len(line) > maxLine {
					yield(nil, fmt.Errorf("%s line %d: longer than %d MiB", s.name, n, maxLine>>20))
					return
				}
			}
			if err != nil && !errors.Is(err, io.EOF) {
				yield(nil, fmt.Errorf("read %s line %d: %w", s.name, n, err))
				return
			}
			if len(line) == 0 {
				return // the end of the file is no line
			}
			if n == 1 {
				line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
			}
			if !yield(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil) || err != nil {
				return
			}
		}
	}
}
