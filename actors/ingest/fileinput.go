package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/input/sources"
	"github.com/rowmill/rowmill/internal/panics"
	"github.com/rowmill/rowmill/store"
)

// Files of a source are opened before their turn: at most filesAhead files and, except for the next
// file, at most bytesAhead bytes. A request to S3 takes 20 to 100 ms, and reading a small file takes less
// than 1 ms. So many small files are opened at the same time; large files need no such help, and each
// needs more memory.
const (
	filesAhead = 64
	bytesAhead = 16 << 20
)

// fileRows is the input.Reader of the files of a source, one after the other.
type fileRows struct {
	files  *sources.Files
	known  []*knownJob    // jobs with the rows of some of the files
	read   []sources.File // the files so far, with the number of their rows
	limits input.Limits
	types  rowmill.IDType // type of the IDs of all files
	idName string         // name of the ID column

	queue   *fileQueue[*openFile]
	rest    func(wait func()) error // see processorTurn.releaseDuring: a source can be slow, and other inputs need the processor
	current *openFile               // nil before the first file, and between two files
	rows    int64                   // number of rows of all files so far
	before  int64                   // number of rows of the files before the current file
	row     int64                   // number of the current row within its file
}

// An openFile is one file of a source that is being read.
type openFile struct {
	input.Reader                // nil if the file has no content
	object       *restingObject // nil if the rows come from a knownJob
	file         sources.File
}

// A restingObject is an object that is read without a processor.
type restingObject struct {
	blob.Object
	rest func(wait func()) error // see fileRows.rest; nil while the file is opened before its turn
}

func (o *restingObject) ReadAt(p []byte, off int64) (n int, err error) {
	if o.rest == nil {
		return o.Object.ReadAt(p, off)
	}
	if restErr := o.rest(func() { n, err = o.Object.ReadAt(p, off) }); restErr != nil {
		return 0, restErr
	}
	return n, err
}

// close closes the file, which was only read.
func (f *openFile) close() {
	if f.Reader != nil {
		_ = f.Reader.Close()
	}
	if f.object != nil {
		_ = f.object.Close()
	}
}

// setRest sets how the file waits for its source.
func (f *openFile) setRest(rest func(wait func()) error) {
	if f.object != nil {
		f.object.rest = rest
	}
}

// openFiles returns a reader of the files of a source. The first file with content decides the type of
// the IDs and, if the client named no column, the name of the column.
func (g *ingester) openFiles(ctx context.Context, source store.Record) (input.Reader, error) {
	files, list, err := g.listFiles(ctx, source, g.Ready != nil)
	if err != nil {
		return nil, err
	}
	r := &fileRows{files: files, rest: func(wait func()) error { wait(); return nil }}
	if err := g.beginFiles(ctx, &source.Spec, r, list); err != nil {
		list.close()
		r.closeKnown()
		return nil, err
	}
	g.files = r
	return r, nil
}

// beginFiles opens the first file with content, and makes the queue of the files after it.
func (g *ingester) beginFiles(ctx context.Context, source *rowmill.Spec, r *fileRows, list *fileList) error {
	opts, err := g.options(source)
	if err != nil {
		return err
	}
	r.limits, r.idName = opts.Limits, opts.IDColumn
	known, jobs, err := g.findKnownFiles(ctx, source, list.files)
	r.known = jobs
	if err != nil {
		return err
	}
	open := func(ctx context.Context, file sources.File) (*openFile, error) {
		if of, is := known[file.Path]; is {
			return &openFile{Reader: &knownRows{knownFile: of}, file: file}, nil
		}
		return openRows(ctx, r.files, file, opts)
	}
	g.size = list.size()
	for r.current == nil {
		next, err := list.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		file, err := open(ctx, next)
		if err != nil {
			return err
		}
		if !r.begin(file) {
			continue
		}
		r.types = file.IDType()
		if opts.Column == "" && opts.Fields == nil {
			opts.Column = input.ChosenColumn(file.Reader) // no file is known then
		}
	}
	r.queue = newFileQueue(ctx, list, open, (*openFile).close)
	return nil
}

// begin makes a file the current file. If the file has no content, begin closes it and returns false.
func (r *fileRows) begin(file *openFile) bool {
	if file.Reader == nil {
		file.close()
		r.read = append(r.read, file.file)
		return false
	}
	r.current = file
	return true
}

// openRows opens the rows of one file. opts are the options for all files.
func openRows(ctx context.Context, files *sources.Files, file sources.File, opts input.Options) (*openFile, error) {
	opts, err := fileOptions(opts, file)
	if err != nil {
		return nil, nameFile(files, file, err)
	}
	object, err := files.Open(ctx, file)
	if err != nil {
		return nil, err
	}
	o := &restingObject{Object: object}
	rows, err := input.Open(o, file.Size, opts)
	if err != nil && !errors.Is(err, input.ErrEmpty) {
		return nil, errors.Join(nameFile(files, file, err), o.Close())
	}
	return &openFile{rows, o, file}, nil
}

// nameFile adds the name of a file to an error about the content of the file.
func nameFile(files *sources.Files, file sources.File, err error) error {
	var failure *rowmill.Failure
	if !errors.As(err, &failure) || failure.Code != rowmill.CodeInvalidInputFile {
		return err // package sources has named the file
	}
	named := *failure
	named.Message = "File " + files.Title(file) + ": " + named.Message
	return &named
}

// fileOptions returns the options for one file: the folders of the file give values to some fields of
// the prompt.
func fileOptions(opts input.Options, file sources.File) (input.Options, error) {
	opts.Name, opts.MayBeEmpty = path.Base(file.Path), true
	partitions := file.Partitions()
	if opts.Fields == nil || len(partitions) == 0 {
		return opts, nil
	}
	all, values := *opts.Fields, make([]string, len(opts.Fields.Names))
	var own []int // positions of the fields that are columns of the file
	fields := input.PromptFields{}
	for i, name := range all.Names {
		at := slices.IndexFunc(partitions, func(p sources.Partition) bool { return p.Key == name })
		if at >= 0 {
			values[i] = partitions[at].Value
			continue
		}
		own = append(own, i)
		fields.Names, fields.Required = append(fields.Names, name), append(fields.Required, all.Required[i])
	}
	if len(own) == 0 {
		return opts, rowmill.Failf(rowmill.CodeInvalidInputFile, "All columns of the prompt come from the names of folders, so all rows would be equal. Use a column of the file, too.")
	}
	fill := func(read []string) []string {
		for i, at := range own {
			values[at] = read[i]
		}
		return values
	}
	fields.Size = func(read []string) int64 { return all.Size(fill(read)) }
	fields.Render = func(read []string) string { return all.Render(fill(read)) }
	fields.RowFields = func(read []string) string { return all.RowFields(fill(read)) }
	opts.Fields = &fields
	return opts, nil
}

// Next fills row with the next row of the files.
func (r *fileRows) Next(row *rowmill.Row) error {
	for {
		if r.current == nil {
			if err := r.nextFile(); err != nil {
				return err
			}
		}
		err := r.current.Next(row)
		switch {
		case errors.Is(err, io.EOF):
			r.current.close()
			r.current.file.Rows = r.rows - r.before
			r.read = append(r.read, r.current.file)
			r.current, r.before = nil, r.rows
			continue
		case err != nil:
			return nameFile(r.files, r.current.file, err)
		case r.rows >= r.limits.MaxRows:
			return rowmill.Failf(rowmill.CodeInvalidInputFile, "The files of %s have more than %d rows. Use a narrower pattern, or several jobs.", r.files, r.limits.MaxRows)
		}
		r.row, row.Index = row.Index, r.rows
		r.rows++
		return nil
	}
}

// nextFile begins to read the next file with content. After the last file it returns io.EOF.
func (r *fileRows) nextFile() error {
	for {
		var file *openFile
		var err error
		if restErr := r.rest(func() { file, err = r.queue.next() }); restErr != nil && err == nil {
			file.close()
			return restErr
		}
		if err != nil {
			return err
		}
		if !r.begin(file) {
			continue
		}
		file.setRest(r.rest)
		if types := file.IDType(); types != r.types {
			return rowmill.Failf(rowmill.CodeInvalidInputFile, "The id column %q of the file %s has another type than in the files before. Write it with one type in all files.", r.idName, r.files.Title(file.file))
		}
		return nil
	}
}

// setRest sets how the reader waits for a source.
func (r *fileRows) setRest(rest func(wait func()) error) {
	if r.rest = rest; r.current != nil {
		r.current.setRest(rest)
	}
}

// IDType returns the type of the IDs of all files.
func (r *fileRows) IDType() rowmill.IDType { return r.types }

// Close closes all open files.
func (r *fileRows) Close() error {
	if r.current != nil {
		r.current.close()
	}
	r.queue.close()
	r.closeKnown()
	return nil
}

func (r *fileRows) closeKnown() {
	for _, job := range r.known {
		job.close()
	}
}

// describeRow returns the name of the row that was read last, for an error message. index is its
// number in the whole input.
func (g *ingester) describeRow(index int64) string {
	if g.files == nil || g.files.current == nil {
		return fmt.Sprintf("Row %d", index)
	}
	return fmt.Sprintf("Row %d of the file %s", g.files.row, g.files.files.Title(g.files.current.file))
}

// A fileQueue opens files in order, a few of them before their turn.
type fileQueue[T any] struct {
	ctx       context.Context //nolint:containedctx // a queue lives as long as this context
	cancel    context.CancelFunc
	open      func(ctx context.Context, file sources.File) (T, error)
	closeFile func(T)
	list      *fileList        // files that are not opened yet
	waiting   []chan opened[T] // the next files in order, open or being opened
	sizes     []int64          // sizes of the files in waiting, in bytes
	bytes     int64            // sum of sizes
}

// opened is the result of opening a file.
type opened[T any] struct {
	file T
	err  error
}

// newFileQueue returns a queue of the files that list has not returned yet. open opens a file; several
// calls run at the same time. The caller must call close, which closes list, too.
func newFileQueue[T any](ctx context.Context, list *fileList, open func(ctx context.Context, file sources.File) (T, error), closeFile func(T)) *fileQueue[T] {
	q := &fileQueue[T]{open: open, closeFile: closeFile, list: list}
	q.ctx, q.cancel = context.WithCancel(ctx)
	q.fill()
	return q
}

// fill begins to open the next files that are listed.
func (q *fileQueue[T]) fill() {
	for {
		size, listed := q.list.nextSize()
		if !listed || len(q.waiting) > 0 && (len(q.waiting) >= filesAhead || q.bytes+size > bytesAhead) {
			return
		}
		q.openNext()
	}
}

// openNext begins to open the next file, and waits until that file is listed. After the last file it
// does nothing.
func (q *fileQueue[T]) openNext() {
	next, err := q.list.next()
	if errors.Is(err, io.EOF) {
		return
	}
	result := make(chan opened[T], 1)
	q.waiting, q.sizes, q.bytes = append(q.waiting, result), append(q.sizes, next.Size), q.bytes+next.Size
	go func() {
		var file T
		if err == nil { // the file is listed
			err = panics.Catch(func() (err error) {
				file, err = q.open(q.ctx, next)
				return err
			})
		}
		result <- opened[T]{file, err}
	}()
}

// next returns the next file. After the last file it returns io.EOF. The caller closes the file.
func (q *fileQueue[T]) next() (file T, err error) {
	if len(q.waiting) == 0 {
		q.openNext()
	}
	if len(q.waiting) == 0 {
		return file, io.EOF
	}
	result := <-q.waiting[0]
	q.bytes -= q.sizes[0]
	q.waiting, q.sizes = q.waiting[1:], q.sizes[1:]
	q.fill()
	return result.file, result.err
}

// close stops the queue and the listing, and closes the files that next has not returned.
func (q *fileQueue[T]) close() {
	q.cancel()
	q.list.close()
	for _, waiting := range q.waiting {
		if result := <-waiting; result.err == nil {
			q.closeFile(result.file)
		}
	}
	q.waiting = nil
}
