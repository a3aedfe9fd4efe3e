package cluster

import (
	"context"

	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/redis"
)

// openStore opens the records in Redis, without a node.
func (c *Cluster) openStore(ctx context.Context) (store.Store, error) {
	return redis.Open(ctx, redis.Config{URL: c.redisURL(), AllowLostWrites: c.config.Sentinels})
}
