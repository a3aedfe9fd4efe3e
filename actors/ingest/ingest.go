// Package ingest turns the input of a job into shards: it downloads and reads the input,
// makes prompts from rows, counts tokens, checks quotas, and estimates the cost. It owns
// the objects below layout.InputPrefix. It writes under the fence of the job's owner, which the
// caller passes. The package uses no actors and no engines, and runs no rows.
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
	"github.com/rowmill/rowmill/input/sources"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// Config has the settings and dependencies of ingest, the same for all jobs. All fields
// are required unless their comment says otherwise.
type Config struct {
	Jobs       store.Jobs
	Parts      store.Parts
	Bucket     blob.Bucket
	Downloader Downloader
	Limits     input.Limits
	Sources    *sources.Sources // nil if the node has none
	Clock      func() time.Time

	// Downloads has the downloads of this node. Address is the HOST:PORT at which other nodes
	// reach this node; it is empty on a single node. DownloadsAt asks the node at address
	// whether it downloads the input of job; an error means that the node did not answer.
	// After no answer for Silence, the downloads of a node count as lost.
	Downloads   *Downloads
	Address     string
	DownloadsAt func(ctx context.Context, address, job string) (bool, error)
	Silence     time.Duration

	// Wait calls do again while it fails temporarily. Patient returns a context under which
	// each call of Bucket is retried in the same way, until done is called.
	Wait    func(ctx context.Context, do func() error) error
	Patient func(ctx context.Context) (patient context.Context, done func())

	// Confirm is store.Store.Confirm. It returns nil if this owner may remove an object,
	// because no other owner can need the object.
	Confirm func(ctx context.Context) error

	// Turn waits until the input may be read, because reading takes memory. The caller
	// must call leave afterwards. It returns false if ctx ends first.
	Turn func(ctx context.Context) (leave func(), ok bool)

	// Compute waits for the use of one of the node's processors. The caller must call leave
	// afterwards. It returns false if ctx ends first. Inputs with many rows take turns,
	// so that other work gets processors too.
	Compute func(ctx context.Context) (leave func(), ok bool)

	// Ready is called with shards that may run while the input is still being read; nil
	// if the job must wait until Run returns.
	Ready func(EarlyShards)

	// Stream takes one of a few places for inputs that are cut during their download, which
	// needs memory. The caller must call leave afterwards. It returns false if no place is
	// free.
	Stream func() (leave func(), ok bool)

	// ShardRows and ShardBytes limit the rows and the uncompressed bytes of a shard. A single
	// row may be larger.
	ShardRows  int
	ShardBytes int64

	// DedupRows is the maximum number of different rows to remember for a job in which
	// equal rows run once: about 45 bytes of memory each while the input is read.
	DedupRows int

	// An estimate runs a sample of at most SampleRows rows. If the rows are long, the sample has
	// fewer rows, with about SampleTokens tokens.
	SampleRows   int
	SampleTokens int64
}

// An ingester ingests the input of one job.
type ingester struct {
	Config
	fence     store.Fence
	counter   *prompt.Counter
	rec       *store.Record
	groups    *order.PrefixGrouper // groups of the rows that were cut
	copies    *copyFinder          // finds equal rows; nil if the job does not look for copies
	id        string               // id of the job
	spec      rowmill.Spec         // spec of the job
	size      int64                // size of the original input in bytes; 0 if unknown
	announced int                  // number of shards that were passed to Ready
	digests   *digestWriter        // writes the digests of the rows that are cut; nil without Spec.Reuse
	files     *fileRows            // reads the files of a source; nil for other inputs

	follower *downloadFollower // reads the input during the download; nil at other times
	// whole has the shards that were cut during the download. It has no rows if the cut
	// did not reach the end.
	whole   shard.Manifest
	failure error // why the job fails, if the cut during the download found this
}

// Run returns the manifest of the input of rec, and makes the shards if an earlier run
// has not completed them. Run may be repeated after a crash, because shards have fixed
// keys and the manifest is written last. Only a download is never repeated. If the
// store has lost rows that the job took over from another job, they are taken over
// again. A *rowmill.Failure means that the input is wrong; any other error is an error
// of the system. Run keeps rec equal to the stored record.
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
	forgot := err == nil && (rec.Spec.Continue != nil || rec.Spec.Reuse != nil) && m.Taken != rec.Job.RowsTakenOver
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
		if g.whole.Rows > 0 { // the input was cut during the download
			return g.whole, nil
		}
	}
	if rec.Spec.FromJob != "" { // first: the other job may need the turn
		if err := g.awaitJobInput(ctx, rec.Spec.FromJob); err != nil {
			return m, err
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

// cutFrom writes the shards of a job's input and their list. source is the record of
// this job, or of the job that this job continues.
func (g *ingester) cutFrom(ctx context.Context, source store.Record) (m shard.Manifest, err error) {
	if !keepsAfterCut(source) {
		if err := g.keepColumns(ctx, source); err != nil {
			return m, err
		}
	}
	switch {
	case g.spec.Reuse != nil:
		m, err = g.reuse(ctx, source)
	case g.spec.Limit > 0 || g.spec.Estimate:
		m, err = g.cutSample(ctx, source)
	default:
		m, err = g.cutInput(ctx, source)
	}
	if err == nil && g.spec.URL != "" {
		g.dropDownload(ctx)
	}
	return m, err
}

// cutInput writes all rows of a job's stored input as shards, and their list.
func (g *ingester) cutInput(ctx context.Context, source store.Record) (m shard.Manifest, err error) {
	rows, err := g.open(ctx, source)
	if err != nil {
		return m, err
	}
	if m, err = g.cutRows(ctx, rows, results.FieldColumns(source.Spec.Function)); err != nil {
		return m, err
	}
	if keepsAfterCut(source) {
		if err := g.keepColumns(ctx, source); err != nil {
			return m, err
		}
	}
	return m, g.writeManifestAndLists(ctx, &m)
}

// keepsAfterCut reports whether the kept columns are stored after the shards. The columns of many files of
// a source take long to read, and rows can run meanwhile. Other inputs are in the bucket, so a missing
// column is found first.
func keepsAfterCut(source store.Record) bool { return source.Spec.Source != "" }

// dropDownload removes the stored download after its shards are written. If this fails,
// the object is removed later together with the input.
func (g *ingester) dropDownload(ctx context.Context) {
	if g.Confirm(ctx) == nil {
		_ = g.Bucket.Delete(ctx, layout.RawInputKey(g.id))
	}
}

// writeManifestAndLists writes the groups, the list of copies, and the list of shards. Later
// owners of the job then use the shards and do not read the input again.
func (g *ingester) writeManifestAndLists(ctx context.Context, m *shard.Manifest) (err error) {
	if m.Groups, err = g.writeGroups(ctx); err != nil {
		return err
	}
	if err := g.copies.commit(); err != nil {
		return err
	}
	if g.digests != nil {
		if err := g.digests.commit(); err != nil {
			return err
		}
	}
	if err := g.writeFileRows(ctx); err != nil {
		return err
	}
	return writeManifest(ctx, g.Bucket, g.id, *m)
}

// cutRows writes all rows as shards and closes the reader.
func (g *ingester) cutRows(ctx context.Context, rows input.Reader, fields []string) (m shard.Manifest, err error) {
	m, err = g.cut(ctx, rows, fields)
	if err = errors.Join(err, rows.Close()); err != nil {
		return m, err
	}
	if m.Rows == 0 {
		return m, errNoDataRows
	}
	return m, nil
}

// errNoDataRows means that an input has no rows.
var errNoDataRows = rowmill.Failf(rowmill.CodeInvalidInputFile, "The input has no data rows. Give a file with a header and at least one row.")

// inline returns the manifest of rows that are in the record and need no objects. It
// counts their tokens and finds copies.
func (g *ingester) inline(ctx context.Context) (shard.Manifest, error) {
	m := shard.InlineManifest(g.rec.Spec.Inline)
	if err := checkRows(m.Rows, false, &g.rec.Spec); err != nil {
		return m, err
	}
	counted := newInputCounter(g.counter, &g.spec).begin(ctx)
	if g.spec.Dedup {
		g.copies = newCopyFinder(len(g.spec.Inline), nil)
	}
	for row, text := range g.spec.Inline {
		if g.copies != nil && g.copies.add(int64(row), text) {
			m.Copies++
			continue
		}
		if err := counted.addRow(int64(row), text); err != nil {
			break // close returns the reason
		}
	}
	var err error
	m.Tokens, err = counted.close()
	return m, err
}

// rowSource is a reader of rows that also closes the object from which it reads.
type rowSource struct {
	input.Reader
	object io.Closer
}

func (r rowSource) Close() error { return errors.Join(r.Reader.Close(), r.object.Close()) }

// open returns a reader of the stored input of source, which is this job or the job
// that this job continues.
func (g *ingester) open(ctx context.Context, source store.Record) (input.Reader, error) {
	switch spec := &source.Spec; {
	case spec.FromJob != "":
		return g.openJobInput(ctx, spec.FromJob)
	case spec.Source != "":
		return g.openFiles(ctx, source)
	}
	own := source.Job.ID == g.rec.Job.ID
	o, err := g.Bucket.Open(ctx, inputKey(&source))
	if !own && errors.Is(err, rowmill.ErrNotFound) {
		return nil, inputGoneFailure(source.Job.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("open input: %w", err)
	}
	if source.Spec.URL == "" { // a download is stored compressed, so its size is unknown
		g.size = o.Size()
	}
	rows, err := g.read(o, &source.Spec)
	if err != nil {
		o.Close()
		return nil, err
	}
	return rowSource{rows, o}, nil
}

// inputKey returns the key of a job's stored input.
func inputKey(rec *store.Record) string {
	if rec.Spec.URL != "" {
		return layout.RawInputKey(rec.Job.ID)
	}
	return rec.Spec.Spooled
}

// read returns a reader of the rows in an object. If the job runs a Function, the
// reader makes a prompt from each row.
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

// readSpooled returns a reader of rows that the client sent within the submission.
func (g *ingester) readSpooled(src io.Reader, spec *rowmill.Spec) (input.Reader, error) {
	if spec.Function == nil {
		return input.NewSpooledReader(src), nil
	}
	template, err := promptOf(spec)
	limit := g.Limits.WithDefaults().MaxRowBytes
	return input.NewSpooledObjectReader(src, func(row int64, object []byte) (text, fields string, err error) {
		return renderRow(template, row, object, limit)
	}), err
}

// options returns the options for reading an input file. If the job runs a Function,
// they say how to make a prompt from a row.
func (g *ingester) options(spec *rowmill.Spec) (opts input.Options, err error) {
	opts = input.Options{
		Format: input.Format(spec.Format), Name: cmp.Or(spec.FileName, input.FileNameFromURL(spec.URL)),
		Column: spec.Column, IDColumn: spec.IDColumn, Limits: g.Limits.WithDefaults(),
	}
	if spec.Function == nil {
		return opts, nil
	}
	template, err := promptOf(spec)
	if err != nil {
		return opts, err
	}
	opts.Fields = template.InputFields(func(values []string) string { return keptFields(template, values) })
	return opts, nil
}

// promptOf returns the compiled prompt of the job's Function.
func promptOf(spec *rowmill.Spec) (*function.Prompt, error) {
	template, err := function.NewPrompt(*spec.Function)
	if err != nil {
		return nil, fmt.Errorf("compile the prompt of the Function: %w", err) // unexpected: the prompt was checked before
	}
	return template, nil
}

// renderRow makes the prompt of a row that the client sent within the submission. It
// checks the size, which is known only after the prompt is made.
func renderRow(template *function.Prompt, row int64, object []byte, limit int64) (text, fields string, err error) {
	given, err := function.ParseRow(object)
	if err != nil {
		return "", "", err
	}
	values, _ := template.Values(given) // no value is missing: this was checked at submission
	if size := template.Size(values); size > limit {
		return "", "", rowmill.Failf(rowmill.CodeInvalidInputFile,
			"The prompt of row %d has %d bytes, more than %d. Shorten or split its values.", row, size, limit)
	}
	return template.Render(values), keptFields(template, values), nil
}

// keptFields returns the values of a row for the columns of results.FieldColumns, in the
// encoding of rowmill.Row.Fields.
func keptFields(template *function.Prompt, values []string) string {
	shown := make([]string, 0, len(values))
	for i, in := range template.Inputs() {
		if !results.IsReservedName(in.Name) {
			shown = append(shown, values[i])
		}
	}
	if len(shown) == 0 {
		return ""
	}
	return results.EncodeFields(shown)
}
