package openai

// A source hands out the bytes of a body in order, without copying them.
type source interface {
	// window returns the next bytes, at least one. They are valid until the
	// next call. io.EOF says that the body has ended where it should.
	window() ([]byte, error)
}
