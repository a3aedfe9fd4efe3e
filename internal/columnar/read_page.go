package columnar

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/parquet-go/parquet-go/format"
)

const (
	// pageHeaderStart is how many bytes are read first to find a page header.
	// Only headers with long minima and maxima are larger.
	pageHeaderStart = 1 << 10
	// pageHeaderMax is the largest page header, in bytes: twice the longest
	// row, because a header can hold the page's minimum and maximum.
	pageHeaderMax = 32 << 20
)

// pageReader reads the values of a leaf in a row group, page by page. It
// decodes and checks the whole page before it returns a value: the page must
// hold exactly the bytes, levels and values that its header claims. No other
// reader uses its buffers, so no value can come from another file.
type pageReader struct {
	src     *source
	limits  *Limits
	leaf    *node
	group   int
	codec   format.CompressionCodec
	at, end int64 // the next page's header, the end of the column chunk
	values  int64 // values in the pages that are not read yet
	rows    int64 // rows that begin in these pages
	page    int   // number of the current page; a dictionary is page 0
	header  int64 // offset of the current page's header

	unpacker
	stored, plain    []byte // the current page, compressed and decompressed
	decoded, lengths []byte // its values, if their encoding is not PLAIN, and their lengths
	index            []uint32
	dictionary       *leafValues

	rep, def []byte // levels of the page's values; nil if all are 0
	leafValues
	next, n int // index of the page's next value, and number of its values, nulls included
}

func newPageReader(f *File, group int, leaf *node) (*pageReader, error) {
	m, err := f.chunk(group, leaf)
	if err != nil {
		return nil, err
	}
	return &pageReader{
		src: f.src, limits: &f.limits, leaf: leaf, group: group, codec: m.Codec,
		at: m.start(), end: m.start() + m.TotalCompressedSize, values: m.NumValues, rows: f.groups[group].NumRows, page: -1,
	}, nil
}

// more reads pages until there is a next value. It returns false at the end of the
// column chunk.
func (r *pageReader) more() (bool, error) {
	for r.next == r.n {
		if r.at == r.end {
			if r.values != 0 || r.rows != 0 {
				return false, badFile("The Parquet file is corrupt: the pages of column %q in row group %d have %d values and %d rows fewer than the row group.",
					r.leaf.path, r.group, r.values, r.rows)
			}
			return false, nil
		}
		if err := r.read(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// need is like more, but the end of the column chunk is an error.
func (r *pageReader) need() error {
	ok, err := r.more()
	if err == nil && !ok {
		err = badFile("The Parquet file is corrupt: column %q ends inside a row of row group %d.", r.leaf.path, r.group)
	}
	return err
}

// levels returns the repetition and the definition level of the next value.
func (r *pageReader) levels() (rep, def int) {
	if r.rep != nil {
		rep = int(r.rep[r.next])
	}
	if r.def != nil {
		def = int(r.def[r.next])
	}
	return rep, def
}

// take returns the next value as PLAIN encodes it: a boolean is one byte, 0 or 1, and
// text has no length before it. ok is false for null. The value is valid until the
// next page is read.
func (r *pageReader) take() (raw []byte, ok bool) {
	_, def := r.levels()
	r.next++
	if def < r.leaf.def {
		return nil, false
	}
	return r.leafValues.take(), true
}

// fail adds column, row group and page to an error about the content of a page.
func (r *pageReader) fail(err error) error {
	var known *FormatError
	if err == nil || errors.As(err, &known) || r.src.err != nil {
		return err
	}
	return badFile("The Parquet file is corrupt: page %d of column %q in row group %d, at byte %d, cannot be read: %v.",
		r.page, r.leaf.path, r.group, r.header, err)
}

func (r *pageReader) tooLarge(size int64) error {
	return badFile("A page of column %q has %d bytes or more, the limit is %d. Write the Parquet file with smaller pages or row groups.",
		r.leaf.path, size, r.limits.MaxPageBytes)
}

// read reads the next page.
func (r *pageReader) read() error {
	r.page, r.header, r.next, r.n = r.page+1, r.at, 0, 0
	var head pageMeta
	if err := r.readHeader(&head); err != nil {
		return r.fail(err)
	}
	return r.fail(r.readBody(&head))
}

// readHeader decodes the header at r.at, and sets r.at to its end.
func (r *pageReader) readHeader(head *pageMeta) error {
	for size := int64(pageHeaderStart); ; size *= 8 {
		size = min(size, r.end-r.at)
		r.stored = sized(r.stored, int(size))
		if err := readFull(r.src, r.stored, r.at); err != nil {
			return err
		}
		n, err := scanThrift(r.stored, 64, 1<<20)
		if errors.Is(err, errShort) && size < r.end-r.at && size < pageHeaderMax {
			continue
		}
		if err == nil {
			err = decodeThrift(r.stored[:n], head)
		}
		if err != nil {
			return errors.New("its header is damaged")
		}
		r.at += int64(n)
		return nil
	}
}

// readBody reads and decodes the page after a header, and sets r.at to its end.
func (r *pageReader) readBody(head *pageMeta) error {
	stored, size := int64(head.CompressedPageSize), int64(head.UncompressedPageSize)
	if stored < 0 || size < 0 || stored > r.end-r.at {
		return fmt.Errorf("its header says that the page has %d bytes, but the column has only %d more", stored, r.end-r.at)
	}
	if max(size, stored) > r.limits.MaxPageBytes {
		return r.tooLarge(max(size, stored))
	}
	r.stored = sized(r.stored, int(stored))
	if err := readFull(r.src, r.stored, r.at); err != nil {
		return err
	}
	r.at += stored
	if head.CRC.Valid && crc32.ChecksumIEEE(r.stored) != uint32(head.CRC.V) {
		return errors.New("its checksum is wrong")
	}
	switch {
	case head.Type == format.DictionaryPage && head.Dictionary.Valid:
		return r.readDictionary(&head.Dictionary.V, int(size))
	case head.Type == format.DataPage && head.Data.Valid:
		return r.readData(&head.Data.V, int(size))
	case head.Type == format.DataPageV2 && head.DataV2.Valid:
		return r.readDataV2(&head.DataV2.V, int(size), !head.DataV2.V.IsCompressed.Valid || head.DataV2.V.IsCompressed.V)
	}
	return errors.New("its type is not known")
}

func (r *pageReader) readDictionary(head *dictionaryMeta, size int) error {
	if r.page != 0 {
		return errors.New("a dictionary is not the first page")
	}
	if head.Encoding != format.Plain && head.Encoding != oldDictionary {
		return fmt.Errorf("a dictionary page has the encoding %v, which the format does not allow", head.Encoding)
	}
	if err := r.checkCount(head.NumValues, false); err != nil {
		return err
	}
	plain := make([]byte, size) // used until the last page is read
	if err := r.unpack(r.codec, plain, r.stored); err != nil {
		return errPacked
	}
	values, err := plainValues(new([]byte), plain, int(head.NumValues), r.leaf.element.Type.V, r.leaf.width())
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
		values.take()
	}
	return nil
}

func (r *pageReader) readData(head *dataPageMeta, size int) (err error) {
	if err := r.checkCount(head.NumValues, true); err != nil {
		return err
	}
	data := r.stored
	if r.codec != format.Uncompressed {
		r.plain = sized(r.plain, size)
		if err := r.unpack(r.codec, r.plain, r.stored); err != nil {
			return errPacked
		}
		data = r.plain
	} else if len(data) != size {
		return errPacked
	}
	n := int(head.NumValues)
	if r.rep, data, err = r.levelsV1(r.rep, data, head.RepetitionLevel, n, r.leaf.rep); err != nil {
		return fmt.Errorf("repetition levels: %w", err)
	}
	if r.def, data, err = r.levelsV1(r.def, data, head.DefinitionLevel, n, r.leaf.def); err != nil {
		return fmt.Errorf("definition levels: %w", err)
	}
	_, err = r.begin(data, head.Encoding, n)
	return err
}

func (r *pageReader) readDataV2(head *dataPageV2Meta, size int, compressed bool) (err error) {
	if err := r.checkCount(head.NumValues, true); err != nil {
		return err
	}
	rep, def := int(head.RepetitionLength), int(head.DefinitionLength)
	if rep < 0 || def < 0 || rep+def > min(len(r.stored), size) {
		return fmt.Errorf("repetition levels of %d bytes and definition levels of %d bytes do not fit into %d bytes", rep, def, min(len(r.stored), size))
	}
	data := r.stored[rep+def:]
	if compressed && r.codec != format.Uncompressed {
		r.plain = sized(r.plain, size-rep-def)
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
	nulls, err := r.begin(data, head.Encoding, n)
	switch rows := before - r.rows; {
	case err != nil:
		return err
	case head.NumNulls >= 0 && int(head.NumNulls) != nulls: // some versions of parquet-java wrote -1
		return fmt.Errorf("its header says that it has %d nulls, but it has %d", head.NumNulls, nulls)
	case int64(head.NumRows) != rows && int(head.NumRows) != n: // some writers count values
		return fmt.Errorf("its header says that it has %d rows, but it has %d", head.NumRows, rows)
	}
	return nil
}

// checkCount checks a number of values before anything is allocated for them.
func (r *pageReader) checkCount(n int32, data bool) error {
	if n < 0 || data && int64(n) > r.values {
		return fmt.Errorf("its header says that it has %d values, but the row group has only %d more", n, r.values)
	}
	if int(n) > r.limits.MaxPageValues {
		return badFile("A page of column %q has %d values, more than %d. Write the Parquet file with smaller pages or row groups.",
			r.leaf.path, n, r.limits.MaxPageValues)
	}
	return nil
}

// levelsV1 decodes n levels up to highest from the front of a data page of version 1,
// into dst if it has room, and returns the bytes after them.
func (r *pageReader) levelsV1(dst, data []byte, encoding format.Encoding, n, highest int) (levels, rest []byte, err error) {
	if highest == 0 {
		return nil, data, nil
	}
	switch encoding {
	case format.RLE:
		b, rest, err := prefixed(data)
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

// begin decodes the values of a page, after its levels. It returns the number of nulls.
func (r *pageReader) begin(data []byte, encoding format.Encoding, n int) (nulls int, err error) {
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
		return 0, fmt.Errorf("it has %d rows, but the row group has only %d more", rows, r.rows)
	}
	if r.leafValues, err = r.decode(data, encoding, n-nulls); err != nil {
		return 0, err
	}
	r.n = n
	r.values -= int64(n)
	r.rows -= rows
	return nulls, nil
}
