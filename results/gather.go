package results

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sync/errgroup"
)

// openOrMergeParts opens the parts. If there are too many parts to read together, it merges
// batches of parts into temporary files. It repeats this until the remaining parts can
// be read together. The caller must call closeParts on the result, even after an error.
func openOrMergeParts(ctx context.Context, s Schema, waiting []*mergePart) (open []*mergePart, err error) {
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
				merged = append(merged, batch...) // the batch is one temporary file, which needs no merge
				continue
			}
			p, err := mergeToTempFile(ctx, s, batch)
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

// openBatch opens the first parts of waiting: at least two, and as many as can be read
// together. It closes and leaves out parts without rows. rest has the parts that do not
// fit into the batch.
func openBatch(ctx context.Context, s Schema, waiting []*mergePart) (batch, rest []*mergePart, err error) {
	var held blockMemory
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
		if held.add(p) > mergeBytes && len(batch) >= 2 {
			return batch, waiting[at:], nil
		}
		batch = append(batch, p)
	}
	return batch, nil, nil
}

// blockMemory counts the bytes of the blocks that a merge has in memory at a time. A
// merge has one block of a part in memory from the part's first row to its last row.
type blockMemory struct {
	parts []*mergePart // parts that are still being read when the last part begins
	bytes int64
}

// add adds a part and returns the bytes in memory when the merge begins to read the
// part. Parts must be added in order of their first row.
func (h *blockMemory) add(p *mergePart) int64 {
	h.parts = slices.DeleteFunc(h.parts, func(earlier *mergePart) bool {
		if earlier.high < p.from {
			h.bytes -= earlier.blockSize()
			return true
		}
		return false
	})
	h.parts = append(h.parts, p)
	h.bytes += p.blockSize()
	return h.bytes
}

// openParts opens all parts that are not open yet, in parallel.
func openParts(ctx context.Context, s Schema, parts []*mergePart) error {
	var g errgroup.Group
	for _, p := range parts {
		if p.table == nil {
			openInGroup(ctx, &g, p.number, func() error { return p.open(s) })
		}
	}
	return g.Wait()
}

// mergeToTempFile merges parts into a temporary file and returns the file as a part. The
// file has no name, so it disappears when it is closed.
func mergeToTempFile(ctx context.Context, s Schema, parts []*mergePart) (_ *mergePart, err error) {
	f, err := CreateUnnamedFile("rowmill-merge-*")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // the first error is more useful than the error of Close
		}
	}()
	if _, err := interleave(ctx, f, s, parts, -1); err != nil {
		return nil, err
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, fmt.Errorf("find the size of a temporary file: %w", err)
	}
	p := newPart(-1, PartSource{Source: io.NewSectionReader(f, 0, size), First: parts[0].First})
	if err := p.open(s); err != nil {
		return nil, fmt.Errorf("open a temporary file: %w", err)
	}
	p.temporary, p.from = f, p.low
	return p, nil
}

// CreateUnnamedFile returns a temporary file without a name, which the system removes when it
// is closed.
func CreateUnnamedFile(pattern string) (*os.File, error) {
	f, err := os.CreateTemp("", pattern)
	if err != nil {
		return nil, fmt.Errorf("create a temporary file: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("remove the name of a temporary file: %w", err), f.Close())
	}
	return f, nil
}
