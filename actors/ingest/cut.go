package ingest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/shard"
)

// cut writes rows, whose fields have these columns, as shards.
func (g *ingester) cut(ctx context.Context, rows input.Reader, fields []string) (shard.Manifest, error) {
	m := shard.Manifest{IDType: rows.IDType(), Fields: fields}
	counted := newInputCounter(g.counter, &g.rec.Spec, g.SampleTokens)
	err := g.cutAll(ctx, rows, counted, &m)
	size, failure := counted.close()
	m.Size = size
	if failure != nil { // of an earlier row than any other fault
		return m, failure
	}
	return m, err
}

// cutAll writes rows as shards until there are no more.
func (g *ingester) cutAll(ctx context.Context, rows input.Reader, counted *inputCounter, m *shard.Manifest) error {
	moment := &moment{ingester: g}
	if err := moment.take(ctx); err != nil {
		return err
	}
	defer moment.end()
	var row rowmill.Row
	err := rows.Next(&row)
	for err == nil {
		info := shard.Info{First: m.Rows}
		info, err = g.cutShard(ctx, moment, rows, counted, &row, len(m.Shards), info, len(m.Fields) > 0)
		m.Rows += int64(info.Rows)
		if info.Rows > 0 {
			m.Shards = append(m.Shards, info)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// cutShard writes one shard, beginning with row, and leaves the first row that
// did not fit in row. It passes on the reader's error, io.EOF included.
func (g *ingester) cutShard(ctx context.Context, moment *moment, rows input.Reader, counted *inputCounter, row *rowmill.Row, n int, info shard.Info, fields bool) (shard.Info, error) {
	w, err := g.Bucket.Create(ctx, layout.Shard(g.rec.Job.ID, n), "application/octet-stream")
	if err != nil {
		return info, fmt.Errorf("create shard %d: %w", n, err)
	}
	defer w.Abort()
	buffered := bufio.NewWriterSize(w, 256<<10)
	out := shard.NewWriter(buffered, info.First, g.rec.Spec.IDColumn != "")
	if fields {
		out.WithFields()
	}
	if g.Pack {
		out.Pack()
	}
	var next error
	for next == nil && out.Rows() < g.ShardRows && (out.Rows() == 0 || out.Size()+int64(len(row.Text)+len(row.Fields)) <= g.ShardBytes) {
		if err := ctx.Err(); err != nil {
			return info, err
		}
		text := strings.ToValidUTF8(row.Text, "\uFFFD")
		if err := out.AddRow(text, row.ID, row.Fields); err != nil {
			return info, err
		}
		counted.add(text)
		if err := counted.err(); err != nil {
			return info, err
		}
		if err := checkRows(info.First+int64(out.Rows()), true, &g.rec.Spec); err != nil {
			return info, err
		}
		if err := moment.pass(ctx); err != nil {
			return info, err
		}
		next = rows.Next(row)
	}
	if next != nil && !errors.Is(next, io.EOF) {
		return info, next
	}
	info.Rows, info.Bytes = out.Rows(), out.Size()
	if err := errors.Join(out.Close(), buffered.Flush()); err != nil {
		return info, err
	}
	moment.end() // the disk or the bucket takes its time
	if _, err := w.Commit(); err != nil {
		return info, fmt.Errorf("commit shard %d: %w", n, err)
	}
	if err := moment.take(ctx); err != nil {
		return info, err
	}
	return info, next
}

// A moment is an input's of the node's processors.
type moment struct {
	*ingester
	began time.Time
	leave func() // nil: it has ended
	rows  int
}

// A moment lasts for momentTime, and that is looked at every momentRows rows: long
// enough that passing it on costs nothing, and short beside what a job of one row
// may wait.
const (
	momentTime = 50 * time.Millisecond
	momentRows = 64
)

// take waits for a moment.
func (m *moment) take(ctx context.Context) error {
	leave, ok := m.Compute(ctx)
	if !ok {
		return ctx.Err()
	}
	m.began, m.leave = time.Now(), leave
	return nil
}

// pass lets others have theirs after a row, once it has lasted for long enough.
func (m *moment) pass(ctx context.Context) error {
	if m.rows++; m.rows%momentRows != 0 || time.Since(m.began) < momentTime {
		return nil
	}
	m.end()
	return m.take(ctx)
}

// end gives the moment up, if there is one.
func (m *moment) end() {
	if m.leave != nil {
		m.leave()
		m.leave = nil
	}
}
