package input

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
)

const (
	// compressLevel is the gzip level for stored texts. For a CSV file of
	// prose, level 1 compresses to 0.33 of the size; level 2 to 0.31 in a tenth
	// more time; level 4 to 0.30.
	compressLevel = 2

	// compressedHere is the gzip comment of files that this program compressed,
	// not the client.
	compressedHere = "rowmill"
)

// Compressor writes a file in the form that is stored: text is compressed with
// gzip, other files are unchanged. Open reads both forms in the same way.
type Compressor struct {
	w     io.Writer // the underlying writer
	head  []byte    // first bytes, until there are sniffBytes
	to    io.Writer // nil until the form is decided
	inner *gzip.Writer
}

// NewCompressor returns a Compressor that writes to w. The caller closes w.
func NewCompressor(w io.Writer) *Compressor { return &Compressor{w: w} }

// Write appends to the file.
func (c *Compressor) Write(p []byte) (n int, err error) {
	if c.to == nil {
		n = min(len(p), sniffBytes-len(c.head))
		if c.head = append(c.head, p[:n]...); len(c.head) < sniffBytes {
			return n, nil
		}
		if err := c.begin(!isParquet(c.head) && !isGzip(c.head) && rejectOther(c.head) == nil); err != nil {
			return 0, err
		}
		if n == len(p) {
			return n, nil
		}
	}
	more, err := c.to.Write(p[n:])
	return n + more, err
}

// begin decides the form and writes the head.
func (c *Compressor) begin(text bool) (err error) {
	c.to = c.w
	if text {
		if c.inner, err = gzip.NewWriterLevel(c.w, compressLevel); err != nil {
			return err
		}
		c.inner.Comment = compressedHere
		c.to = c.inner
	}
	_, err = c.to.Write(c.head)
	return err
}

// Close writes the rest. A file that is too short to detect is stored
// unchanged.
func (c *Compressor) Close() (err error) {
	if c.to == nil {
		err = c.begin(false)
	}
	if c.inner != nil {
		err = errors.Join(err, c.inner.Close())
	}
	return err
}

// Decompress returns the original file of a file that a Compressor wrote.
func Decompress(kept io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(kept, sniffBytes)
	head, err := b.Peek(sniffBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !isGzip(head) {
		return b, nil
	}
	if peeked, err := gzip.NewReader(bytes.NewReader(head)); err == nil && peeked.Comment == compressedHere {
		return gzip.NewReader(b)
	}
	return b, nil // the client compressed it, or it is not compressed
}
