package blobtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
)

// Copy copies all objects from one bucket to another, as rclone copy does. It skips
// objects that are deleted or replaced meanwhile, and objects that the bucket to
// already has with the same size.
func Copy(ctx context.Context, from, to blob.Bucket) error {
	there, err := from.List(ctx, "")
	if err != nil {
		return err
	}
	copied, err := to.List(ctx, "")
	if err != nil {
		return err
	}
	sizes := make(map[string]int64, len(copied))
	for _, info := range copied {
		sizes[info.Key] = info.Size
	}
	for _, info := range there {
		if size, exists := sizes[info.Key]; exists && size == info.Size {
			continue
		}
		err := blob.CopyContent(ctx, from, info.Key, to, info.Key, "")
		if err != nil && !errors.Is(err, rowmill.ErrNotFound) && !errors.Is(err, blob.ErrLost) {
			return fmt.Errorf("copy %s: %w", info.Key, err)
		}
	}
	return nil
}

// Prune removes from the bucket target the objects that no longer exist in from.
func Prune(ctx context.Context, from, target blob.Bucket) error {
	there, err := from.List(ctx, "")
	if err != nil {
		return err
	}
	exists := make(map[string]bool, len(there))
	for _, info := range there {
		exists[info.Key] = true
	}
	all, err := target.List(ctx, "")
	for _, info := range all {
		if err == nil && !exists[info.Key] {
			err = target.Delete(ctx, info.Key)
		}
	}
	return err
}
