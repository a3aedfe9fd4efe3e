package ingest

import (
	"context"
	"fmt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results/archive"
)

// mustCount reports whether the exact tokens of the input are needed: for an estimate,
// or to reserve the cost. For a token quota, an upper bound for each row is enough as
// long as the sum of the bounds is within the quota.
func mustCount(spec *rowmill.Spec) bool { return spec.Estimate || spec.CostQuota != nil }

// enableBounds makes the counter use upper bounds for the tokens of rows, unless the job
// needs exact counts. Bounds are fast to compute. When their sum exceeds the quota, the
// counter counts all further rows, and recount must count the earlier rows.
func (t *inputTokenCounter) enableBounds() *inputTokenCounter {
	t.useBounds.Store(!mustCount(t.spec))
	return t
}

// bound returns an upper bound for the tokens of a row. enough is false if the row must
// be counted.
func (t *inputTokenCounter) bound(text string) (n int, enough bool) {
	if !t.useBounds.Load() {
		return 0, false
	}
	n = t.counter.CountUpperBound(text)
	return n, t.limit == 0 || n <= t.limit
}

// boundsSuffice reports whether upper bounds are still enough: tokens, the sum of all bounds
// so far, is within the quota. Otherwise the counter counts all further rows.
func (t *inputTokenCounter) boundsSuffice(tokens int64) bool {
	if quota := t.spec.TokenQuota; quota > 0 && tokens > quota {
		t.useBounds.Store(false)
	}
	return t.useBounds.Load()
}

// uncounted returns the sum of the upper bounds of rows that must still be counted, in
// tokens. It is 0 while bounds are enough.
func (t *inputTokenCounter) uncounted() int64 {
	if t.useBounds.Load() {
		return 0
	}
	return t.boundedTokens
}

// recount counts the first rows of the input, which have only upper bounds so far, if
// the sum of the bounds exceeded the quota. It corrects m.Tokens. counted is the counter
// of the whole input.
func (g *ingester) recount(ctx context.Context, m *shard.Manifest, counted *inputTokenCounter) error {
	if counted.useBounds.Load() || counted.boundedRows == 0 {
		return nil
	}
	again := newInputCounter(g.counter, &g.spec)
	again.compute = g.Compute
	again.begin(ctx)
	err := g.countFirstRows(ctx, m, counted.boundedRows, again)
	tokens, failure := again.close()
	if failure != nil {
		return failure
	}
	if err != nil {
		return fmt.Errorf("count tokens: %w", err)
	}
	m.Tokens += tokens - counted.boundedTokens
	if m.Tokens > g.spec.TokenQuota {
		return tokenQuotaFailure(m.Tokens, m.Rows-1, &g.spec)
	}
	return nil
}

// countFirstRows adds the first rows of the job, read from its shards, to a counter.
func (g *ingester) countFirstRows(ctx context.Context, m *shard.Manifest, rows int64, to *inputTokenCounter) error {
	for n := 0; n < len(m.Shards) && m.Shards[n].First < rows && to.err() == nil; n++ {
		info := m.Shards[n]
		if err := g.countShardRows(ctx, n, info, int(min(int64(info.Rows), rows-info.First)), to); err != nil {
			return err
		}
	}
	return nil
}

// countShardRows adds the first rows of shard n to a counter, except rows that are copies.
func (g *ingester) countShardRows(ctx context.Context, n int, info shard.ManifestEntry, rows int, to *inputTokenCounter) error {
	r, err := archive.OpenShard(ctx, g.Bucket, g.id, &g.spec, n, info)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // opened only for reading
	for at := 0; at < rows && to.err() == nil; {
		block, err := r.ReadBlock(r.BlockOf(at))
		if err != nil {
			return err
		}
		for ; at < min(rows, block.First+block.Rows()); at++ {
			if skip := g.copies.shardCopies(n); skip != nil && skip.Contains(uint32(at)) { //nolint:gosec // position in a shard
				continue
			}
			if err := to.addRow(info.First+int64(at), block.Text(at)); err != nil {
				return err
			}
		}
	}
	return nil
}
