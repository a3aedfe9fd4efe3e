package input

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
)

// gzipBuffer is how much compressed data is read at a time, in bytes.
const gzipBuffer = 128 << 10

// text is a file of text, compressed or not.
type text struct {
	*bufio.Reader // what it holds, unpacked
	head          []byte
	file          *failingReader
	gzip          bool         // by the client
	inflater      *gzip.Reader // nil unless compressed, by whomever
	limits        Limits
}

// failingReader remembers the source's own failures, to tell them from those
// of the data.
type failingReader struct {
	io.Reader
	err error
}

func (r *failingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// inflated stops a file that unpacks to too much.
type inflated struct {
	io.Reader
	left int64
}

var errInflated = errors.New("the file unpacks to too much")

func (r *inflated) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if r.left -= int64(n); r.left < 0 {
		return 0, errInflated
	}
	return n, err
}

func openText(r *failingReader, packed packed, limits Limits) (*text, error) {
	t := &text{file: r, gzip: packed == packedGzip, limits: limits}
	var src io.Reader = t.file
	if t.gzip {
		var err error
		if t.inflater, err = gzip.NewReader(bufio.NewReaderSize(t.file, gzipBuffer)); err != nil {
			return nil, t.failure(err)
		}
		src = &inflated{Reader: t.inflater, left: limits.MaxInflatedBytes}
		t.gzip = t.inflater.Comment != compressedHere
	}
	t.Reader = bufio.NewReaderSize(src, sniffBytes)
	var err error
	if t.head, err = t.Peek(sniffBytes); err != nil && !errors.Is(err, io.EOF) {
		return nil, t.failure(err)
	}
	if t.inflater == nil {
		return t, nil // it was looked at before
	}
	switch {
	case isParquet(t.head):
		return nil, invalid("The input is a Parquet file compressed with gzip. Upload the Parquet file itself; it is compressed inside.")
	case isGzip(t.head):
		return nil, invalid("The input is compressed with gzip twice. Compress it once.")
	}
	return t, refuse(t.head)
}

// failure says what is wrong with the file, or that reading it failed.
func (t *text) failure(err error) error {
	switch {
	case t.file.err != nil:
		return fmt.Errorf("read the input: %w", t.file.err)
	case errors.Is(err, errInflated):
		return invalid("The gzip-compressed input unpacks to more than %d bytes. Split it into several jobs.", t.limits.MaxInflatedBytes)
	case t.gzip:
		return invalid("The gzip-compressed input is truncated or damaged (%v). Compress and upload it again.", err)
	}
	return fmt.Errorf("read the input: %w", err)
}

func (t *text) close() {
	if t.inflater != nil {
		t.inflater.Close() //nolint:errcheck // it repeats the error of Read
	}
}
