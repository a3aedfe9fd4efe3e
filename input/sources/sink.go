package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
)

// A Sink is a folder of a source into which a job writes its results.
type Sink struct {
	source *Source
	folder string // path within the source with a slash at its end; empty: the whole source
}

// FindSink returns the folder that a text of the form NAME:FOLDER names. The error is
// rowmill.ErrNotFound if the account may not write to a source with this name; other errors name
// the fault of the folder.
func (s *Sources) FindSink(account, text string) (*Sink, error) {
	name, folder, ok := SplitName(text)
	if !ok || !slices.Contains(s.SinkNames(account), name) {
		return nil, rowmill.ErrNotFound
	}
	at := slices.IndexFunc(s.all, func(source Source) bool { return source.Name == name })
	sink := &Sink{source: &s.all[at]}
	if folder != "" {
		var err error
		if sink.folder, err = CleanPrefix(folder); err != nil {
			return nil, fmt.Errorf("the folder %w", err)
		}
	}
	if len(sink.folder) > maxPattern {
		return nil, fmt.Errorf("the folder has %d bytes; it may have at most %d", len(sink.folder), maxPattern)
	}
	inside := func(prefix string) bool { return strings.HasPrefix(sink.folder, prefix) }
	if allowed := sink.source.Prefixes; len(allowed) > 0 && !slices.ContainsFunc(allowed, inside) {
		return nil, fmt.Errorf("the folder must begin with a folder that may be used: %s", strings.Join(allowed, ", "))
	}
	return sink, nil
}

// SinkNames returns the names of the sources to which an account may write, sorted.
func (s *Sources) SinkNames(account string) []string {
	return s.names(account, func(source *Source) bool { return source.Writable })
}

// String returns the name of the source and the folder.
func (s *Sink) String() string { return s.source.Name + ":" + s.folder }

// Write writes a file of the folder. A reader sees the whole new file, or the file before. An
// error of the place is a *rowmill.Failure that names the file, and also rowmill.ErrUnavailable if
// the same call may succeed later.
func (s *Sink) Write(ctx context.Context, path string, write func(w io.Writer) error) error {
	var own error // of write
	err := s.source.Place.Write(ctx, s.folder+path, func(w io.Writer) error {
		own = write(markedWriter{w})
		return own
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case own != nil && !errors.Is(own, errWrite): // the rows could not be read
		return own
	}
	failure := rowmill.Failf(rowmill.CodeOutputFailed, "The file %s%s cannot be written. Ask the operator to check the setting sources.%s, then resume the job: no row runs again.", s, path, s.source.Name)
	failure.AdditionalContext = err.Error()
	if errors.Is(err, rowmill.ErrUnavailable) {
		return fmt.Errorf("%w (%w)", failure, rowmill.ErrUnavailable)
	}
	return failure
}

// errWrite marks errors of the place, among the errors of a function that writes to it.
var errWrite = errors.New("write to the place")

// markedWriter is an io.Writer with errors that wrap errWrite.
type markedWriter struct{ io.Writer }

func (m markedWriter) Write(p []byte) (int, error) {
	n, err := m.Writer.Write(p)
	if err != nil {
		err = fmt.Errorf("%w: %w", errWrite, err)
	}
	return n, err
}

// OutputPath returns the path in a sink of the answers to the rows of a file. base is the folder of
// the pattern, see Files.Base.
func OutputPath(base string, file File) string {
	path := strings.TrimPrefix(file.Path, base)
	if strings.HasSuffix(path, parquetEnding) {
		return path
	}
	return path + parquetEnding
}

const parquetEnding = ".parquet"

// Base returns the folder in which all files are, without wildcards: the pattern up to the last
// slash before the first wildcard. It ends with a slash, or is empty.
func (f *Files) Base() string {
	return f.pattern.literal[:strings.LastIndexByte(f.pattern.literal, '/')+1]
}
