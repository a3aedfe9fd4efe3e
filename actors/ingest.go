package actors

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/function"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/shard"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// An ingester turns a job's input into shards. It may be repeated after a
// crash: shards have fixed keys and the manifest comes last. Only a download
// is never repeated.
type ingester struct {
	cfg     Config
	fence   store.Fence
	counter *prompt.Counter
	log     *slog.Logger
}

// run returns the manifest of rec's input, from what an earlier run left where
// that is complete. A *rowmill.Failure is the input's fault, any other error
// the system's.
func (g *ingester) run(ctx context.Context, rec *store.Record) (shard.Manifest, error) {
	spec := &rec.Spec
	if spec.Inline != nil {
		m := shard.Inline(spec.Inline)
		if err := checkQuota(m.Rows, spec); err != nil {
			return m, err
		}
		rows := newTally(g.counter, spec, g.cfg.EstimateSample)
		for _, text := range spec.Inline {
			rows.add(text)
		}
		var err error
		m.Size, err = rows.close()
		return m, err
	}
	m, err := readManifest(ctx, g.cfg.Blob, rec.Job.ID)
	if !errors.Is(err, rowmill.ErrNotFound) {
		return m, err
	}
	rows, err := g.open(ctx, rec)
	if err != nil {
		return shard.Manifest{}, err
	}
	m, err = g.cut(ctx, rec, rows)
	if err = errors.Join(err, rows.Close()); err != nil {
		return shard.Manifest{}, err
	}
	if m.Rows == 0 {
		return shard.Manifest{}, rowmill.Failf(rowmill.CodeInvalidInputFile,
			"The input has no data rows. Give a file with a header and at least one row.")
	}
	return m, writeManifest(ctx, g.cfg.Blob, rec.Job.ID, m)
}

// rowSource is a reader with what must be closed after it.
type rowSource struct {
	input.Reader
	object io.Closer
}

func (r rowSource) Close() error { return errors.Join(r.Reader.Close(), r.object.Close()) }

func (g *ingester) open(ctx context.Context, rec *store.Record) (input.Reader, error) {
	key := rec.Spec.Spooled
	if rec.Spec.URL != "" {
		if err := g.download(ctx, rec); err != nil {
			return nil, err
		}
		key = layout.Raw(rec.Job.ID)
	}
	o, err := g.cfg.Blob.Open(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("open input: %w", err)
	}
	rows, err := g.read(o, &rec.Spec)
	if err != nil {
		o.Close()
		return nil, err
	}
	return rowSource{rows, o}, nil
}

// read reads the rows in an object, and makes prompts of them where the job
// runs a Function.
func (g *ingester) read(o blob.Object, spec *rowmill.Spec) (input.Reader, error) {
	opts := input.Options{Column: spec.Column, IDColumn: spec.IDColumn, Limits: g.cfg.Input.WithDefaults()}
	if spec.Function == nil {
		if spec.URL == "" {
			return input.Spooled(blob.NewReader(o)), nil
		}
		return input.Open(o, o.Size(), opts)
	}
	prompt, err := function.NewPrompt(*spec.Function)
	if err != nil {
		return nil, fmt.Errorf("prompt of the Function: %w", err) // it was checked when it was published
	}
	if spec.URL == "" {
		return input.SpooledObjects(blob.NewReader(o), func(row int64, object []byte) (string, error) {
			return renderRow(prompt, row, object, opts.Limits.MaxRowBytes)
		}), nil
	}
	opts.Fields = &input.Fields{Size: prompt.Size, Render: prompt.Render}
	for _, in := range prompt.Inputs() {
		opts.Fields.Names = append(opts.Fields.Names, in.Name)
		opts.Fields.Required = append(opts.Fields.Required, in.Required)
	}
	return input.Open(o, o.Size(), opts)
}

// renderRow makes the prompt of a spooled row. What a short template makes of
// long values is known only here, so it may be too long.
func renderRow(prompt *function.Prompt, row int64, object []byte, limit int64) (string, error) {
	fields, err := function.ParseRow(object)
	if err != nil {
		return "", err
	}
	values, _ := prompt.Values(fields) // none is missing: that was checked at submission
	if size := prompt.Size(values); size > limit {
		return "", rowmill.Failf(rowmill.CodeInvalidInputFile,
			"The prompt of row %d has %d bytes, more than %d. Shorten or split its values.", row, size, limit)
	}
	return prompt.Render(values), nil
}

// download fetches a URL input once. That it was begun is durable before the
// first byte is asked for, so that a second node never asks again.
func (g *ingester) download(ctx context.Context, rec *store.Record) error {
	switch {
	case rec.DownloadFinished != nil:
		return nil
	case rec.DownloadStarted != nil:
		return rowmill.Failf(rowmill.CodeDownloadFailed,
			"The node stopped while it was downloading the input, and an input is downloaded only once. Submit the job again with a fresh URL.")
	}
	if err := g.mark(ctx, rec, func(r *store.Record, now time.Time) { r.DownloadStarted = &now }); err != nil {
		return err
	}
	w, err := g.cfg.Blob.Create(ctx, layout.Raw(rec.Job.ID), "application/octet-stream")
	if err != nil {
		return fmt.Errorf("create input object: %w", err)
	}
	defer w.Abort()
	if _, err := g.cfg.Downloader.Fetch(ctx, rec.Spec.URL, w); err != nil {
		return err
	}
	if _, err := w.Commit(); err != nil {
		return fmt.Errorf("commit input object: %w", err)
	}
	return g.mark(ctx, rec, func(r *store.Record, now time.Time) { r.DownloadFinished = &now })
}

func (g *ingester) mark(ctx context.Context, rec *store.Record, set func(*store.Record, time.Time)) error {
	now := g.cfg.Clock().UTC()
	updated, err := g.cfg.Store.Update(ctx, g.fence, func(r *store.Record) error {
		set(r, now)
		return nil
	})
	if err != nil {
		return fmt.Errorf("record download: %w", err)
	}
	*rec = updated
	return nil
}

// cut writes rows as shards.
func (g *ingester) cut(ctx context.Context, rec *store.Record, rows input.Reader) (shard.Manifest, error) {
	m := shard.Manifest{IDKind: rows.IDKind()}
	counted := newTally(g.counter, &rec.Spec, g.cfg.EstimateSample)
	err := g.cutAll(ctx, rec, rows, counted, &m)
	size, failure := counted.close()
	m.Size = size
	if failure != nil { // of an earlier row than any other fault
		return m, failure
	}
	return m, err
}

// cutAll writes rows as shards until there are no more.
func (g *ingester) cutAll(ctx context.Context, rec *store.Record, rows input.Reader, counted *tally, m *shard.Manifest) error {
	var row rowmill.Row
	err := rows.Next(&row)
	for err == nil {
		info := shard.Info{First: m.Rows}
		info, err = g.cutShard(ctx, rec, rows, counted, &row, len(m.Shards), info)
		m.Rows += int64(info.Rows)
		if info.Rows > 0 {
			m.Shards = append(m.Shards, info)
		}
		if quota := checkQuota(m.Rows, &rec.Spec); quota != nil {
			return quota
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// cutShard writes one shard, beginning with row, and leaves the first row that
// did not fit in row. It passes on the reader's error, io.EOF included.
func (g *ingester) cutShard(ctx context.Context, rec *store.Record, rows input.Reader, counted *tally, row *rowmill.Row, n int, info shard.Info) (shard.Info, error) {
	w, err := g.cfg.Blob.Create(ctx, layout.Shard(rec.Job.ID, n), "application/octet-stream")
	if err != nil {
		return info, fmt.Errorf("create shard %d: %w", n, err)
	}
	defer w.Abort()
	buffered := bufio.NewWriterSize(w, 256<<10)
	out := shard.NewWriter(buffered, info.First, rec.Spec.IDColumn != "")
	var next error
	for next == nil && out.Rows() < g.cfg.ShardRows && (out.Rows() == 0 || out.Size()+int64(len(row.Text)) <= g.cfg.ShardBytes) {
		if err := ctx.Err(); err != nil {
			return info, err
		}
		text := strings.ToValidUTF8(row.Text, "\uFFFD")
		if err := out.Add(text, row.ID); err != nil {
			return info, err
		}
		counted.add(text)
		if err := counted.err(); err != nil {
			return info, err
		}
		if quota := checkQuota(info.First+int64(out.Rows()), &rec.Spec); quota != nil {
			return info, quota
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
	if _, err := w.Commit(); err != nil {
		return info, fmt.Errorf("commit shard %d: %w", n, err)
	}
	return info, next
}

func checkQuota(rows int64, spec *rowmill.Spec) error {
	if spec.RowQuota > 0 && rows > spec.RowQuota {
		return rowmill.Failf(rowmill.CodeRowQuota,
			"The input has more than %d rows, the quota of a job of priority %d. Split the input, use priority 1, or ask an administrator to raise the quota: rowmill quotas set --priority %d --rows N.",
			spec.RowQuota, spec.Priority, spec.Priority)
	}
	return nil
}
