package jobs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/results"
)

// combineInputs writes the rows of several files to the file at path, in the order of the files.
// The files must have the same format and, if they are tables, the same columns. A combined
// table is Parquet. combineInputs returns the format of the combined file.
func (c *jobCommands) combineInputs(ctx context.Context, paths []string, opts input.Options, path string) (format input.Format, err error) {
	var files []*localInput
	defer func() {
		for _, file := range files {
			file.Close()
		}
	}()
	for _, path := range paths {
		if isURL(path) || isBucket(path) {
			return "", fmt.Errorf("%s: several inputs must all be files", path)
		}
		file, err := openLocalInput(path, opts, c.Term.In)
		if err != nil {
			return "", err
		}
		if files = append(files, file); file.kind != files[0].kind {
			return "", fmt.Errorf("%s is %s, and %s is %s; give files of one format", file.name, file.describeFormat(true), files[0].name, files[0].describeFormat(true))
		}
	}
	combine, format := combineLines, files[0].kind.Format
	if files[0].kind.Table && format != input.FormatJSONL {
		combine, format = combineTables, input.FormatParquet
	}
	return format, replaceFile(path, func(w io.Writer) error {
		out := bufio.NewWriterSize(w, 256<<10)
		return errors.Join(combine(ctx, out, files), out.Flush())
	})
}

// combineLines copies the lines of files.
func combineLines(ctx context.Context, out *bufio.Writer, files []*localInput) error {
	for _, file := range files {
		for line, err := range input.Lines(file.file, file.size, file.opts.Limits) {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return file.wrapError(err)
			}
			_, _ = out.Write(line)
			if err := out.WriteByte('\n'); err != nil {
				return err
			}
		}
	}
	return nil
}

// combineTables writes the rows of tables as one Parquet file.
func combineTables(ctx context.Context, out *bufio.Writer, files []*localInput) error {
	var columns []results.KeptColumn
	var names []string
	for _, file := range files {
		source, err := input.OpenSource(file.file, file.size, file.opts, nil)
		if err != nil {
			return file.wrapError(err)
		}
		source.Close()
		if columns == nil {
			for _, c := range source.Columns {
				columns, names = append(columns, results.KeptColumn(c)), append(names, c.Name)
			}
		}
		for _, c := range columns {
			if !slices.Contains(source.Columns, input.SourceColumn(c)) {
				return fmt.Errorf("%s has no column %q with the type that it has in %s; give tables with the same columns", file.name, c.Name, files[0].name)
			}
		}
		if len(source.Columns) > len(columns) {
			return fmt.Errorf("%s has more columns than %s; give tables with the same columns", file.name, files[0].name)
		}
	}
	next, stop := iter.Pull2(tableRows(files, names))
	defer stop()
	return results.WriteKept(ctx, out, columns, func(values []rowmill.ID) error {
		row, err, more := next()
		if !more {
			return io.EOF
		}
		copy(values, row)
		return err
	})
}

// tableRows returns the rows of tables with the values of the named columns. A row is valid
// until the next one.
func tableRows(files []*localInput, names []string) iter.Seq2[[]rowmill.ID, error] {
	return func(yield func([]rowmill.ID, error) bool) {
		for _, file := range files {
			if !yieldRows(file, names, yield) {
				return
			}
		}
	}
}

// yieldRows calls yield for the rows of a table. It returns false after an error, or if yield
// returned false.
func yieldRows(file *localInput, names []string, yield func([]rowmill.ID, error) bool) bool {
	source, err := input.OpenSource(file.file, file.size, file.opts, names)
	if err != nil {
		yield(nil, file.wrapError(err))
		return false
	}
	defer source.Close()
	for row := make([]rowmill.ID, len(names)); ; {
		err := source.Next(row)
		if errors.Is(err, io.EOF) {
			return true
		}
		if !yield(row, file.wrapError(err)) || err != nil {
			return false
		}
	}
}
