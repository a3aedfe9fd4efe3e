package blobtest

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
)

// Copy copies all objects that are there from one bucket to another, as rclone
// copy does: one that goes or is replaced meanwhile is left out.
func Copy(ctx context.Context, from, to blob.Bucket) error {
	there, err := from.List(ctx, "")
	if err != nil {
		return err
	}
	for _, info := range there {
		err := copyOne(ctx, from, to, info.Key)
		if err != nil && !errors.Is(err, rowmill.ErrNotFound) && !errors.Is(err, blob.ErrLost) {
			return fmt.Errorf("copy %s: %w", info.Key, err)
		}
	}
	return nil
}

func copyOne(ctx context.Context, from, to blob.Bucket, key string) error {
	object, err := from.Open(ctx, key)
	if err != nil {
		return err
	}
	defer func() { _ = object.Close() }() // it was only read
	w, err := to.Create(ctx, key, "")
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := io.Copy(w, blob.NewReader(object)); err != nil {
		return err
	}
	_, err = w.Commit()
	return err
}
