package storage

import (
	"context"
	"fmt"

	"github.com/rowmill/rowmill/blob"
)

// A requestsBucket fails calls at once during an outage.
type requestsBucket struct{ *watchedBucket }

// known returns the reason why a call would fail; nil if it may succeed. A full bucket
// can be read.
func (b requestsBucket) known(kind string) error {
	outage, away := b.place.outage()
	if !away || outage.Full && kind == reads {
		return nil
	}
	return fmt.Errorf("object storage could not be used for %v: %w", outage.Lasts, outage.Err)
}

func (b requestsBucket) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	if err := b.known(writes); err != nil {
		return nil, err
	}
	return b.watchedBucket.Create(ctx, key, contentType)
}

func (b requestsBucket) Open(ctx context.Context, key string) (blob.Object, error) {
	if err := b.known(reads); err != nil {
		return nil, err
	}
	return b.watchedBucket.Open(ctx, key)
}

func (b requestsBucket) Stat(ctx context.Context, key string) (blob.Info, error) {
	if err := b.known(reads); err != nil {
		return blob.Info{}, err
	}
	return b.watchedBucket.Stat(ctx, key)
}

func (b requestsBucket) List(ctx context.Context, prefix string) ([]blob.Info, error) {
	if err := b.known(reads); err != nil {
		return nil, err
	}
	return b.watchedBucket.List(ctx, prefix)
}

func (b requestsBucket) DeletePrefix(ctx context.Context, prefix string) error {
	if err := b.known(reads); err != nil {
		return err
	}
	return b.watchedBucket.DeletePrefix(ctx, prefix)
}
