package ingest

import (
	"context"
	"fmt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results/archive"
)

// mustCount reports whether the tokens of a job's input must be counted: for an estimate,
// or to reserve the cost. For a token quota an upper bound for each row is enough, as
// long as the sum is within the quota.
func mustCount(spec *rowmill.Spec) bool { return spec.Estimate || spec.CostQuota != nil }

// bounded makes the counter use upper bounds for the tokens of rows, unless it must count
// them. Bounds are fast. When their sum exceeds the quota, the counter counts all further
// rows, and recount must count the earlier rows.
func (t *inputCounter) bounded() *inputCounter {
	t.useBounds.Store(!mustCount(t.spec))
	return t
}

// bound returns the upper bound for a row's tokens; enough is false if the row must be
// counted.
func (t *inputCounter) bound(text string) (n int, enough bool) {
	if !t.useBounds.Load() {
		return 0, false
	}
	n = t.counter.AtMost(text)
	return n, t.limit == 0 || n <= t.limit
}

// within takes the sum of all tokens so far. It reports whether bounds are still enough:
// the sum is within the quota.
func (t *inputCounter) within(tokens int64) bool {
	if quota := t.spec.TokenQuota; quota > 0 && tokens > quota {
		t.useBounds.Store(false)
	}
	return t.useBounds.Load()
}

// uncounted returns the sum of the upper bounds, in tokens, of the rows that are not
// counted yet.
func (t *inputCounter) uncounted() int64 {
	if t.useBounds.Load() {
		return 0
	}
	return t.boundedTokens
}

// recount counts the first rows, which have only bounds so far, if the sum of all rows
// exceeded the quota. counted has the result for all rows.
func (g *ingester) recount(ctx context.Context, m *shard.Manifest, counted *inputCounter) error {
	if counted.useBounds.Load() || counted.boundedRows == 0 {
		return nil
	}
	again := newInputCounter(g.counter, &g.spec, 0)
	again.compute = g.Compute
	again.begin(ctx)
	err := g.eachRow(ctx, m, counted.boundedRows, again)
	size, failure := again.close()
	if failure != nil {
		return failure
	}
	if err != nil {
		return fmt.Errorf("count tokens: %w", err)
	}
	m.Size.Tokens += size.Tokens - counted.boundedTokens
	if m.Size.Tokens > g.spec.TokenQuota {
		return tooManyTokens(m.Size.Tokens, m.Rows-1, &g.spec)
	}
	return nil
}

// eachRow passes the first rows of a job, from its shards, to a counter.
func (g *ingester) eachRow(ctx context.Context, m *shard.Manifest, rows int64, to *inputCounter) error {
	for n := 0; n < len(m.Shards) && m.Shards[n].First < rows && to.err() == nil; n++ {
		info := m.Shards[n]
		if err := g.eachOf(ctx, n, info, int(min(int64(info.Rows), rows-info.First)), to); err != nil {
			return err
		}
	}
	return nil
}

// eachOf passes the first rows of shard n to a counter, without copies.
func (g *ingester) eachOf(ctx context.Context, n int, info shard.Info, rows int, to *inputCounter) error {
	r, err := archive.OpenShard(ctx, g.Bucket, g.id, &g.spec, n, info)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // opened for reading only
	for at := 0; at < rows && to.err() == nil; {
		block, err := r.ReadBlock(r.BlockOf(at))
		if err != nil {
			return err
		}
		for ; at < min(rows, block.First+block.Rows()); at++ {
			if skip := g.copies.of(n); skip != nil && skip.Contains(uint32(at)) { //nolint:gosec // position in a shard
				continue
			}
			if err := to.addRow(info.First+int64(at), block.Text(at)); err != nil {
				return err
			}
		}
	}
	return nil
}
