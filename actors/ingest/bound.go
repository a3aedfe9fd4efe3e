package ingest

import (
	"context"
	"fmt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results/archive"
)

// counts reports whether the tokens of a job's input have to be counted in any
// case: for an estimate, or to reserve what it may cost. For a quota of tokens the
// most that a row can have is enough, as long as that is within the quota.
func counts(spec *rowmill.Spec) bool { return spec.Estimate || spec.CostQuota != nil }

// bounded makes the counter take every row for as many tokens as it can have at
// most, which is quick, until those are more than the quota. From there on it
// counts; recount has to count the rows before.
func (t *inputCounter) bounded() *inputCounter {
	t.rough.Store(!counts(t.spec))
	return t
}

// bound is the most tokens that a row can have, where that is enough to know.
func (t *inputCounter) bound(text string) (n int, enough bool) {
	if !t.rough.Load() {
		return 0, false
	}
	n = t.counter.AtMost(text)
	return n, t.limit == 0 || n <= t.limit
}

// within reports whether bounds are enough still: that many tokens are within the
// quota.
func (t *inputCounter) within(tokens int64) bool {
	if quota := t.spec.TokenQuota; quota > 0 && tokens > quota {
		t.rough.Store(false)
	}
	return t.rough.Load()
}

// head is what was added for the rows that have to be counted yet.
func (t *inputCounter) head() int64 {
	if t.rough.Load() {
		return 0
	}
	return t.roughTokens
}

// recount counts the rows that were taken for as many tokens as they can have at
// most, where that was too much. counted is what came of all rows: of those, and
// of others that were counted.
func (g *ingester) recount(ctx context.Context, m *shard.Manifest, counted *inputCounter) error {
	if counted.rough.Load() || counted.roughRows == 0 {
		return nil
	}
	again := newInputCounter(g.counter, &g.spec, 0)
	again.compute = g.Compute
	again.begin(ctx)
	err := g.eachRow(ctx, m, counted.roughRows, again)
	size, failure := again.close()
	if failure != nil {
		return failure
	}
	if err != nil {
		return fmt.Errorf("count tokens: %w", err)
	}
	m.Size.Tokens += size.Tokens - counted.roughTokens
	if m.Size.Tokens > g.spec.TokenQuota {
		return tooManyTokens(m.Size.Tokens, m.Rows-1, &g.spec)
	}
	return nil
}

// eachRow gives the first rows of a job to a counter, from its shards.
func (g *ingester) eachRow(ctx context.Context, m *shard.Manifest, rows int64, to *inputCounter) error {
	for n := 0; n < len(m.Shards) && m.Shards[n].First < rows && to.err() == nil; n++ {
		info := m.Shards[n]
		if err := g.eachOf(ctx, n, info, int(min(int64(info.Rows), rows-info.First)), to); err != nil {
			return err
		}
	}
	return nil
}

func (g *ingester) eachOf(ctx context.Context, n int, info shard.Info, rows int, to *inputCounter) error {
	r, err := archive.OpenShard(ctx, g.Bucket, g.id, &g.spec, n, info)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // nothing was written
	for at := 0; at < rows && to.err() == nil; {
		block, err := r.ReadBlock(r.BlockOf(at))
		if err != nil {
			return err
		}
		for ; at < min(rows, block.First+block.Rows()); at++ {
			if skip := g.copies.of(n); skip != nil && skip.Contains(uint32(at)) { //nolint:gosec // its place in a shard
				continue
			}
			if err := to.addRow(info.First+int64(at), block.Text(at)); err != nil {
				return err
			}
		}
	}
	return nil
}
