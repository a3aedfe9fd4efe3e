package blob

import (
	"bufio"
	"context"
	"io"
)

// writeBuffer is the size in bytes of the buffer that the function Write uses.
const writeBuffer = 64 << 10

// Write creates an object, calls write to write its content through a buffer, and
// commits the object. If write fails, no object appears.
func Write(ctx context.Context, b Bucket, key, contentType string, write func(io.Writer) error) (ObjectInfo, error) {
	w, err := b.Create(ctx, key, contentType)
	if err != nil {
		return ObjectInfo{}, err
	}
	defer w.Abort()
	buffered := bufio.NewWriterSize(w, writeBuffer)
	if err := write(buffered); err != nil {
		return ObjectInfo{}, err
	}
	if err := buffered.Flush(); err != nil {
		return ObjectInfo{}, err
	}
	return w.Commit()
}

// CopyContent copies the content of the object key in from to the object toKey in to.
func CopyContent(ctx context.Context, from Bucket, key string, to Bucket, toKey, contentType string) error {
	source, err := from.Open(ctx, key)
	if err != nil {
		return err
	}
	defer source.Close()
	_, err = Write(ctx, to, toKey, contentType, func(w io.Writer) error {
		_, err := io.Copy(w, NewReader(source))
		return err
	})
	return err
}
