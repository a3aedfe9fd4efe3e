// Package ingest turns the input of a job into shards: it downloads, reads, makes
// prompts of rows, counts their tokens, holds them against the quotas, and says
// what they may cost. It owns the objects below layout.Input. Whether it may do
// so is said by the fence that its caller gives; it knows no actors, no engines
// and nothing of how rows run.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/function"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/shard"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// Config is what ingest needs, with the same for all jobs. Nothing has a
// default.
type Config struct {
	Jobs       store.Jobs
	Parts      store.Parts
	Bucket     blob.Bucket
	Downloader Downloader
	Limits     input.Limits
	Clock      func() time.Time

	// Wait repeats what may fail for a while. Patient is a context under which one
	// call of Bucket does the same by itself, until done.
	Wait    func(ctx context.Context, do func() error) error
	Patient func(ctx context.Context) (patient context.Context, done func())

	// ShardRows and ShardBytes bound a shard. One row may be larger.
	ShardRows  int
	ShardBytes int64

	// An estimate of an input of at least SampleFrom tokens runs the first rows,
	// which have SampleTokens.
	SampleFrom   int64
	SampleTokens int64
}

// A Downloader fetches what a URL leads to, as *input.Downloader does.
type Downloader interface {
	Fetch(ctx context.Context, url string, w io.Writer) (int64, error)
}

// An ingester is at work on one job.
type ingester struct {
	Config
	fence   store.Fence
	counter *prompt.Counter
	rec     *store.Record
}

// Run returns the manifest of rec's input, from what an earlier run left where
// that is complete. It may be repeated after a crash: shards have fixed keys and
// the manifest comes last. Only a download is never repeated; where the store has
// forgotten what a job took over, that is taken over again. A *rowmill.Failure is
// the input's fault, any other error the system's. rec follows what is recorded.
func Run(ctx context.Context, cfg Config, rec *store.Record, fence store.Fence, counter *prompt.Counter) (shard.Manifest, error) {
	g := &ingester{Config: cfg, fence: fence, counter: counter, rec: rec}
	if rec.Spec.Inline != nil {
		return g.inline()
	}
	var m shard.Manifest
	err := cfg.Wait(ctx, func() (err error) {
		m, err = archive.ReadManifest(ctx, cfg.Bucket, rec)
		return err
	})
	forgot := err == nil && rec.Spec.Continue != nil && m.Taken != rec.Job.RowsTakenOver
	if !forgot && !errors.Is(err, rowmill.ErrNotFound) {
		return m, err
	}
	if rec.Spec.URL != "" {
		if err := g.download(ctx); err != nil {
			return shard.Manifest{}, err
		}
	}
	err = cfg.Wait(ctx, func() (err error) {
		if rec.Spec.Continue != nil {
			m, err = g.takeOver(ctx)
		} else {
			m, err = g.cutFrom(ctx, *rec)
		}
		return err
	})
	return m, err
}

// cutFrom makes shards of what a job was given, this one or the one that it
// continues, and the list of them.
func (g *ingester) cutFrom(ctx context.Context, source store.Record) (m shard.Manifest, err error) {
	rows, err := g.open(ctx, source)
	if err != nil {
		return m, err
	}
	m, err = g.cut(ctx, rows)
	if err = errors.Join(err, rows.Close()); err != nil {
		return m, err
	}
	if m.Rows == 0 {
		return m, rowmill.Failf(rowmill.CodeInvalidInputFile,
			"The input has no data rows. Give a file with a header and at least one row.")
	}
	return m, writeManifest(ctx, g.Bucket, g.rec.Job.ID, m)
}

// inline counts rows that are in the record and need no objects.
func (g *ingester) inline() (shard.Manifest, error) {
	m := shard.Inline(g.rec.Spec.Inline)
	if err := checkRows(m.Rows, &g.rec.Spec); err != nil {
		return m, err
	}
	counted := newInputCounter(g.counter, &g.rec.Spec, g.SampleTokens)
	for _, text := range g.rec.Spec.Inline {
		counted.add(text)
	}
	var err error
	m.Size, err = counted.close()
	return m, err
}

// rowSource is a reader with what must be closed after it.
type rowSource struct {
	input.Reader
	object io.Closer
}

func (r rowSource) Close() error { return errors.Join(r.Reader.Close(), r.object.Close()) }

func (g *ingester) open(ctx context.Context, source store.Record) (input.Reader, error) {
	own := source.Job.ID == g.rec.Job.ID
	key := source.Spec.Spooled
	if source.Spec.URL != "" {
		key = layout.Raw(source.Job.ID)
	}
	o, err := g.Bucket.Open(ctx, key)
	if !own && errors.Is(err, rowmill.ErrNotFound) {
		return nil, inputGone(source.Job.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("open input: %w", err)
	}
	rows, err := g.read(o, &source.Spec)
	if err != nil {
		o.Close()
		return nil, err
	}
	return rowSource{rows, o}, nil
}

// read reads the rows in an object, and makes prompts of them where the job
// runs a Function.
func (g *ingester) read(o blob.Object, spec *rowmill.Spec) (input.Reader, error) {
	opts := input.Options{Column: spec.Column, IDColumn: spec.IDColumn, Limits: g.Limits.WithDefaults()}
	if spec.Function == nil {
		if spec.URL == "" {
			return input.Spooled(blob.NewReader(o)), nil
		}
		return input.Open(o, o.Size(), opts)
	}
	template, err := function.NewPrompt(*spec.Function)
	if err != nil {
		return nil, fmt.Errorf("prompt of the Function: %w", err) // it was checked when it was published
	}
	if spec.URL == "" {
		return input.SpooledObjects(blob.NewReader(o), func(row int64, object []byte) (string, error) {
			return renderRow(template, row, object, opts.Limits.MaxRowBytes)
		}), nil
	}
	opts.Fields = &input.Fields{Size: template.Size, Render: template.Render}
	for _, in := range template.Inputs() {
		opts.Fields.Names = append(opts.Fields.Names, in.Name)
		opts.Fields.Required = append(opts.Fields.Required, in.Required)
	}
	return input.Open(o, o.Size(), opts)
}

// renderRow makes the prompt of a spooled row. What a short template makes of
// long values is known only here, so it may be too long.
func renderRow(template *function.Prompt, row int64, object []byte, limit int64) (string, error) {
	fields, err := function.ParseRow(object)
	if err != nil {
		return "", err
	}
	values, _ := template.Values(fields) // none is missing: that was checked at submission
	if size := template.Size(values); size > limit {
		return "", rowmill.Failf(rowmill.CodeInvalidInputFile,
			"The prompt of row %d has %d bytes, more than %d. Shorten or split its values.", row, size, limit)
	}
	return template.Render(values), nil
}

// download fetches a URL input once. That it was begun is durable before the
// first byte is asked for, so that a second node never asks again. An input that
// is there came whole: who stored it did not live to say so.
func (g *ingester) download(ctx context.Context) error {
	if g.rec.DownloadFinished != nil {
		return nil
	}
	err := g.Wait(ctx, func() error {
		_, err := g.Bucket.Stat(ctx, layout.Raw(g.rec.Job.ID))
		return err
	})
	switch {
	case err == nil:
		return g.downloaded(ctx)
	case !errors.Is(err, rowmill.ErrNotFound):
		return fmt.Errorf("look for the input: %w", err)
	case g.rec.DownloadStarted != nil:
		return rowmill.Failf(rowmill.CodeDownloadFailed,
			"The node stopped while it was downloading the input, and an input is downloaded only once. Submit the job again with a fresh URL.")
	}
	patient, done := g.Patient(ctx)
	defer done()
	var w blob.Writer
	err = g.Wait(ctx, func() (err error) { // as long as another node may still begin
		w, err = g.Bucket.Create(patient, layout.Raw(g.rec.Job.ID), layout.Bytes)
		return err
	})
	if err != nil {
		return fmt.Errorf("create input object: %w", err)
	}
	defer w.Abort()
	if err := g.mark(ctx, func(r *store.Record, now time.Time) { r.DownloadStarted = &now }); err != nil {
		return err
	}
	// What has come is not let go of while the bucket may come back and the server
	// waits.
	held := &heldUp{w: w}
	if _, err := g.Downloader.Fetch(ctx, g.rec.Spec.URL, held); err != nil {
		return held.blame(err)
	}
	if _, err := w.Commit(); err != nil {
		return fmt.Errorf("commit input object: %w", err)
	}
	return g.downloaded(ctx)
}

// downloaded records that the input is whole.
func (g *ingester) downloaded(ctx context.Context) error {
	return g.mark(ctx, func(r *store.Record, now time.Time) {
		if r.DownloadStarted == nil {
			r.DownloadStarted = &now
		}
		r.DownloadFinished = &now
	})
}

// A heldUp writer knows for how long it was held up at most.
type heldUp struct {
	w       io.Writer
	longest time.Duration
}

func (h *heldUp) Write(p []byte) (int, error) {
	began := time.Now()
	n, err := h.w.Write(p)
	h.longest = max(h.longest, time.Since(began))
	return n, err
}

// blame adds to the fault of a server that we let it wait for long.
func (h *heldUp) blame(err error) error {
	var failure *rowmill.Failure
	if h.longest < patienceOfServers || !errors.As(err, &failure) || failure.Code != rowmill.CodeDownloadFailed {
		return err
	}
	told := *failure
	told.Message += fmt.Sprintf(" The service's object storage could not be used for %v meanwhile, in which nothing more was taken from the server.", h.longest.Round(time.Second))
	return &told
}

// patienceOfServers is for how long a server that sends a file surely waits until
// more of it is taken.
const patienceOfServers = 10 * time.Second

func (g *ingester) mark(ctx context.Context, set func(*store.Record, time.Time)) error {
	now := g.Clock().UTC()
	var updated store.Record
	err := g.Wait(ctx, func() (err error) {
		updated, err = g.Jobs.Update(ctx, g.fence, func(r *store.Record) error {
			set(r, now)
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("record download: %w", err)
	}
	*g.rec = updated
	return nil
}
