package blob

// An Appender is a Writer that can take what objects of its bucket hold.
type Appender interface {
	Writer
	// Expect says, before the first byte is written, about how many the object will have
	// in all, so that the bucket can plan for it. The object may have others.
	Expect(size int64)
	// Append appends size bytes, which are there, from offset on of an open object
	// of the same bucket, as Write would. No byte passes through this process where
	// that can be avoided. Where the object is replaced or deleted before it
	// returns it may fail, with ErrLost or rowmill.ErrNotFound, or go on with what
	// was opened; after an error Commit fails too.
	Append(o Object, offset, size int64) error
}
