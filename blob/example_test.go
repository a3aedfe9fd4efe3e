package blob_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/dir"
)

// An object does not exist before it is complete.
func Example() {
	root, err := os.MkdirTemp("", "rowmill-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(root)
	var bucket blob.Bucket
	bucket, err = dir.Open(dir.Config{Root: root})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx := context.Background()
	w, err := bucket.Create(ctx, "jobs/1/note", "text/plain")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Abort()
	if _, err := io.WriteString(w, "a few bytes"); err != nil {
		fmt.Println(err)
		return
	}
	_, err = bucket.Stat(ctx, "jobs/1/note")
	fmt.Println("before:", errors.Is(err, rowmill.ErrNotFound))
	if _, err := w.Commit(); err != nil {
		fmt.Println(err)
		return
	}

	object, err := bucket.Open(ctx, "jobs/1/note")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer object.Close()
	content, err := io.ReadAll(blob.NewReader(object))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("after: %s\n", content)
	// Output:
	// before: true
	// after: a few bytes
}
