package openai

import "io"

// A source hands out the bytes of a body in order, without copying them.
type source interface {
	// window returns the next bytes, at least one. They are valid until the
	// next call. io.EOF says that the body has ended where it should.
	window() ([]byte, error)
}

// bytesSource is a body that is already in memory.
type bytesSource struct{ rest []byte }

func (b *bytesSource) window() ([]byte, error) {
	if len(b.rest) == 0 {
		return nil, io.EOF
	}
	win := b.rest
	b.rest = nil
	return win, nil
}
