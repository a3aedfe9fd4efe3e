package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// A takeover copies the input and the committed rows of an old job to a new job. It
// copies each shard, writes its committed rows as one part, and commits this part as
// carried. A takeover may be repeated after any failure: a shard with a committed
// carried part is not taken over again, and the manifest is written last. If the store
// has lost a carried part, the new job may have run some of its rows meanwhile; the
// takeover leaves these rows out.
type takeover struct {
	*ingester
	old     store.Record           // record of the old job
	failed  bool                   // failed rows of the old job run again in the new job
	rest    bool                   // rows that the limit of the old job left out run too
	source  string                 // name of the old job in the keys of its input
	input   shard.Manifest         // manifest of the input that the new job uses
	sample  *sampleTakeover        // the old job's rows in the whole input; nil if the new job has the same rows
	reused  *reusedRows            // rows of finished jobs; then old is the new job itself, and rows is nil
	rows    *archive.CommittedRows // the committed rows of the old job
	schema  results.Schema         // schema of the rows to take over
	counted *inputTokenCounter     // counts the tokens of the rows that will run
	taken   int64                  // number of rows that were taken over
	runs    int64                  // number of rows that will run
}

// takeOver returns the manifest of a job that continues another job. The manifest's
// Tokens covers only the rows that will run. Each time takeOver finds that parts of the
// old job are lost, it starts again without these parts.
func (g *ingester) takeOver(ctx context.Context) (m shard.Manifest, err error) {
	for again := true; again; {
		m, again, err = g.takeOverOnce(ctx)
	}
	return m, err
}

// takeOverOnce is one attempt of takeOver. lost is true if it found lost parts, so that
// another attempt is needed.
func (g *ingester) takeOverOnce(ctx context.Context) (m shard.Manifest, lost bool, err error) {
	t := &takeover{ingester: g}
	id := g.rec.Spec.Continue.Job
	cut, err := t.findOldJob(ctx)
	if err != nil {
		return m, false, err
	}
	err = g.Jobs.MarkContinued(ctx, id, g.rec.Job.ID) // again: an earlier attempt may have failed
	if errors.Is(err, rowmill.ErrConflict) {          // the store has lost the record of the old job's end
		err = fmt.Errorf("%w: %w", rowmill.ErrUnavailable, err)
	}
	if err != nil {
		return m, false, fmt.Errorf("record which job continues %s: %w", id, err)
	}
	if !cut {
		m, err = g.cutFrom(ctx, t.old)
		return m, false, err
	}
	if len(g.spec.Keep) > 0 {
		if err := g.Bucket.Copy(ctx, layout.KeptColumnsKey(t.old.Job.ID), layout.KeptColumnsKey(g.id)); err != nil {
			return m, false, fmt.Errorf("copy the kept columns: %w", t.explain(err))
		}
	}
	if g.spec.Sink != nil {
		if err := g.copyFileList(ctx, t.old.Job.ID); err != nil && !errors.Is(err, rowmill.ErrNotFound) { // a job has no list if its rows are not files of a source
			return m, false, fmt.Errorf("copy the list of files: %w", err)
		}
	}
	shelf := archive.New(struct {
		store.Jobs
		store.Parts
	}{g.Jobs, g.Parts}, g.Bucket, slog.New(slog.DiscardHandler))
	if t.rows, err = shelf.OpenCommitted(ctx, t.old); err == nil {
		defer t.rows.Close()
		t.schema = t.rows.Schema
		m, err = t.run(ctx)
	}
	if err != nil && t.old.Job.Status != rowmill.StatusSucceeded {
		_, err = shelf.MarkLostParts(ctx, t.old, err)
		if errors.Is(err, archive.ErrBusy) { // a missing object may still appear
			err = fmt.Errorf("%w: %w", rowmill.ErrUnavailable, err)
		}
		return m, err == nil, t.explain(err)
	}
	if err != nil {
		return m, false, t.explain(err)
	}
	return m, false, writeManifest(ctx, g.Bucket, g.rec.Job.ID, m)
}

// findOldJob reads the record of the old job: the job to continue. If that job ended before
// it took over the rows of its own predecessor, findOldJob uses the predecessor, which has
// all rows. cut is true if the old job has shards.
func (t *takeover) findOldJob(ctx context.Context) (cut bool, err error) {
	for next := t.rec.Spec.Continue; ; next = t.old.Spec.Continue {
		t.failed, t.rest = t.failed || next.Failed, t.rest || next.Rest
		t.old, err = t.Jobs.Get(ctx, next.Job)
		switch {
		case errors.Is(err, rowmill.ErrNotFound): // records are never removed; a node may write this one again
			return false, fmt.Errorf("the store has lost job %s, which this job continues", next.Job)
		case err != nil:
			return false, fmt.Errorf("read the job to continue: %w", err)
		case t.old.DataRemoved != nil || t.old.InputRemoved != nil:
			return false, inputGoneFailure(next.Job)
		case !t.old.Job.Status.IsTerminal(): // the old job had ended before this job was submitted
			return false, fmt.Errorf("%w: the store has lost the record that job %s ended; its status is now %s", rowmill.ErrUnavailable, next.Job, t.old.Job.Status)
		}
		t.source = next.Job
		t.input, err = t.manifest(ctx)
		if err == nil && t.rest {
			return true, t.findWholeInput(ctx)
		}
		if !errors.Is(err, rowmill.ErrNotFound) {
			return err == nil, err
		}
		if t.old.Spec.Continue == nil {
			return false, nil
		}
	}
}

// inputGoneFailure returns the failure of a job that continues the job id, whose input does
// not exist any more.
func inputGoneFailure(id string) *rowmill.Failure {
	return rowmill.Failf(rowmill.CodeDownloadFailed,
		"The input of %s, which this job continues, is not kept any more. Submit it again as a new job.", id)
}

// explain returns a failure in place of an error that says that an object of the old
// job is missing. It returns other errors unchanged.
func (t *takeover) explain(err error) error {
	if t.reused == nil && (errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, blob.ErrLost)) {
		return errors.Join(inputGoneFailure(t.old.Job.ID), err)
	}
	return err
}

// manifest returns the list of shards of the old job.
func (t *takeover) manifest(ctx context.Context) (shard.Manifest, error) {
	if t.old.Spec.Inline != nil {
		return shard.InlineManifest(t.old.Spec.Inline), nil
	}
	return archive.ReadManifest(ctx, t.Bucket, &t.old)
}

// run takes over one shard after another, and returns the manifest of the new job.
func (t *takeover) run(ctx context.Context) (m shard.Manifest, err error) {
	committed, err := t.Parts.ListParts(ctx, t.rec.Job.ID)
	if err != nil {
		return m, fmt.Errorf("read parts: %w", err)
	}
	have := make(map[int][]store.Part)
	for _, p := range committed {
		have[p.Shard] = append(have[p.Shard], p)
	}
	if t.sample != nil {
		t.sample.begin(ctx, t.rows)
		defer t.sample.stop()
	}
	t.counted = newInputCounter(t.counter, &t.spec).begin(ctx)
	t.lookForCopies(ctx)
	m = shard.Manifest{IDType: t.input.IDType, Fields: t.input.Fields, Rows: t.input.Rows, Sample: t.input.Sample, InputRows: t.input.InputRows}
	for n := range t.input.Shards {
		var info shard.ManifestEntry
		var taken *roaring.Bitmap
		if info, err = t.copyShard(ctx, n); err == nil {
			taken, err = t.takeShard(ctx, n, info, have[n])
		}
		if err == nil {
			err = t.countRemainingRows(ctx, n, info, taken)
		}
		if err != nil {
			break
		}
		t.taken += int64(taken.GetCardinality())
		m.Shards = append(m.Shards, info)
	}
	tokens, failure := t.counted.close()
	if err = errors.Join(err, failure); err != nil {
		return m, err
	}
	m.Tokens, m.Taken = tokens, t.taken
	err = t.recordTakeover(ctx, &m)
	return m, err
}

// recordTakeover writes the lists of copies and groups, and stores the number of rows taken
// over in the job's record.
func (t *takeover) recordTakeover(ctx context.Context, m *shard.Manifest) (err error) {
	if t.copies != nil {
		m.Copies = t.copies.count
	}
	if err := t.copies.commit(); err != nil {
		return err
	}
	if m.Groups, err = t.copyGroups(ctx); err != nil {
		return err
	}
	updated, err := t.Jobs.Update(ctx, t.fence, func(r *store.Record) error {
		r.Job.RowsTakenOver = m.Taken
		return nil
	})
	if err != nil {
		return fmt.Errorf("record the rows taken over: %w", err)
	}
	*t.rec = updated
	return nil
}

// copyShard copies shard n of the old job to the new job.
func (t *takeover) copyShard(ctx context.Context, n int) (shard.ManifestEntry, error) {
	if texts := t.old.Spec.Inline; texts != nil {
		return writeInline(ctx, t.Bucket, t.rec.Job.ID, texts)
	}
	if err := t.Bucket.Copy(ctx, layout.ShardKey(t.source, n), layout.ShardKey(t.rec.Job.ID, n)); err != nil {
		return shard.ManifestEntry{}, fmt.Errorf("copy shard %d: %w", n, t.explain(err))
	}
	return t.input.Shards[n], nil
}

// takeShard returns the rows of shard n that are taken over. It commits them, unless
// parts of the new job already have them. parts are the parts of the new job for this
// shard.
func (t *takeover) takeShard(ctx context.Context, n int, info shard.ManifestEntry, parts []store.Part) (*roaring.Bitmap, error) {
	own := roaring.New()
	for _, p := range parts {
		rows, err := archive.AcceptedRows(p)
		if p.Carried && t.sample != nil {
			t.sample.takeTruncated(p.Totals.TruncatedRows)
		}
		if err != nil || p.Carried {
			return rows, err
		}
		own.Or(rows)
	}
	if own.GetCardinality() < uint64(info.Rows) {
		return t.carryShard(ctx, n, info, own)
	}
	// In a merged part the carried rows are no longer marked.
	return t.forEachTakenRow(ctx, n, info, func(*rowmill.Row, *rowmill.RowOutput) error { return nil })
}

// forEachTakenRow calls visit for each row of shard n to take over: a row that the old job
// has committed, unless it failed there and should run again. It returns the set of
// these rows.
func (t *takeover) forEachTakenRow(ctx context.Context, n int, info shard.ManifestEntry, visit results.RowVisitor) (*roaring.Bitmap, error) {
	rows := roaring.New()
	take := func(row *rowmill.Row, out *rowmill.RowOutput) error {
		if out.Failed() && t.failed {
			return nil
		}
		rows.Add(uint32(row.Index - info.First))
		return visit(row, out)
	}
	var err error
	switch {
	case t.sample != nil:
		err = t.sample.eachRowOfShard(info, take)
	case t.reused != nil:
		err = t.reused.eachRowOfShard(ctx, info, take)
	default:
		err = t.rows.EachRowOfShard(ctx, n, info.First, info.Rows, take)
	}
	if err != nil {
		return nil, fmt.Errorf("take over rows of shard %d: %w", n, err)
	}
	return rows, nil
}

// errNoRows stops the writing of a part if a shard has no rows to take over.
var errNoRows = errors.New("no rows are taken over")

// carryShard writes the rows of shard n to take over as a carried part, commits the part,
// and returns its rows. own has rows that the new job has run itself; carryShard leaves
// them out. The totals have no tokens, because the tokens of these rows belong to the old
// job. But estimates cost nothing, so the new job pays for the rows that an estimate ran.
func (t *takeover) carryShard(ctx context.Context, n int, info shard.ManifestEntry, own *roaring.Bitmap) (taken *roaring.Bitmap, err error) {
	schema := t.schema
	schema.JobID, schema.Output, schema.IDType, schema.Fields = t.rec.Job.ID, t.rec.Spec.Output, t.input.IDType, t.input.Fields
	part := store.Part{Key: layout.CarriedPartKey(t.rec.Job.ID, n), Shard: n, Carried: true, Unpaid: t.old.Job.RunType == rowmill.RunEstimate}
	part.Size, err = archive.WritePart(ctx, t.Bucket, part.Key, schema, func(file *results.PartWriter) (err error) {
		taken, err = t.forEachTakenRow(ctx, n, info, func(row *rowmill.Row, out *rowmill.RowOutput) error {
			switch {
			case own.Contains(uint32(row.Index - info.First)):
				return nil
			case out.Failed():
				part.Totals.Failed++
			case out.Finish == rowmill.FinishLength:
				part.Totals.TruncatedOutputs++
			}
			if part.Unpaid && !out.Failed() {
				part.Totals.InputTokens += out.InputTokens
				part.Totals.OutputTokens += out.OutputTokens
			}
			return file.Add(row, out)
		})
		if err != nil {
			return err
		}
		if taken.AndNot(own); taken.IsEmpty() {
			return errNoRows
		}
		return nil
	})
	switch {
	case errors.Is(err, errNoRows):
		return taken, nil
	case err != nil:
		return nil, fmt.Errorf("write a part of shard %d: %w", n, err)
	}
	part.Rows = int64(taken.GetCardinality())
	part.Totals.Rows = part.Rows
	switch {
	case t.sample != nil:
		part.Totals.TruncatedRows = t.sample.takeTruncated(part.Rows)
	case t.rows != nil: // reused rows do not say whether they were truncated
		part.Totals.TruncatedRows = t.rows.TruncatedRows(n)
	}
	if part.Complete = part.Rows == int64(info.Rows); !part.Complete {
		part.Accepted, _ = taken.ToBytes() // writing to memory cannot fail
	}
	return taken, t.Parts.CommitParts(ctx, t.fence, []store.Part{part})
}

// countRemainingRows adds the rows of shard n that will run to the counter, and checks the quotas.
// taken has the rows that are taken over and do not run.
func (t *takeover) countRemainingRows(ctx context.Context, n int, info shard.ManifestEntry, taken *roaring.Bitmap) error {
	left := int64(info.Rows) - int64(taken.GetCardinality())
	t.runs += left
	if err := checkRows(t.runs, true, &t.rec.Spec); err != nil || left == 0 && t.copies == nil {
		return err
	}
	rows, err := archive.OpenShard(ctx, t.Bucket, t.rec.Job.ID, &t.rec.Spec, n, info)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // opened for reading only
	for at := 0; at < info.Rows; {
		block, err := rows.ReadBlock(rows.BlockOf(at))
		if err != nil {
			return err
		}
		for ; at < block.First+block.Rows(); at++ {
			if err := t.countRow(info.First+int64(at), block.Text(at), taken.Contains(uint32(at))); err != nil {
				return err
			}
		}
		if err := t.counted.err(); err != nil {
			return err
		}
	}
	if t.copies == nil {
		return nil
	}
	return t.copies.endShard(n, info.First)
}

// countRow adds a row to the counter, unless the row is taken over or is a copy of an
// earlier row.
func (t *takeover) countRow(row int64, text string, taken bool) error {
	switch {
	case t.copies == nil:
	case taken:
		t.copies.findFirst(row, text) // later rows may be copies of this row
	case t.copies.add(row, text):
		return nil
	}
	if taken {
		return nil
	}
	return t.counted.addRow(row, text)
}
