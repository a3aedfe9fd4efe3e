package results

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/klauspost/compress/flate"

	"github.com/rowmill/rowmill/internal/columnar"
)

// WriteCSVZip streams variant v of the full file as a ZIP archive with one CSV file,
// <job_id>.csv (RFC 4180, lines end in CRLF). A null, such as the output of a failed
// row, is an empty cell without quotes. An empty text is "". An embedding is a JSON
// array.
func WriteCSVZip(ctx context.Context, w io.Writer, full Source, s Schema, v FileVariant) error {
	archive := zip.NewWriter(w)
	archive.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(w, flate.BestSpeed) // the default level takes twice the time
	})
	file, err := archive.Create(s.JobID + ".csv")
	if err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	if err := writeCSV(ctx, file, full, s, v); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}

// writeCSV writes variant v of the full file as CSV.
func writeCSV(ctx context.Context, w io.Writer, full Source, s Schema, v FileVariant) error {
	e, err := newExporter(ctx, w, full, s, v)
	if err != nil {
		return err
	}
	for c, column := range e.columns {
		if c > 0 {
			e.buf = append(e.buf, ',')
		}
		e.buf = appendCSVCell(e.buf, []byte(column.Name))
	}
	e.buf = append(e.buf, "\r\n"...)
	err = e.each(e.tablePositions, func(b *columnar.RowBlock, i int) {
		for c := range e.columns {
			if c > 0 {
				e.buf = append(e.buf, ',')
			}
			if !b.IsNull(c, i) {
				e.appendValue(b, c, c, i, false)
			}
		}
		e.buf = append(e.buf, "\r\n"...)
	})
	if err != nil {
		return err
	}
	return e.flush()
}

// appendCSVCell appends a text cell to b. It quotes the cell if RFC 4180 requires quotes.
// It also quotes an empty text, because an empty cell without quotes is a null.
func appendCSVCell(b, s []byte) []byte {
	if len(s) > 0 && bytes.IndexByte(s, ',') < 0 && bytes.IndexByte(s, '"') < 0 &&
		bytes.IndexByte(s, '\n') < 0 && bytes.IndexByte(s, '\r') < 0 {
		return append(b, s...)
	}
	b = append(b, '"')
	for {
		i := bytes.IndexByte(s, '"')
		if i < 0 {
			return append(append(b, s...), '"')
		}
		b = append(append(b, s[:i]...), '"', '"')
		s = s[i+1:]
	}
}
