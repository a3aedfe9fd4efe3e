package openai

// A source returns the bytes of a body in order, without copying them.
type source interface {
	// window returns the next bytes, at least one. They are valid until the next call.
	// io.EOF means that the body is complete.
	window() ([]byte, error)
}
