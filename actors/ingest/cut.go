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
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// cut writes all rows as shards and returns their manifest. fields has the names of the
// rows' field columns.
func (g *ingester) cut(ctx context.Context, rows input.Reader, fields []string) (shard.Manifest, error) {
	m := shard.Manifest{IDType: rows.IDType(), Fields: fields}
	counted := newInputCounter(g.counter, &g.spec).enableBounds()
	if g.spec.Estimate {
		counted.sampler = newLengthSampler(g.SampleRows, g.spec.Seed)
	}
	g.groups = order.NewPrefixGrouper()
	g.lookForCopies(ctx)
	if g.digests != nil {
		g.digests.types = m.IDType
	}
	moment := &processorTurn{ingester: g}
	counted.compute = g.Compute
	counted.rest = func(wait func()) error { return moment.releaseDuring(ctx, wait) }
	if g.follower != nil {
		g.follower.rest = counted.rest
	}
	if g.files != nil {
		g.files.setRest(counted.rest)
	}
	announcer := g.startAnnouncer(EarlyShards{IDType: m.IDType, Fields: fields}, counted)
	counted.begin(ctx)
	err := g.cutAll(ctx, moment, rows, counted, announcer, &m)
	moment.end()
	tokens, failure := counted.close()
	g.announced = announcer.close()
	m.Tokens = tokens
	if g.copies != nil {
		m.Copies = g.copies.count
	}
	if failure != nil { // a failure that counting found in an earlier row goes first
		return m, failure
	}
	if err == nil {
		err = g.recount(ctx, &m, counted)
	}
	if err == nil && counted.sampler != nil {
		m.Estimated = shard.InputSize{Rows: m.Rows - m.Copies, Tokens: m.Tokens}
		m.Sample, err = counted.sampler.choose(g.SampleTokens, m.Estimated).ToBytes()
	}
	return m, err
}

// cutAll writes shards until there are no more rows, and adds them to m.
func (g *ingester) cutAll(ctx context.Context, moment *processorTurn, rows input.Reader, counted *inputTokenCounter, announcer *shardAnnouncer, m *shard.Manifest) error {
	if err := moment.acquire(ctx); err != nil {
		return err
	}
	var row rowmill.Row
	err := rows.Next(&row)
	for err == nil {
		info := shard.ManifestEntry{First: m.Rows}
		info, err = g.cutShard(ctx, moment, rows, counted, &row, len(m.Shards), info, len(m.Fields) > 0)
		m.Rows += int64(info.Rows)
		if info.Rows > 0 {
			m.Shards = append(m.Shards, info)
			announcer.add(info, g.copies.shardCopies(len(m.Shards)-1))
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// cutShard writes shard n, which begins with row. It then stores in row the first row
// that did not fit into the shard. It returns the reader's error, also io.EOF.
func (g *ingester) cutShard(ctx context.Context, moment *processorTurn, rows input.Reader, counted *inputTokenCounter, row *rowmill.Row, n int, info shard.ManifestEntry, fields bool) (shard.ManifestEntry, error) {
	w, err := g.Bucket.Create(ctx, layout.ShardKey(g.id, n), "application/octet-stream")
	if err != nil {
		return info, fmt.Errorf("create shard %d: %w", n, err)
	}
	defer w.Abort()
	buffered := bufio.NewWriterSize(w, 256<<10)
	out := shard.NewWriter(buffered, info.First, g.spec.IDColumn != "")
	if fields {
		out.EnableFields()
	}
	var next error
	for next == nil && out.Rows() < g.ShardRows && (out.Rows() == 0 || out.Size()+int64(len(row.Text)+len(row.Fields)) <= g.ShardBytes) {
		if err := g.cutRow(out, counted, info.First+int64(out.Rows()), row); err != nil {
			return info, err
		}
		if err := cmp.Or(ctx.Err(), moment.yieldIfDue(ctx)); err != nil {
			return info, err
		}
		next = rows.Next(row)
	}
	if next != nil && !errors.Is(next, io.EOF) {
		return info, next
	}
	whole := shard.ManifestEntry{First: info.First, Rows: out.Rows(), Bytes: out.Size()}
	if err := errors.Join(out.Close(), buffered.Flush()); err != nil {
		return info, err
	}
	if g.copies != nil {
		if err := g.copies.endShard(n, info.First); err != nil {
			return info, err
		}
	}
	err = counted.flush() // count the shard's rows now, even if the next rows arrive slowly
	if err != nil {
		return info, err
	}
	if restErr := moment.releaseDuring(ctx, func() { _, err = w.Commit() }); err == nil { // the disk or the bucket may be slow
		err = restErr
	}
	if err != nil {
		return info, fmt.Errorf("commit shard %d: %w", n, err)
	}
	return whole, next
}

// cutRow adds a row to a shard, adds it to the counter, and checks the quotas. index is
// the row's number in the input.
func (g *ingester) cutRow(out *shard.Writer, counted *inputTokenCounter, index int64, row *rowmill.Row) error {
	text := row.Text
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	if g.spec.Messages {
		chat, err := prompt.NormalizeChat(text)
		if err != nil {
			return rowmill.Failf(rowmill.CodeInvalidInputFile, "%s is no chat: %v. Correct the row, or leave messages out.", g.describeRow(index), err)
		}
		text = chat
	}
	if err := out.AddRow(text, row.ID, row.Fields); err != nil {
		return err
	}
	if g.digests != nil {
		if err := g.digests.add(&rowmill.Row{Index: index, Text: text, ID: row.ID}); err != nil {
			return err
		}
	}
	if g.copies != nil && g.copies.add(index, text) {
		counted.skip()
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

// A processorTurn is the time for which the reading of an input uses one of the node's
// processors. Then other inputs get a turn.
type processorTurn struct {
	*ingester
	began time.Time // when the current turn began
	leave func()    // gives the processor back; nil while there is no turn
	rows  int       // number of rows read, in all turns
}

// A moment lasts momentTime, which is checked every momentRows rows. This is long enough
// that changing the processor costs almost nothing, and short compared with the acceptable
// wait of a job with one row.
const (
	momentTime = 50 * time.Millisecond
	momentRows = 64
)

// acquire waits for a processor and begins a turn. It returns the error of ctx if ctx ends
// first.
func (m *processorTurn) acquire(ctx context.Context) error {
	leave, ok := m.Compute(ctx)
	if !ok {
		return ctx.Err()
	}
	m.began, m.leave = time.Now(), leave
	return nil
}

// yieldIfDue must be called after each row. If the turn has lasted momentTime, yieldIfDue
// ends the turn and waits for the next turn.
func (m *processorTurn) yieldIfDue(ctx context.Context) error {
	if m.rows++; m.rows%momentRows != 0 || time.Since(m.began) < momentTime {
		return nil
	}
	m.end()
	return m.acquire(ctx)
}

// releaseDuring calls wait without using a processor. If there was a turn before,
// releaseDuring then waits for the next turn.
func (m *processorTurn) releaseDuring(ctx context.Context, wait func()) error {
	had := m.leave != nil
	m.end()
	wait()
	if !had {
		return nil
	}
	return m.acquire(ctx)
}

// end ends the turn, if there is one, and gives its processor back.
func (m *processorTurn) end() {
	if m.leave != nil {
		m.leave()
		m.leave = nil
	}
}
