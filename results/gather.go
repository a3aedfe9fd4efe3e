package results

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/rowmill/rowmill/contain"
)

// gather opens the parts. Where they cannot be read together it merges as many
// as can into a temporary file, and so on, until what is left can be. What it
// returns needs closeParts, on an error too.
func gather(ctx context.Context, s Schema, waiting []*mergePart) (open []*mergePart, err error) {
	for level := 0; ; level++ {
		slices.SortStableFunc(waiting, func(a, b *mergePart) int { return cmp.Compare(a.from, b.from) })
		var merged []*mergePart
		for len(waiting) > 0 {
			batch, rest, err := openBatch(ctx, s, waiting)
			if err != nil {
				closeParts(waiting)
				return merged, err
			}
			if waiting = rest; len(rest) == 0 && len(merged) == 0 {
				return batch, nil
			}
			if len(batch) == 1 && level > 0 {
				merged = append(merged, batch...) // the last one, a file already
				continue
			}
			p, err := mergeTemporary(ctx, s, batch)
			closeParts(batch)
			if err != nil {
				closeParts(waiting)
				return merged, err
			}
			merged = append(merged, p)
		}
		waiting = merged
	}
}

// openBatch opens the first of the parts, at least two and as many as can be
// read together. Those that have no rows are left out.
func openBatch(ctx context.Context, s Schema, waiting []*mergePart) (batch, rest []*mergePart, err error) {
	var held hold
	for at, opened := 0, 0; at < len(waiting); at++ {
		if len(batch) == mergeParts {
			return batch, waiting[at:], nil
		}
		if at == opened {
			opened = min(at+openAtOnce, len(waiting))
			if err := openParts(ctx, s, waiting[at:opened]); err != nil {
				return nil, nil, err
			}
		}
		p := waiting[at]
		if p.table.Rows() == 0 {
			p.close()
			continue
		}
		if held.with(p) > mergeBytes && len(batch) >= 2 {
			return batch, waiting[at:], nil
		}
		batch = append(batch, p)
	}
	return batch, nil, nil
}

// A hold is what merging some parts holds of their blocks: those of a part from
// its first row to its last.
type hold struct {
	parts []*mergePart // those that are read where the last one begins
	bytes int64
}

// with takes in a part that is from no earlier row than those before, and
// returns what is held there.
func (h *hold) with(p *mergePart) int64 {
	h.parts = slices.DeleteFunc(h.parts, func(earlier *mergePart) bool {
		if earlier.high < p.from {
			h.bytes -= earlier.held()
			return true
		}
		return false
	})
	h.parts = append(h.parts, p)
	h.bytes += p.held()
	return h.bytes
}

// openParts opens those that are not open yet.
func openParts(ctx context.Context, s Schema, parts []*mergePart) error {
	var g errgroup.Group
	for _, p := range parts {
		if p.table != nil {
			continue
		}
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := contain.Run(func() error { return p.open(s) }); err != nil {
				return fmt.Errorf("part %d: %w", p.number, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// mergeTemporary merges parts into a file that has no name any more.
func mergeTemporary(ctx context.Context, s Schema, parts []*mergePart) (_ *mergePart, err error) {
	f, err := os.CreateTemp("", "rowmill-merge-*")
	if err != nil {
		return nil, fmt.Errorf("temporary file: %w", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close() // the first error says more
		}
	}()
	if err := os.Remove(f.Name()); err != nil {
		return nil, fmt.Errorf("temporary file: %w", err)
	}
	if _, err := interleave(ctx, f, s, parts, -1); err != nil {
		return nil, err
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, fmt.Errorf("temporary file: %w", err)
	}
	p := newPart(-1, PartSource{Source: io.NewSectionReader(f, 0, size), First: parts[0].First})
	if err := p.open(s); err != nil {
		return nil, fmt.Errorf("temporary file: %w", err)
	}
	p.temporary, p.from = f, p.low
	return p, nil
}
