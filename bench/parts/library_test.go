package parts

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/snappy"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/rowmill/rowmill/internal/must"
)

// This file does the work of package results with parquet-go, each time in the fastest
// known way.

// libraryRow is a row of a part. Structs known at compile time are the library's
// fastest way to write; parquet.Row takes a quarter longer.
type libraryRow struct {
	ID           *int64   `parquet:"row_id,plain"`
	Inputs       string   `parquet:"inputs,plain"`
	Output       *string  `parquet:"job-0190f5b2-7c3e-7d4a-9b1c-3f2e1d0c9b8a,plain"`
	Score        *float64 `parquet:"cumulative_logprobs,plain"`
	Row          int64    `parquet:"RESERVED_row,plain"`
	Finish       string   `parquet:"RESERVED_finish_reason,optional,plain"`
	InputTokens  int64    `parquet:"RESERVED_input_tokens,plain"`
	OutputTokens int64    `parquet:"RESERVED_output_tokens,plain"`
	Engine       string   `parquet:"RESERVED_engine,optional,plain"`
	Seconds      *float64 `parquet:"RESERVED_duration_seconds,plain"`
	Attempts     int64    `parquet:"RESERVED_attempts,plain"`
	Code         *string  `parquet:"RESERVED_error_code,plain"`
	Message      *string  `parquet:"RESERVED_error_message,plain"`
	Raw          string   `parquet:"RESERVED_raw_output,optional,plain"`
}

// partColumns are the columns of a part.
var partColumns = columnNames(parquet.SchemaOf(new(libraryRow)))

// rowColumn is the column number of RESERVED_row.
var rowColumn = slices.Index(partColumns, "RESERVED_row")

func (r *libraryRow) set(e *entry) {
	*r = libraryRow{
		ID: &e.row.ID.Int, Inputs: e.row.Text, Row: e.row.Index, Finish: string(e.out.Finish),
		InputTokens: e.out.InputTokens, OutputTokens: e.out.OutputTokens, Engine: e.out.Engine, Seconds: &e.out.Seconds, Attempts: int64(e.out.Attempts),
	}
	if e.out.Failed() {
		r.Code, r.Message, r.Raw = &e.out.Err.Code, &e.out.Err.Message, e.out.Err.Raw
	} else {
		r.Output, r.Score = &e.out.Text, &e.out.Score
	}
}

// sameSnappy is Snappy at our level. The library's own level is stronger and slower,
// and would make this a comparison of codecs.
type sameSnappy struct{ snappy.Codec }

func (*sameSnappy) Encode(dst, src []byte) ([]byte, error) {
	return s2.EncodeSnappy(dst[:cap(dst)], src), nil
}

func byRow() parquet.SortingOption {
	return parquet.SortingColumns(parquet.Ascending("RESERVED_row"))
}

func libraryOptions(more ...parquet.WriterOption) []parquet.WriterOption {
	return append([]parquet.WriterOption{
		parquet.Compression(new(sameSnappy)), parquet.DataPageVersion(1),
		parquet.PageBufferSize(256 << 10), parquet.WriteBufferSize(256 << 10), parquet.MaxRowsPerRowGroup(131_072),
		parquet.KeyValueMetadata("job_id", jobID), parquet.KeyValueMetadata("model", "m"),
	}, more...)
}

// libraryPart writes a part.
func libraryPart(tb testing.TB, w io.Writer, entries []entry) {
	p := parquet.NewGenericWriter[libraryRow](w, libraryOptions(parquet.SortingWriterConfig(byRow()))...)
	var batch [64]libraryRow // the library buffers as many at a time
	for len(entries) > 0 {
		n := min(len(batch), len(entries))
		for i := range n {
			batch[i].set(&entries[i])
		}
		must.Get(p.Write(batch[:n]))(tb)
		entries = entries[n:]
	}
	must.Succeed(tb, p.Close())
}

// openLibrary opens a file without its page indexes: the library reads them with the
// footer only if they are contiguous, and in narrowed files they are not.
func openLibrary(tb testing.TB, src *io.SectionReader) *parquet.File {
	f := must.Get(parquet.OpenFile(src, src.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true)))(tb)
	return f
}

// libraryMerge merges sorted parts. By comparing one number it takes half to three
// quarters of the time of parquet.MergeRowGroups.
func libraryMerge(tb testing.TB, w io.Writer, parts []*io.SectionReader) {
	var readers []parquet.RowReader
	for _, src := range parts {
		for _, g := range openLibrary(tb, src).RowGroups() {
			rows := g.Rows()
			defer func() { _ = rows.Close() }()
			readers = append(readers, rows)
		}
	}
	merged := parquet.MergeRowReaders(readers, func(a, b parquet.Row) int {
		return cmp.Compare(a[rowColumn].Int64(), b[rowColumn].Int64())
	})
	p := parquet.NewGenericWriter[libraryRow](w, libraryOptions(parquet.SortingWriterConfig(byRow()))...)
	must.Get(parquet.CopyRows(p, merged))(tb)
	must.Succeed(tb, p.Close())
}

// libraryJoin writes some columns of parts, one part after the other. The library
// copies row groups byte for byte, but only with all columns; so the parts get footers
// without the other columns.
func libraryJoin(tb testing.TB, w io.Writer, parts []*io.SectionReader, keep []string) {
	var p *parquet.GenericWriter[any]
	for _, src := range parts {
		f := openLibrary(tb, narrowed(tb, src, keep))
		if p == nil {
			p = parquet.NewGenericWriter[any](w, libraryOptions(f.Schema())...)
		}
		for _, g := range f.RowGroups() {
			must.Get(p.WriteRowGroup(g))(tb)
		}
	}
	must.Succeed(tb, p.Close())
}

// libraryPages is libraryJoin with the library's own functions only: it reads and
// writes values page by page.
func libraryPages(tb testing.TB, w io.Writer, parts []*io.SectionReader, keep []string) {
	schema := openLibrary(tb, narrowed(tb, parts[0], keep)).Schema()
	p := parquet.NewGenericWriter[any](w, libraryOptions(schema)...)
	values := make([]parquet.Value, 1024)
	for _, src := range parts {
		f := openLibrary(tb, src)
		for _, g := range f.RowGroups() {
			for i, name := range keep {
				leaf, _ := f.Schema().Lookup(name)
				libraryColumn(tb, p.ColumnWriters()[i], i, g.ColumnChunks()[leaf.ColumnIndex].Pages(), values)
			}
			must.Succeed(tb, p.Flush())
		}
	}
	must.Succeed(tb, p.Close())
}

func libraryColumn(tb testing.TB, w *parquet.ColumnWriter, column int, pages parquet.Pages, values []parquet.Value) {
	defer func() { _ = pages.Close() }()
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return
		}
		must.Succeed(tb, err)
		for reader, err := page.Values(), error(nil); err == nil; {
			var n int
			n, err = reader.ReadValues(values)
			for i, v := range values[:n] {
				values[i] = v.Level(v.RepetitionLevel(), v.DefinitionLevel(), column)
			}
			if _, failed := w.WriteRowValues(values[:n]); failed != nil || err != nil && !errors.Is(err, io.EOF) {
				tb.Fatal(failed, err)
			}
		}
		parquet.Release(page)
	}
}

// narrowed returns src with a footer that lists only the columns in keep.
func narrowed(tb testing.TB, src *io.SectionReader, keep []string) *io.SectionReader {
	var tail [8]byte
	must.Get(src.ReadAt(tail[:], src.Size()-8))(tb)
	footer := make([]byte, binary.LittleEndian.Uint32(tail[:]))
	end := src.Size() - 8 - int64(len(footer))
	must.Get(src.ReadAt(footer, end))(tb)
	var meta format.FileMetaData
	must.Succeed(tb, thrift.Unmarshal(new(thrift.CompactProtocol), footer, &meta))
	schema := meta.Schema[:1:1]
	schema[0].NumChildren.Set(int32(len(keep)))
	chunks := make([][]format.ColumnChunk, len(meta.RowGroups))
	for _, name := range keep {
		for i, e := range meta.Schema[1:] {
			if e.Name == name {
				schema = append(schema, e)
				for g := range chunks {
					chunks[g] = append(chunks[g], meta.RowGroups[g].Columns[i])
				}
			}
		}
	}
	meta.Schema = schema
	meta.ColumnOrders = meta.ColumnOrders[:len(keep)]
	for g := range chunks {
		meta.RowGroups[g].Columns = chunks[g]
		meta.RowGroups[g].SortingColumns = nil
	}
	footer = must.Get(thrift.Marshal(new(thrift.CompactProtocol), &meta))(tb)
	footer = append(binary.LittleEndian.AppendUint32(footer, uint32(len(footer))), "PAR1"...)
	return io.NewSectionReader(overlay{src, end, footer}, 0, end+int64(len(footer)))
}

// overlay is a file whose contents from end on are tail.
type overlay struct {
	io.ReaderAt
	end  int64
	tail []byte
}

func (o overlay) ReadAt(b []byte, at int64) (n int, err error) {
	if at < o.end {
		n, err = o.ReaderAt.ReadAt(b[:min(int64(len(b)), o.end-at)], at)
		if err != nil || n == len(b) {
			return n, err
		}
	}
	if n += copy(b[n:], o.tail[at+int64(n)-o.end:]); n < len(b) {
		return n, io.EOF
	}
	return n, nil
}
