package blob

// Appender is a Writer that can append byte ranges of other objects in its bucket.
type Appender interface {
	Writer
	// Expect announces the approximate final size of the object, so that the
	// bucket can plan for it. It must be called before the first write. The
	// final size may differ.
	Expect(size int64)
	// Append appends size bytes of an open object of the same bucket, from offset on,
	// as Write would. The range must lie within the object. If the storage can copy
	// bytes itself, they do not pass through this process. If the object is replaced or
	// deleted meanwhile, Append either fails with ErrLost or rowmill.ErrNotFound, or
	// appends the version that was opened. After an error of Append, Commit fails too.
	Append(o Object, offset, size int64) error
}
