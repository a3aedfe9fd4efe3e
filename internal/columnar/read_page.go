package columnar

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/parquet-go/parquet-go/format"
)

const (
	// pageHeaderStart is the number of bytes that are read first to decode a page
	// header. Only headers with long minima and maxima are larger.
	pageHeaderStart = 1 << 10
	// pageHeaderMax is the largest page header, in bytes: twice the longest row,
	// because a header can have the minimum and the maximum of the page.
	pageHeaderMax = 32 << 20
)

// pageReader reads the values of a leaf in a row group, page by page. It decodes and
// checks the whole page before it returns a value: the page must have exactly the
// bytes, levels and values that its header claims. Each pageReader has its own buffers,
// so no value can come from another file.
type pageReader struct {
	src     *errTrackingSource
	limits  *Limits
	leaf    *schemaNode // the column that is read
	group   int         // number of the row group
	codec   format.CompressionCodec
	at, end int64 // offset of the next page's header, and end of the column chunk
	values  int64 // number of values in unread pages, nulls included
	rows    int64 // number of rows that begin in unread pages
	page    int   // number of the current page; a dictionary is page 0
	header  int64 // offset of the current page's header in the file

	unpacker
	stored, plain    []byte      // the current page, compressed and decompressed
	decoded, lengths []byte      // values of the page and their lengths, if the encoding is not PLAIN
	index            []uint32    // buffer for leafValues.index
	dictionary       *leafValues // dictionary of the column chunk, or nil

	rep, def []byte // levels of the page's values; nil if all are 0
	leafValues
	next, n int // position of the next value in the page, and number of values, nulls included
}

// newPageReader returns a reader of the column chunk of a leaf in a row group.
func newPageReader(f *File, group int, leaf *schemaNode) (*pageReader, error) {
	m, err := f.chunk(group, leaf)
	if err != nil {
		return nil, err
	}
	return &pageReader{
		src: f.src, limits: &f.limits, leaf: leaf, group: group, codec: m.Codec,
		at: m.firstPageOffset(), end: m.firstPageOffset() + m.TotalCompressedSize, values: m.NumValues, rows: f.groups[group].NumRows, page: -1,
	}, nil
}

// hasNext reads pages until there is a next value. It returns false at the end of the
// column chunk.
func (r *pageReader) hasNext() (bool, error) {
	for r.next == r.n {
		if r.at == r.end {
			if r.values != 0 || r.rows != 0 {
				return false, newFormatError("The Parquet file is corrupt: the pages of column %q in row group %d have %d values and %d rows fewer than the row group.",
					r.leaf.path, r.group, r.values, r.rows)
			}
			return false, nil
		}
		if err := r.readPage(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// requireNext is like hasNext, but returns an error at the end of the column chunk.
func (r *pageReader) requireNext() error {
	ok, err := r.hasNext()
	if err == nil && !ok {
		err = newFormatError("The Parquet file is corrupt: column %q ends inside a row of row group %d.", r.leaf.path, r.group)
	}
	return err
}

// levels returns the repetition level and the definition level of the next value.
func (r *pageReader) levels() (rep, def int) {
	if r.rep != nil {
		rep = int(r.rep[r.next])
	}
	if r.def != nil {
		def = int(r.def[r.next])
	}
	return rep, def
}

// takeValue returns the next value in PLAIN encoding, but a boolean is one byte (0 or 1),
// and no length precedes a text. ok is false for a null. The value is valid until the
// next page is read.
func (r *pageReader) takeValue() (raw []byte, ok bool) {
	_, def := r.levels()
	r.next++
	if def < r.leaf.def {
		return nil, false
	}
	return r.leafValues.takeRaw(), true
}

// addPosition adds the column, the row group and the page to an error about the content of a
// page. It returns other errors unchanged.
func (r *pageReader) addPosition(err error) error {
	var known *FormatError
	if err == nil || errors.As(err, &known) || r.src.err != nil {
		return err
	}
	return newFormatError("The Parquet file is corrupt: page %d of column %q in row group %d, at byte %d, cannot be read: %v.",
		r.page, r.leaf.path, r.group, r.header, err)
}

// pageTooLargeError returns the error for a page that has size bytes or more.
func (r *pageReader) pageTooLargeError(size int64) error {
	return newFormatError("A page of column %q has %d bytes or more, the limit is %d. Write the Parquet file with smaller pages or row groups.",
		r.leaf.path, size, r.limits.MaxPageBytes)
}

// readPage reads and decodes the next page.
func (r *pageReader) readPage() error {
	r.page, r.header, r.next, r.n = r.page+1, r.at, 0, 0
	var head pageMeta
	if err := r.readHeader(&head); err != nil {
		return r.addPosition(err)
	}
	return r.addPosition(r.readBody(&head))
}

// readHeader decodes the page header at r.at, and moves r.at to the end of the header.
func (r *pageReader) readHeader(head *pageMeta) error {
	for size := int64(pageHeaderStart); ; size *= 8 {
		size = min(size, r.end-r.at)
		r.stored = resize(r.stored, int(size))
		if err := readFull(r.src, r.stored, r.at); err != nil {
			return err
		}
		n, err := checkThrift(r.stored, 64, 1<<20)
		if errors.Is(err, errShort) && size < r.end-r.at && size < pageHeaderMax {
			continue
		}
		if err == nil {
			err = decodeThrift(r.stored[:n], head)
		}
		if err != nil {
			return errors.New("the page header is damaged")
		}
		r.at += int64(n)
		return nil
	}
}

// readBody reads and decodes the body of a page, and moves r.at to the end of the page.
func (r *pageReader) readBody(head *pageMeta) error {
	stored, size := int64(head.CompressedPageSize), int64(head.UncompressedPageSize)
	if stored < 0 || size < 0 || stored > r.end-r.at {
		return fmt.Errorf("the page header says that the page has %d bytes, but the column has only %d more", stored, r.end-r.at)
	}
	if max(size, stored) > r.limits.MaxPageBytes {
		return r.pageTooLargeError(max(size, stored))
	}
	r.stored = resize(r.stored, int(stored))
	if err := readFull(r.src, r.stored, r.at); err != nil {
		return err
	}
	r.at += stored
	if head.CRC.Valid && crc32.ChecksumIEEE(r.stored) != uint32(head.CRC.V) {
		return errors.New("the page's checksum is wrong")
	}
	switch {
	case head.Type == format.DictionaryPage && head.Dictionary.Valid:
		return r.readDictionary(&head.Dictionary.V, int(size))
	case head.Type == format.DataPage && head.Data.Valid:
		return r.readData(&head.Data.V, int(size))
	case head.Type == format.DataPageV2 && head.DataV2.Valid:
		return r.readDataV2(&head.DataV2.V, int(size), !head.DataV2.V.IsCompressed.Valid || head.DataV2.V.IsCompressed.V)
	}
	return errors.New("the type of the page is not known")
}

// readDictionary decodes a dictionary page. size is the size after decompression, in
// bytes.
func (r *pageReader) readDictionary(head *dictionaryMeta, size int) error {
	if r.page != 0 {
		return errors.New("the dictionary page is not the first page of the column")
	}
	if head.Encoding != format.Plain && head.Encoding != oldDictionary {
		return fmt.Errorf("a dictionary page has the encoding %v, which the format does not allow", head.Encoding)
	}
	if err := r.checkValueCount(head.NumValues, false); err != nil {
		return err
	}
	plain := make([]byte, size) // a new buffer, because all pages of the chunk use the dictionary
	if err := r.unpack(r.codec, plain, r.stored); err != nil {
		return errPacked
	}
	values, err := plainValues(new([]byte), plain, int(head.NumValues), r.leaf.element.Type.V, r.leaf.valueWidth())
	if err != nil {
		return err
	}
	r.dictionary = &values
	if values.width != byteArray {
		return nil
	}
	values.starts = make([]uint32, head.NumValues)
	for i := range values.starts {
		values.starts[i] = uint32(values.at)
		values.takeRaw()
	}
	return nil
}

// readData decodes a data page of version 1. size is the size after decompression, in
// bytes.
func (r *pageReader) readData(head *dataPageMeta, size int) (err error) {
	if err := r.checkValueCount(head.NumValues, true); err != nil {
		return err
	}
	data := r.stored
	if r.codec != format.Uncompressed {
		r.plain = resize(r.plain, size)
		if err := r.unpack(r.codec, r.plain, r.stored); err != nil {
			return errPacked
		}
		data = r.plain
	} else if len(data) != size {
		return errPacked
	}
	n := int(head.NumValues)
	if r.rep, data, err = r.decodeLevelsV1(r.rep, data, head.RepetitionLevel, n, r.leaf.rep); err != nil {
		return fmt.Errorf("repetition levels: %w", err)
	}
	if r.def, data, err = r.decodeLevelsV1(r.def, data, head.DefinitionLevel, n, r.leaf.def); err != nil {
		return fmt.Errorf("definition levels: %w", err)
	}
	_, err = r.startPage(data, head.Encoding, n)
	return err
}

// readDataV2 decodes a data page of version 2. size is the size after decompression, in
// bytes.
func (r *pageReader) readDataV2(head *dataPageV2Meta, size int, compressed bool) (err error) {
	if err := r.checkValueCount(head.NumValues, true); err != nil {
		return err
	}
	rep, def := int(head.RepetitionLength), int(head.DefinitionLength)
	if rep < 0 || def < 0 || rep+def > min(len(r.stored), size) {
		return fmt.Errorf("repetition levels of %d bytes and definition levels of %d bytes do not fit into %d bytes", rep, def, min(len(r.stored), size))
	}
	data := r.stored[rep+def:]
	if compressed && r.codec != format.Uncompressed {
		r.plain = resize(r.plain, size-rep-def)
		if err := r.unpack(r.codec, r.plain, data); err != nil {
			return errPacked
		}
		data = r.plain
	} else if len(r.stored) != size {
		return errPacked
	}
	n := int(head.NumValues)
	if r.rep, err = decodeLevels(r.rep, r.stored[:rep], n, r.leaf.rep); err != nil {
		return fmt.Errorf("repetition levels: %w", err)
	}
	if r.def, err = decodeLevels(r.def, r.stored[rep:rep+def], n, r.leaf.def); err != nil {
		return fmt.Errorf("definition levels: %w", err)
	}
	before := r.rows
	nulls, err := r.startPage(data, head.Encoding, n)
	switch rows := before - r.rows; {
	case err != nil:
		return err
	case head.NumNulls >= 0 && int(head.NumNulls) != nulls: // parquet-java may write -1
		return fmt.Errorf("the page header says that the page has %d nulls, but it has %d", head.NumNulls, nulls)
	case int64(head.NumRows) != rows && int(head.NumRows) != n: // some programs write the number of values here
		return fmt.Errorf("the page header says that the page has %d rows, but it has %d", head.NumRows, rows)
	}
	return nil
}

// checkValueCount checks the number of values in a page header before memory is allocated
// for them. isDataPage is true for a data page.
func (r *pageReader) checkValueCount(n int32, isDataPage bool) error {
	if n < 0 || isDataPage && int64(n) > r.values {
		return fmt.Errorf("the page header says that the page has %d values, but the row group has only %d more", n, r.values)
	}
	if int(n) > r.limits.MaxPageValues {
		return newFormatError("A page of column %q has %d values, more than %d. Write the Parquet file with smaller pages or row groups.",
			r.leaf.path, n, r.limits.MaxPageValues)
	}
	return nil
}

// decodeLevelsV1 decodes n levels from 0 to highest at the front of a data page of version 1.
// It uses the memory of dst if that is large enough. It returns the levels and the
// bytes after them.
func (r *pageReader) decodeLevelsV1(dst, data []byte, encoding format.Encoding, n, highest int) (levels, rest []byte, err error) {
	if highest == 0 {
		return nil, data, nil
	}
	switch encoding {
	case format.RLE:
		b, rest, err := splitPrefixed(data)
		if err != nil {
			return nil, nil, err
		}
		levels, err = decodeLevels(dst, b, n, highest)
		return levels, rest, err
	case format.BitPacked:
		return decodeBitPacked(dst, data, n, highest)
	}
	return nil, nil, fmt.Errorf("the encoding %v is not supported", encoding)
}

// startPage decodes the values of a page, after its levels were decoded. n is the number of
// values, nulls included. startPage returns the number of nulls.
func (r *pageReader) startPage(data []byte, encoding format.Encoding, n int) (nulls int, err error) {
	rows := int64(n)
	for _, level := range r.rep {
		if level > 0 {
			rows--
		}
	}
	for _, level := range r.def {
		if int(level) < r.leaf.def {
			nulls++
		}
	}
	if rows > r.rows {
		return 0, fmt.Errorf("the page has %d rows, but the row group has only %d more", rows, r.rows)
	}
	if r.leafValues, err = r.decodeValues(data, encoding, n-nulls); err != nil {
		return 0, err
	}
	r.n = n
	r.values -= int64(n)
	r.rows -= rows
	return nulls, nil
}
