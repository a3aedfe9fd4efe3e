package redis

import (
	"context"

	"github.com/rowmill/rowmill/store/kv"
)

// Damage changes a byte of a stored value.
func (e *Backend) Damage(ctx context.Context, table kv.Table, key []byte, at int) error {
	name := e.config.Prefix + "t:" + string(table)
	stored, err := e.client.HGet(ctx, name, string(key)).Bytes()
	if err != nil {
		return err
	}
	stored[at] ^= 1
	return e.client.HSet(ctx, name, string(key), stored).Err()
}
