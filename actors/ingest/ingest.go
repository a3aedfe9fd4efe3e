// Package ingest turns the input of a job into shards: it downloads, reads, makes
// prompts of rows, counts their tokens, holds them against the quotas, and says
// what they may cost. It owns the objects below layout.Input. Whether it may do
// so is said by the fence that its caller gives; it knows no actors, no engines
// and nothing of how rows run.
package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/order"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/input/function"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
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

	// Downloads are those of this node, at Address: HOST:PORT, for others; empty on
	// a node that stands alone. DownloadsAt asks another, and an error says that it
	// did not answer. One that is silent for Silence has let go of what it had begun.
	Downloads   *Downloads
	Address     string
	DownloadsAt func(ctx context.Context, address, job string) (bool, error)
	Silence     time.Duration

	// Wait repeats what may fail for a while. Patient is a context under which one
	// call of Bucket does the same by itself, until done.
	Wait    func(ctx context.Context, do func() error) error
	Patient func(ctx context.Context) (patient context.Context, done func())

	// Turn waits until the input may be read, since that takes memory, and returns
	// what to call then; false when ctx ends first.
	Turn func(ctx context.Context) (leave func(), ok bool)

	// Compute waits for a moment of the node's processors, and returns what to call
	// at its end; false when ctx ends first. Inputs of many rows take them one after
	// another, so that they leave the processors to other work.
	Compute func(ctx context.Context) (leave func(), ok bool)

	// Ready hears of shards that may run while the input is still being read, where
	// the job may begin early; nil where it has to wait for Run.
	Ready func(Begun)

	// Stream takes a place for an input that is cut while it is downloaded, which
	// takes memory for as long as that lasts, and returns what to call then; false
	// where there is none.
	Stream func() (leave func(), ok bool)

	// ShardRows and ShardBytes bound a shard before it is compressed. One row may be
	// larger.
	ShardRows  int
	ShardBytes int64

	// DedupRows is how many different rows of a job are remembered that wants equal
	// ones to run once: about 45 bytes of memory each while the input is read.
	DedupRows int

	// An estimate of an input of at least SampleFrom tokens runs the first rows,
	// which have SampleTokens.
	SampleFrom   int64
	SampleTokens int64
}

// An ingester is at work on one job.
type ingester struct {
	Config
	fence   store.Fence
	counter *prompt.Counter
	rec     *store.Record
	groups  *order.Groups // of the rows that are cut
	copies  *copies       // among them; nil where nobody looks for any
	id      string        // of the job
	spec    rowmill.Spec  // of it
	size    int64         // bytes of the input as it came, 0 where that is not known
	told    int           // shards that Ready has heard of

	follower *follower      // reads the download, nil where nobody does
	whole    shard.Manifest // of what was cut so; no rows where not all was
	failure  error          // of rows that were cut so
}

// Run returns the manifest of rec's input, from what an earlier run left where
// that is complete. It may be repeated after a crash: shards have fixed keys and
// the manifest comes last. Only a download is never repeated; where the store has
// forgotten what a job took over, that is taken over again. A *rowmill.Failure is
// the input's fault, any other error the system's. rec follows what is recorded.
func Run(ctx context.Context, cfg Config, rec *store.Record, fence store.Fence, counter *prompt.Counter) (shard.Manifest, error) {
	if rec.ShardRows > 0 {
		cfg.ShardRows, cfg.ShardBytes = rec.ShardRows, rec.ShardBytes
	}
	g := &ingester{Config: cfg, fence: fence, counter: counter, rec: rec, id: rec.Job.ID, spec: rec.Spec}
	defer func() { g.copies.drop() }()
	if rec.Spec.Inline != nil {
		return g.inline(ctx)
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
		if g.failure != nil {
			return shard.Manifest{}, g.failure
		}
		if g.whole.Rows > 0 { // it was cut meanwhile
			return g.whole, nil
		}
	}
	leave, ok := cfg.Turn(ctx)
	if !ok {
		return m, ctx.Err()
	}
	defer leave()
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
	if m, err = g.cutRows(ctx, rows, fieldColumns(&source.Spec)); err != nil {
		return m, err
	}
	if err := g.list(ctx, &m); err != nil {
		return m, err
	}
	if g.spec.URL != "" {
		g.dropDownload(ctx)
	}
	return m, nil
}

// dropDownload removes what is stored of a download of which there are shards. What
// stays of it goes with the rest of the input.
func (g *ingester) dropDownload(ctx context.Context) { _ = g.Bucket.Delete(ctx, layout.Raw(g.id)) }

// list writes which rows begin alike or are equal, and the list of shards. Whoever
// takes the job over from now on reads shards.
func (g *ingester) list(ctx context.Context, m *shard.Manifest) (err error) {
	if m.Groups, err = g.writeGroups(ctx); err != nil {
		return err
	}
	if err := g.copies.commit(); err != nil {
		return err
	}
	return writeManifest(ctx, g.Bucket, g.id, *m)
}

// cutRows makes shards of rows to their end, and closes them.
func (g *ingester) cutRows(ctx context.Context, rows input.Reader, fields []string) (m shard.Manifest, err error) {
	m, err = g.cut(ctx, rows, fields)
	if err = errors.Join(err, rows.Close()); err != nil {
		return m, err
	}
	if m.Rows == 0 {
		return m, rowmill.Failf(rowmill.CodeInvalidInputFile,
			"The input has no data rows. Give a file with a header and at least one row.")
	}
	return m, nil
}

// inline counts rows that are in the record and need no objects.
func (g *ingester) inline(ctx context.Context) (shard.Manifest, error) {
	m := shard.Inline(g.rec.Spec.Inline)
	if err := checkRows(m.Rows, false, &g.rec.Spec); err != nil {
		return m, err
	}
	counted := newInputCounter(g.counter, &g.spec, g.SampleTokens).begin(ctx)
	if g.spec.Dedup {
		g.copies = newCopies(len(g.spec.Inline), nil)
	}
	for row, text := range g.spec.Inline {
		if g.copies != nil && g.copies.add(int64(row), text) {
			m.Copies++
			continue
		}
		if err := counted.addRow(int64(row), text); err != nil {
			break // close says it
		}
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
	if source.Spec.URL == "" { // else it is kept packed
		g.size = o.Size()
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
	if spec.Raw != nil {
		return input.OpenBatch(blob.NewReader(o), spec.Raw.Path, g.Limits), nil
	}
	if spec.URL == "" && spec.File == "" {
		return g.readSpooled(blob.NewReader(o), spec)
	}
	opts, err := g.options(spec)
	if err != nil {
		return nil, err
	}
	return input.Open(o, o.Size(), opts)
}

// readSpooled reads rows that came with their submission.
func (g *ingester) readSpooled(src io.Reader, spec *rowmill.Spec) (input.Reader, error) {
	if spec.Function == nil {
		return input.Spooled(src), nil
	}
	template, err := promptOf(spec)
	limit := g.Limits.WithDefaults().MaxRowBytes
	return input.SpooledObjects(src, func(row int64, object []byte) (text, fields string, err error) {
		return renderRow(template, row, object, limit)
	}), err
}

// options say how a file is read, and its rows are made prompts of where the job
// runs a Function.
func (g *ingester) options(spec *rowmill.Spec) (opts input.Options, err error) {
	opts = input.Options{
		Format: input.Format(spec.Format), Name: cmp.Or(spec.FileName, input.NameOf(spec.URL)),
		Column: spec.Column, IDColumn: spec.IDColumn, Limits: g.Limits.WithDefaults(),
	}
	if spec.Function == nil {
		return opts, nil
	}
	template, err := promptOf(spec)
	if err != nil {
		return opts, err
	}
	opts.Fields = &input.Fields{Size: template.Size, Render: template.Render, Keep: func(values []string) string { return keptFields(template, values) }}
	for _, in := range template.Inputs() {
		opts.Fields.Names = append(opts.Fields.Names, in.Name)
		opts.Fields.Required = append(opts.Fields.Required, in.Required)
	}
	return opts, nil
}

func promptOf(spec *rowmill.Spec) (*function.Prompt, error) {
	template, err := function.NewPrompt(*spec.Function)
	if err != nil {
		return nil, fmt.Errorf("prompt of the Function: %w", err) // it was checked when it was published
	}
	return template, nil
}

// renderRow makes the prompt of a spooled row. What a short template makes of
// long values is known only here, so it may be too long.
func renderRow(template *function.Prompt, row int64, object []byte, limit int64) (text, fields string, err error) {
	given, err := function.ParseRow(object)
	if err != nil {
		return "", "", err
	}
	values, _ := template.Values(given) // none is missing: that was checked at submission
	if size := template.Size(values); size > limit {
		return "", "", rowmill.Failf(rowmill.CodeInvalidInputFile,
			"The prompt of row %d has %d bytes, more than %d. Shorten or split its values.", row, size, limit)
	}
	return template.Render(values), keptFields(template, values), nil
}

// fieldColumns are the columns that the fields of a job's rows have in results.
func fieldColumns(spec *rowmill.Spec) (names []string) {
	if spec.Function == nil {
		return nil
	}
	for _, in := range spec.Function.Inputs {
		if !results.FieldHidden(in.Name) {
			names = append(names, in.Name)
		}
	}
	return names
}

// keptFields are the values that fieldColumns names, as rows have them.
func keptFields(template *function.Prompt, values []string) string {
	shown := make([]string, 0, len(values))
	for i, in := range template.Inputs() {
		if !results.FieldHidden(in.Name) {
			shown = append(shown, values[i])
		}
	}
	if len(shown) == 0 {
		return ""
	}
	return results.FieldsOf(shown)
}
