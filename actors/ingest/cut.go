package ingest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/order"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/internal/shard"
)

// cut writes rows as shards. fields has the names of the rows' field columns.
func (g *ingester) cut(ctx context.Context, rows input.Reader, fields []string) (shard.Manifest, error) {
	m := shard.Manifest{IDType: rows.IDType(), Fields: fields}
	counted := newInputCounter(g.counter, &g.spec, g.SampleTokens).bounded()
	g.groups = order.NewGroups()
	g.lookForCopies(ctx)
	moment := &moment{ingester: g}
	counted.compute = g.Compute
	counted.rest = func(wait func()) error { return moment.rest(ctx, wait) }
	if g.follower != nil {
		g.follower.rest = counted.rest
	}
	announcer := g.announcer(Begun{IDType: m.IDType, Fields: fields}, counted)
	counted.begin(ctx)
	err := g.cutAll(ctx, moment, rows, counted, announcer, &m)
	moment.end()
	size, failure := counted.close()
	g.announced = announcer.close()
	m.Size = size
	if g.copies != nil {
		m.Copies = g.copies.count
	}
	if failure != nil { // the failure of an earlier row comes before any other error
		return m, failure
	}
	if err == nil {
		err = g.recount(ctx, &m, counted)
	}
	return m, err
}

// cutAll writes rows as shards until there are no more rows.
func (g *ingester) cutAll(ctx context.Context, moment *moment, rows input.Reader, counted *inputCounter, announcer *announcer, m *shard.Manifest) error {
	if err := moment.take(ctx); err != nil {
		return err
	}
	var row rowmill.Row
	err := rows.Next(&row)
	for err == nil {
		info := shard.Info{First: m.Rows}
		info, err = g.cutShard(ctx, moment, rows, counted, &row, len(m.Shards), info, len(m.Fields) > 0)
		m.Rows += int64(info.Rows)
		if info.Rows > 0 {
			m.Shards = append(m.Shards, info)
			announcer.add(info, g.copies.of(len(m.Shards)-1))
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// cutShard writes one shard that begins with row. Then it stores the first row that did
// not fit into the shard in row. It returns the reader's error, also io.EOF.
func (g *ingester) cutShard(ctx context.Context, moment *moment, rows input.Reader, counted *inputCounter, row *rowmill.Row, n int, info shard.Info, fields bool) (shard.Info, error) {
	w, err := g.Bucket.Create(ctx, layout.Shard(g.id, n), "application/octet-stream")
	if err != nil {
		return info, fmt.Errorf("create shard %d: %w", n, err)
	}
	defer w.Abort()
	buffered := bufio.NewWriterSize(w, 256<<10)
	out := shard.NewWriter(buffered, info.First, g.spec.IDColumn != "")
	if fields {
		out.WithFields()
	}
	var next error
	for next == nil && out.Rows() < g.ShardRows && (out.Rows() == 0 || out.Size()+int64(len(row.Text)+len(row.Fields)) <= g.ShardBytes) {
		if err := g.cutRow(out, counted, info.First+int64(out.Rows()), row); err != nil {
			return info, err
		}
		if err := cmp.Or(ctx.Err(), moment.pass(ctx)); err != nil {
			return info, err
		}
		next = rows.Next(row)
	}
	if next != nil && !errors.Is(next, io.EOF) {
		return info, next
	}
	whole := shard.Info{First: info.First, Rows: out.Rows(), Bytes: out.Size()}
	if err := errors.Join(out.Close(), buffered.Flush()); err != nil {
		return info, err
	}
	if g.copies != nil {
		if _, err := g.copies.end(n, info.First); err != nil {
			return info, err
		}
	}
	err = counted.flush() // the shard's rows are counted even if the next rows come slowly
	if err != nil {
		return info, err
	}
	if restErr := moment.rest(ctx, func() { _, err = w.Commit() }); err == nil { // the disk or the bucket may be slow
		err = restErr
	}
	if err != nil {
		return info, fmt.Errorf("commit shard %d: %w", n, err)
	}
	return whole, next
}

// cutRow adds a row to a shard, counts it, and checks it against the quotas. index is the
// row's number in the input.
func (g *ingester) cutRow(out *shard.Writer, counted *inputCounter, index int64, row *rowmill.Row) error {
	text := row.Text
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	if err := out.AddRow(text, row.ID, row.Fields); err != nil {
		return err
	}
	if g.copies != nil && g.copies.add(index, text) {
		counted.pass()
		g.groups.Add("") // a copy need not run near other rows
	} else {
		if err := counted.add(text); err != nil {
			return err
		}
		g.groups.Add(text)
	}
	if err := counted.err(); err != nil {
		return err
	}
	return checkRows(index+1, true, &g.spec)
}

// A moment is the time in which an input uses a processor of the node.
type moment struct {
	*ingester
	began time.Time
	leave func() // gives the processor back; nil after the end of the moment
	rows  int
}

// A moment lasts momentTime, checked every momentRows rows: long enough that giving the
// processor away costs almost nothing, and short compared to the acceptable wait of a job
// with one row.
const (
	momentTime = 50 * time.Millisecond
	momentRows = 64
)

// take waits for a processor, and begins a moment.
func (m *moment) take(ctx context.Context) error {
	leave, ok := m.Compute(ctx)
	if !ok {
		return ctx.Err()
	}
	m.began, m.leave = time.Now(), leave
	return nil
}

// pass is called after each row. If the moment has lasted long enough, pass ends the
// moment and waits for the next one.
func (m *moment) pass(ctx context.Context) error {
	if m.rows++; m.rows%momentRows != 0 || time.Since(m.began) < momentTime {
		return nil
	}
	m.end()
	return m.take(ctx)
}

// rest runs wait without the processor of the moment, and takes a processor again after
// the wait.
func (m *moment) rest(ctx context.Context, wait func()) error {
	had := m.leave != nil
	m.end()
	wait()
	if !had {
		return nil
	}
	return m.take(ctx)
}

// end gives the processor of the moment back, if the moment has one.
func (m *moment) end() {
	if m.leave != nil {
		m.leave()
		m.leave = nil
	}
}
