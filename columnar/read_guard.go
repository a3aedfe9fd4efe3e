package columnar

import (
	"errors"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

const (
	// pageHeaderStart is how much is read to find a page's header, in bytes.
	// It fits all but headers with long minima and maxima.
	pageHeaderStart = 1 << 10
	// pageHeaderMax bounds a page's header, in bytes: twice the longest row,
	// which may be a page's minimum and its maximum.
	pageHeaderMax = 32 << 20
)

// A pageGuard walks the pages of a column chunk one page ahead of the decoder,
// which believes sizes: it rejects what would not fit the limits.
type pageGuard struct {
	src     *source
	leaf    *node
	limits  *Limits
	codec   format.CompressionCodec
	at, end int64 // the next page's header, the chunk's end
	scratch []byte
}

func newPageGuard(f *File, leaf *node, m *format.ColumnMetaData) *pageGuard {
	at := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		at = m.DictionaryPageOffset
	}
	return &pageGuard{src: f.src, leaf: leaf, limits: &f.limits, codec: m.Codec, at: at, end: at + m.TotalCompressedSize}
}

// next checks everything up to and including the next data page, or the end.
func (g *pageGuard) next() error {
	for g.at < g.end {
		head, err := g.header()
		if err != nil {
			return err
		}
		if err := g.check(head); err != nil {
			return err
		}
		g.at += int64(head.CompressedPageSize)
		if head.Type != format.DictionaryPage {
			return nil
		}
	}
	return nil
}

// header decodes the header at g.at and moves behind it.
func (g *pageGuard) header() (*format.PageHeader, error) {
	for size := int64(pageHeaderStart); ; size *= 8 {
		size = min(size, g.end-g.at)
		b := g.bytes(int(size))
		if err := readFull(g.src, b, g.at); err != nil {
			return nil, err
		}
		n, err := scanThrift(b, 64, 1<<20)
		if errors.Is(err, errShort) && size < g.end-g.at && size < pageHeaderMax {
			continue
		}
		if err != nil {
			return nil, badFile("The Parquet file is corrupt: the page header at byte %d, in column %q, cannot be read (%v).", g.at, g.leaf.path, err)
		}
		head := new(format.PageHeader)
		if err := thrift.Unmarshal(new(thrift.CompactProtocol), b[:n], head); err != nil {
			return nil, badFile("The Parquet file is corrupt: the page header at byte %d, in column %q, cannot be read (%v).", g.at, g.leaf.path, err)
		}
		g.at += int64(n)
		return head, nil
	}
}

func (g *pageGuard) check(h *format.PageHeader) error {
	stored, size := int64(h.CompressedPageSize), int64(h.UncompressedPageSize)
	if stored < 0 || size < 0 || stored > g.end-g.at {
		return badFile("The Parquet file is truncated or corrupt: the page at byte %d, in column %q, claims %d bytes where %d are left.",
			g.at, g.leaf.path, stored, g.end-g.at)
	}
	if size > g.limits.MaxPageBytes || stored > g.limits.MaxPageBytes {
		return g.tooLarge(max(size, stored))
	}
	var values, levels int64
	packed := true
	switch {
	case h.Type == format.DataPage && h.DataPageHeader.Valid:
		values = int64(h.DataPageHeader.V.NumValues)
	case h.Type == format.DataPageV2 && h.DataPageHeaderV2.Valid:
		v2 := &h.DataPageHeaderV2.V
		values = int64(v2.NumValues)
		levels = int64(v2.RepetitionLevelsByteLength) + int64(v2.DefinitionLevelsByteLength)
		if v2.NumNulls < 0 || int64(v2.NumNulls) > values || v2.RepetitionLevelsByteLength < 0 || v2.DefinitionLevelsByteLength < 0 || levels > stored {
			return badFile("The Parquet file is corrupt: the page at byte %d, in column %q, contradicts itself.", g.at, g.leaf.path)
		}
		packed = !v2.IsCompressed.Valid || v2.IsCompressed.V
	case h.Type == format.DictionaryPage && h.DictionaryPageHeader.Valid:
		values = int64(h.DictionaryPageHeader.V.NumValues)
	default:
		return badFile("The Parquet file is corrupt: at byte %d, in column %q, is a page of no known type.", g.at, g.leaf.path)
	}
	if values < 0 || values > int64(g.limits.MaxPageValues) {
		return badFile("A page of column %q has %d values, more than %d. Write the Parquet file with smaller pages or row groups.",
			g.leaf.path, values, g.limits.MaxPageValues)
	}
	if width := g.leaf.width(); width > 0 && values > g.limits.MaxPageBytes/width {
		return g.tooLarge(values * width)
	}
	if !packed || g.codec == format.Uncompressed {
		return nil
	}
	b := g.bytes(int(stored - levels))
	if err := readFull(g.src, b, g.at+levels); err != nil {
		return err
	}
	size, err := unpackedSize(g.codec, b, g.limits.MaxPageBytes)
	if err != nil {
		return badFile("The Parquet file is corrupt: the page at byte %d, in column %q, cannot be decompressed (%v).", g.at, g.leaf.path, err)
	}
	if size > g.limits.MaxPageBytes {
		return g.tooLarge(size)
	}
	return nil
}

func (g *pageGuard) tooLarge(size int64) error {
	return badFile("A page of column %q has %d bytes or more, the limit is %d. Write the Parquet file with smaller pages or row groups.",
		g.leaf.path, size, g.limits.MaxPageBytes)
}

// bytes returns n bytes of scratch space.
func (g *pageGuard) bytes(n int) []byte {
	if cap(g.scratch) < n {
		g.scratch = make([]byte, n+n/4)
	}
	return g.scratch[:n]
}
