package openai

// A windowSource returns the bytes of a body in order, without copying them.
type windowSource interface {
	// nextWindow returns the next bytes, at least one. They are valid until the next call.
	// The error io.EOF means that all bytes were returned.
	nextWindow() ([]byte, error)
}
