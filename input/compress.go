package input

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
)

const (
	// compressLevel is the level of gzip at which texts are kept. Of a CSV file of
	// prose 1 leaves 0.33, 2 leaves 0.31 for a tenth more time, 4 leaves 0.30.
	compressLevel = 2

	// compressedHere is the comment by which a file is known that the client did
	// not compress.
	compressedHere = "rowmill"
)

// A Compressor writes a file as it is kept: a text under gzip, and as it is what
// is compressed, or is no input at all. Open makes the same of it.
type Compressor struct {
	w     io.Writer // beneath
	head  []byte    // until there is enough of it
	to    io.Writer // nil until then
	inner *gzip.Writer
}

// NewCompressor returns a Compressor that writes to w, which is the caller's.
func NewCompressor(w io.Writer) *Compressor { return &Compressor{w: w} }

// Write appends to the file.
func (c *Compressor) Write(p []byte) (n int, err error) {
	if c.to == nil {
		n = min(len(p), sniffBytes-len(c.head))
		if c.head = append(c.head, p[:n]...); len(c.head) < sniffBytes {
			return n, nil
		}
		if err := c.begin(!isParquet(c.head) && !isGzip(c.head) && refuse(c.head) == nil); err != nil {
			return 0, err
		}
		if n == len(p) {
			return n, nil
		}
	}
	more, err := c.to.Write(p[n:])
	return n + more, err
}

// begin writes the head.
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

// Close writes what is left. A file that is too short to tell is kept as it is.
func (c *Compressor) Close() (err error) {
	if c.to == nil {
		err = c.begin(false)
	}
	if c.inner != nil {
		err = errors.Join(err, c.inner.Close())
	}
	return err
}

// Decompress reads a file as it came of what a Compressor has kept of it.
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
	return b, nil // the client's own, whatever it is
}
