package input

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
)

// gzipBuffer is the size of the buffer for compressed input, in bytes.
const gzipBuffer = 128 << 10

// textReader reads a text file and decompresses it if needed.
type textReader struct {
	*bufio.Reader                    // the decompressed text
	head          []byte             // first bytes of the decompressed text, for the detection of the format
	file          *errTrackingReader // the file as stored
	gzip          bool               // true if the client, and not this program, compressed the file
	inflater      *gzip.Reader       // nil if the file is not compressed
	limits        Limits
}

// errTrackingReader records the read errors of the source, so that the caller can tell them
// from faults in the data.
type errTrackingReader struct {
	io.Reader
	err error
}

func (r *errTrackingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// inflateLimiter is a reader of decompressed bytes. It fails if there are more bytes
// than a limit.
type inflateLimiter struct {
	io.Reader
	left int64 // decompressed bytes that may still be read
}

var errInflated = errors.New("the decompressed file is too large")

func (r *inflateLimiter) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if r.left -= int64(n); r.left < 0 {
		return 0, errInflated
	}
	return n, err
}

// openText begins to read a text file. It returns an error if the first bytes show an
// unsupported format.
func openText(r *errTrackingReader, detected containerKind, limits Limits) (*textReader, error) {
	t := &textReader{file: r, gzip: detected == containerGzip, limits: limits}
	var src io.Reader = t.file
	if t.gzip {
		var err error
		if t.inflater, err = gzip.NewReader(bufio.NewReaderSize(t.file, gzipBuffer)); err != nil {
			return nil, t.convertReadError(err)
		}
		src = &inflateLimiter{Reader: t.inflater, left: limits.MaxInflatedBytes}
		t.gzip = t.inflater.Comment != compressedHere
	}
	t.Reader = bufio.NewReaderSize(src, sniffBytes)
	var err error
	if t.head, err = t.Peek(sniffBytes); err != nil && !errors.Is(err, io.EOF) {
		return nil, t.convertReadError(err)
	}
	if t.inflater == nil {
		return t, nil // sniff has already checked the first bytes of an uncompressed file
	}
	switch {
	case isParquet(t.head):
		return nil, invalidFileError("The input is a Parquet file compressed with gzip. Upload the Parquet file itself; it is compressed inside.")
	case isGzip(t.head):
		return nil, invalidFileError("The input is compressed with gzip twice. Compress it once.")
	}
	return t, rejectUnsupported(t.head)
}

// convertReadError converts an error of reading the text. It returns a *rowmill.Failure if the
// file is at fault, otherwise an error that says that reading failed.
func (t *textReader) convertReadError(err error) error {
	switch {
	case t.file.err != nil:
		return fmt.Errorf("read the input: %w", t.file.err)
	case errors.Is(err, errInflated):
		return invalidFileError("The gzip-compressed input unpacks to more than %d bytes. Split it into several jobs.", t.limits.MaxInflatedBytes)
	case t.gzip:
		return invalidFileError("The gzip-compressed input is truncated or damaged (%v). Compress and upload it again.", err)
	}
	return fmt.Errorf("read the input: %w", err)
}

func (t *textReader) close() {
	if t.inflater != nil {
		t.inflater.Close() //nolint:errcheck // Read returned the same error
	}
}
