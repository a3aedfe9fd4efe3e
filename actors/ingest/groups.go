package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/shard"
)

// writeGroups stores the group of each row (see order.PrefixGrouper), if the rows have groups.
func (g *ingester) writeGroups(ctx context.Context) (written bool, err error) {
	groups := g.groups.RowGroups()
	if len(groups) == 0 {
		return false, nil
	}
	if _, err := blob.Write(ctx, g.Bucket, layout.GroupsKey(g.id), layout.Bytes, func(w io.Writer) error {
		_, err := w.Write(groups)
		return err
	}); err != nil {
		return false, fmt.Errorf("write the groups of rows: %w", err)
	}
	return true, nil
}

// copyGroups copies the groups of the old job's rows to the new job. copied is false if
// the old job has no groups or they are lost.
func (t *takeover) copyGroups(ctx context.Context) (copied bool, err error) {
	if !t.input.Groups {
		return false, nil
	}
	err = t.Bucket.Copy(ctx, layout.GroupsKey(t.source), layout.GroupsKey(t.rec.Job.ID))
	if errors.Is(err, rowmill.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("copy the groups of rows: %w", err)
	}
	return true, nil
}

// ReadGroups returns the groups of a job's first rows, one byte for each row; nil if
// the job has none. If the stored groups are lost, rows run in input order, and servers
// compute some prefixes again.
func ReadGroups(ctx context.Context, bucket blob.Bucket, job string, m shard.Manifest) ([]byte, error) {
	if !m.Groups {
		return nil, nil
	}
	o, err := bucket.Open(ctx, layout.GroupsKey(job))
	if errors.Is(err, rowmill.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the groups of rows: %w", err)
	}
	defer o.Close()
	if o.Size() > m.Rows {
		return nil, fmt.Errorf("read the groups of rows: the object has groups for %d rows, and the job has only %d rows", o.Size(), m.Rows)
	}
	groups := make([]byte, o.Size())
	if _, err := io.ReadFull(blob.NewReader(o), groups); err != nil {
		return nil, fmt.Errorf("read the groups of rows: %w", err)
	}
	return groups, nil
}
