package input

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
)

// gzipBuffer is how many compressed bytes are read at a time.
const gzipBuffer = 128 << 10

// text is a text file, compressed or not.
type text struct {
	*bufio.Reader // the decompressed text
	head          []byte
	file          *sourceReader
	gzip          bool         // the client compressed the file
	inflater      *gzip.Reader // nil if the file is not compressed
	limits        Limits
}

// sourceReader records the errors of the source, so that the caller can
// distinguish them from errors of the data.
type sourceReader struct {
	io.Reader
	err error
}

func (r *sourceReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// inflateLimiter fails when a file decompresses to too many bytes.
type inflateLimiter struct {
	io.Reader
	left int64
}

var errInflated = errors.New("the file unpacks to too much")

func (r *inflateLimiter) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if r.left -= int64(n); r.left < 0 {
		return 0, errInflated
	}
	return n, err
}

func openText(r *sourceReader, packed packed, limits Limits) (*text, error) {
	t := &text{file: r, gzip: packed == packedGzip, limits: limits}
	var src io.Reader = t.file
	if t.gzip {
		var err error
		if t.inflater, err = gzip.NewReader(bufio.NewReaderSize(t.file, gzipBuffer)); err != nil {
			return nil, t.failure(err)
		}
		src = &inflateLimiter{Reader: t.inflater, left: limits.MaxInflatedBytes}
		t.gzip = t.inflater.Comment != compressedHere
	}
	t.Reader = bufio.NewReaderSize(src, sniffBytes)
	var err error
	if t.head, err = t.Peek(sniffBytes); err != nil && !errors.Is(err, io.EOF) {
		return nil, t.failure(err)
	}
	if t.inflater == nil {
		return t, nil // sniff checked the first bytes before
	}
	switch {
	case isParquet(t.head):
		return nil, invalid("The input is a Parquet file compressed with gzip. Upload the Parquet file itself; it is compressed inside.")
	case isGzip(t.head):
		return nil, invalid("The input is compressed with gzip twice. Compress it once.")
	}
	return t, rejectOther(t.head)
}

// failure returns an error that names the fault of the file, or says that
// reading failed.
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
		t.inflater.Close() //nolint:errcheck // Read returned the same error
	}
}
