package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/input/sources"
	"github.com/rowmill/rowmill/internal/columnar"
	"github.com/rowmill/rowmill/store"
)

// keptFiles reads the kept columns of the files of a source, one file after the other.
type keptFiles struct {
	files   *sources.Files
	names   []string     // names of the kept columns; nil: all
	columns []keptColumn // columns of all files, with types that can hold the values of all files

	queue   *fileQueue[*keptFile]
	current *keptFile // nil before the first file, and between two files
	order   []int     // order[i] is the position of columns[i] in current.columns
}

// A keptFile reads the kept columns of one file.
type keptFile struct {
	in      *input.SourceReader // nil if the file has no content
	object  blob.Object
	file    sources.File
	columns []keptColumn
	read    []rowmill.ID // the current row of in
}

// A keptColumn is a column of a file, or of the folders of the file.
type keptColumn struct {
	input.SourceColumn
	at     int                // position in keptFile.read; -1 for a column of the folders
	folder rowmill.ID         // the value of all rows, if the column is one of the folders
	leaf   *columnar.LeafType // type of the values; nil unless their kind is IDLeafValue
}

// close closes the file, which was only read.
func (f *keptFile) close() {
	if f.in != nil {
		f.in.Close()
	}
	_ = f.object.Close()
}

// openKeptOfFiles opens the kept columns of the files of a source. It first opens all files to find
// the types of the columns. So a file with other columns is found before rows are written.
func (g *ingester) openKeptOfFiles(ctx context.Context, source store.Record) (keptReader, error) {
	files, list, err := g.listFiles(ctx, source, false)
	if err != nil {
		return keptReader{}, err
	}
	opts, err := g.options(&source.Spec)
	if err != nil {
		return keptReader{}, err
	}
	names := g.spec.KeptColumns()
	queue := func() *fileQueue[*keptFile] {
		return newFileQueue(ctx, &fileList{files: list.files}, func(ctx context.Context, file sources.File) (*keptFile, error) {
			return openKeptFile(ctx, files, file, opts, names)
		}, (*keptFile).close)
	}
	r := &keptFiles{files: files, names: names}
	if err := r.findColumns(queue()); err != nil {
		return keptReader{}, err
	}
	r.queue = queue()
	opened := keptReader{next: r.next, close: r.close}
	for _, c := range r.columns {
		opened.columns = append(opened.columns, c.SourceColumn)
	}
	return opened, nil
}

// openKeptFile opens the kept columns of one file: those in names, or all if names is nil. A column
// of the folders replaces a column of the file.
func openKeptFile(ctx context.Context, files *sources.Files, file sources.File, opts input.Options, names []string) (*keptFile, error) {
	partitions := file.Partitions()
	isFolder := func(name string) bool {
		return slices.ContainsFunc(partitions, func(p sources.Partition) bool { return p.Key == name })
	}
	isKept := func(name string) bool { return names == nil || slices.Contains(names, name) }
	own := slices.DeleteFunc(slices.Clone(names), isFolder)
	if len(own) == 0 {
		own = nil // all columns, because the rows of the file must be counted
	}
	o, err := files.Open(ctx, file)
	if err != nil {
		return nil, err
	}
	f := &keptFile{object: o, file: file}
	opts.Name, opts.MayBeEmpty = file.Path, true
	f.in, err = input.OpenSource(o, file.Size, opts, own)
	if errors.Is(err, input.ErrEmpty) {
		return f, nil
	}
	if err != nil {
		return nil, errors.Join(nameFile(files, file, err), o.Close())
	}
	f.read = make([]rowmill.ID, len(f.in.Columns))
	for i, column := range f.in.Columns {
		if isKept(column.Name) && !isFolder(column.Name) {
			kept := keptColumn{SourceColumn: column, at: i}
			if column.IDKind == rowmill.IDLeafValue {
				if kept.leaf, err = columnar.ParseLeaf(column.IDLeaf); err != nil {
					f.close()
					return nil, fmt.Errorf("read the columns of %s: %w", files.Title(file), err) // unexpected: package columnar wrote the type
				}
			}
			f.columns = append(f.columns, kept)
		}
	}
	for _, p := range partitions {
		if isKept(p.Key) {
			text := input.SourceColumn{Name: p.Key, IDType: rowmill.IDType{IDKind: rowmill.IDString}}
			f.columns = append(f.columns, keptColumn{SourceColumn: text, at: -1, folder: rowmill.ID{Kind: rowmill.IDString, Text: p.Value}})
		}
	}
	return f, nil
}

// findColumns finds the columns of all files, and closes the queue. It returns a failure that names
// the first file with other columns.
func (r *keptFiles) findColumns(queue *fileQueue[*keptFile]) error {
	defer queue.close()
	for {
		f, err := queue.next()
		switch {
		case errors.Is(err, io.EOF) && r.columns == nil:
			return errNoDataRows
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		f.close()
		switch {
		case f.in == nil:
		case r.columns == nil:
			r.columns = slices.Clone(f.columns)
			slices.SortStableFunc(r.columns, func(a, b keptColumn) int {
				return slices.Index(r.names, a.Name) - slices.Index(r.names, b.Name)
			})
		default:
			if err := r.addFile(f); err != nil {
				return err
			}
		}
	}
}

// addFile compares the columns of a file with the columns of the files before it. A column with
// numbers of different types gets a type of 64 bits that can hold them.
func (r *keptFiles) addFile(f *keptFile) error {
	refuse := func(column, problem string) error {
		return rowmill.Failf(rowmill.CodeInvalidInputFile,
			"The file %s %s %q. Name only columns in keep_columns that all files have with one type, or correct the file.", r.files.Title(f.file), problem, column)
	}
	for i := range r.columns {
		at := f.find(r.columns[i].Name)
		if at < 0 {
			return refuse(r.columns[i].Name, "lacks a column of the files before:")
		}
		if r.columns[i].IDType == f.columns[at].IDType {
			continue
		}
		kind, ok := commonKind(r.columns[i].wideKind(), f.columns[at].wideKind())
		if !ok {
			return refuse(r.columns[i].Name, "has another type than the files before in the column")
		}
		r.columns[i].IDType, r.columns[i].leaf = rowmill.IDType{IDKind: kind}, nil
	}
	if r.names != nil {
		return nil
	}
	for _, c := range f.columns {
		if !slices.ContainsFunc(r.columns, func(known keptColumn) bool { return known.Name == c.Name }) {
			return refuse(c.Name, "has a column that the files before lack:")
		}
	}
	return nil
}

// wideKind returns the kind of the values of the column, if numbers have 64 bits.
func (c *keptColumn) wideKind() rowmill.IDKind {
	if c.leaf != nil {
		if kind, ok := c.leaf.WideKind(); ok {
			return kind
		}
	}
	return c.IDKind
}

// commonKind returns the kind of numbers that can hold numbers of both kinds. ok is false if there
// is none: integers with and without a sign have no common kind.
func commonKind(a, b rowmill.IDKind) (kind rowmill.IDKind, ok bool) {
	isNumber := func(kind rowmill.IDKind) bool {
		return kind == rowmill.IDInt || kind == rowmill.IDUint || kind == rowmill.IDFloat
	}
	switch {
	case !isNumber(a) || !isNumber(b):
		return 0, false
	case a == b:
		return a, true
	}
	return rowmill.IDFloat, a == rowmill.IDFloat || b == rowmill.IDFloat
}

// convert returns a value of the column as a value of another kind, which can hold it.
func (c *keptColumn) convert(value rowmill.ID, to rowmill.IDKind) rowmill.ID {
	if c.leaf != nil && to != rowmill.IDLeafValue {
		value = c.leaf.Widen(value)
	}
	switch {
	case to == rowmill.IDFloat && value.Kind == rowmill.IDInt:
		return rowmill.ID{Kind: to, Real: float64(value.Int)}
	case to == rowmill.IDFloat && value.Kind == rowmill.IDUint:
		return rowmill.ID{Kind: to, Real: float64(uint64(value.Int))} //nolint:gosec // an IDUint has the bits of an unsigned integer
	}
	return value
}

// find returns the position of a column in the file, or -1.
func (f *keptFile) find(name string) int {
	return slices.IndexFunc(f.columns, func(c keptColumn) bool { return c.Name == name })
}

// next fills values with the values of the next row. After the last row it returns io.EOF.
func (r *keptFiles) next(values []rowmill.ID) error {
	for {
		if r.current == nil {
			if err := r.nextFile(); err != nil {
				return err
			}
		}
		err := r.current.in.Next(r.current.read)
		if errors.Is(err, io.EOF) {
			r.current.close()
			r.current = nil
			continue
		}
		if err != nil {
			return nameFile(r.files, r.current.file, err)
		}
		for i, at := range r.order {
			column := &r.current.columns[at]
			if values[i] = column.folder; column.at >= 0 {
				values[i] = column.convert(r.current.read[column.at], r.columns[i].IDKind)
			}
		}
		return nil
	}
}

// nextFile begins to read the next file with content. After the last file it returns io.EOF.
func (r *keptFiles) nextFile() error {
	for {
		f, err := r.queue.next()
		if err != nil {
			return err
		}
		if f.in == nil {
			f.close()
			continue
		}
		r.current, r.order = f, r.order[:0]
		for _, c := range r.columns {
			r.order = append(r.order, f.find(c.Name))
		}
		return nil
	}
}

// close closes all open files.
func (r *keptFiles) close() {
	if r.current != nil {
		r.current.close()
	}
	r.queue.close()
}
