package input

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	// packedBuffer is the size of the buffer for compressed input, in bytes.
	packedBuffer = 128 << 10
	// maxZstdWindow limits the memory for a zstd file, in bytes. The zstd program needs more
	// only for the levels above 20.
	maxZstdWindow = 32 << 20
)

// textReader reads a text file and decompresses it if needed.
type textReader struct {
	*bufio.Reader                    // the decompressed text
	head          []byte             // first bytes of the decompressed text, for the detection of the format
	file          *errTrackingReader // the file as stored
	packed        string             // name of the compression, if the client compressed the file; empty if not, or if this program did
	inflater      io.ReadCloser      // nil if the file is not compressed
	limits        Limits
}

// errTrackingReader records the read errors of the source, so that the caller can tell them
// from faults in the data.
type errTrackingReader struct {
	io.Reader
	size int64 // size of the file in bytes; 0 if unknown
	err  error
}

// bufferSize returns the size of a buffer for a text. It is limit, or less if the whole text is
// shorter. A job can have many small files open at the same time.
func (t *textReader) bufferSize(limit int) int {
	if t.inflater != nil || t.file.size == 0 {
		return limit
	}
	return int(min(int64(limit), t.file.size+1))
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
// unsupported format, and ErrEmpty as Options.MayBeEmpty says.
func openText(r *errTrackingReader, detected containerKind, opts Options) (*textReader, error) {
	t := &textReader{file: r, limits: opts.Limits}
	var src io.Reader = t.file
	if detected != containerNone {
		if err := t.inflate(detected); err != nil {
			return nil, t.convertReadError(err)
		}
		src = &inflateLimiter{Reader: t.inflater, left: opts.Limits.MaxInflatedBytes}
	}
	t.Reader = bufio.NewReaderSize(src, sniffBytes)
	var err error
	if t.head, err = t.Peek(sniffBytes); err != nil && !errors.Is(err, io.EOF) {
		return nil, t.convertReadError(err)
	}
	if opts.MayBeEmpty && firstNonBlankByte(t.head) == 0 && len(t.head) < sniffBytes {
		t.close()
		return nil, ErrEmpty
	}
	if t.inflater == nil {
		return t, nil // sniff has already checked the first bytes of an uncompressed file
	}
	switch {
	case isParquet(t.head):
		return nil, invalidFileError("The input is a Parquet file compressed with %s. Upload the Parquet file itself; it is compressed inside.", t.packed)
	case isGzip(t.head), isZstd(t.head):
		return nil, invalidFileError("The input is compressed twice. Compress it once.")
	}
	return t, rejectUnsupported(t.head)
}

// inflate sets the reader that decompresses the file.
func (t *textReader) inflate(detected containerKind) error {
	packed := bufio.NewReaderSize(t.file, packedBuffer)
	if detected == containerZstd {
		t.packed = "zstd"
		r, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err == nil {
			t.inflater = r.IOReadCloser()
		}
		return err
	}
	t.packed = "gzip"
	r, err := gzip.NewReader(packed)
	if err != nil {
		return err
	}
	if t.inflater = r; r.Comment == compressedHere {
		t.packed = ""
	}
	return nil
}

// convertReadError converts an error of reading the text. It returns a *rowmill.Failure if the
// file is at fault, otherwise an error that says that reading failed.
func (t *textReader) convertReadError(err error) error {
	switch {
	case t.file.err != nil:
		return fmt.Errorf("read the input: %w", t.file.err)
	case errors.Is(err, errInflated):
		return invalidFileError("The compressed input unpacks to more than %d bytes. Split it into several jobs.", t.limits.MaxInflatedBytes)
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return invalidFileError("The zstd-compressed input needs a window of more than %d bytes. Compress it with a level up to 19, and without --long.", maxZstdWindow)
	case t.packed != "":
		return invalidFileError("The %s-compressed input is truncated or damaged (%v). Compress and upload it again.", t.packed, err)
	}
	return fmt.Errorf("read the input: %w", err)
}

func (t *textReader) close() {
	if t.inflater != nil {
		_ = t.inflater.Close() // Read returned the same error
	}
}
