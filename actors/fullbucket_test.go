package actors_test

import (
	"context"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/rowmill/rowmill/blob"
)

// A fullBucket has no room for parts while it is on.
type fullBucket struct {
	blob.Bucket
	on      atomic.Bool
	refused atomic.Int64
}

func (b *fullBucket) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	w, err := b.Bucket.Create(ctx, key, contentType)
	if err == nil && b.on.Load() && strings.Contains(key, "/parts/") {
		b.refused.Add(1)
		return fullWriter{w}, nil
	}
	return w, err
}

type fullWriter struct{ blob.Writer }

func (fullWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }
