package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// runUntilDone runs the ingest of a job: first by an owner that dies after some writes, then by
// another owner.
func (r *rig) runUntilDone(t *rapid.T, rec *store.Record, fence store.Fence) shard.Manifest {
	r.runPartly(t, rec, fence)
	*rec = r.get(t, rec.Job.ID)
	return r.runs(t, rec, fence)
}

// runPartly runs the ingest of a job by an owner that dies after some writes.
func (r *rig) runPartly(t *rapid.T, rec *store.Record, fence store.Fence) {
	writes, again := rapid.IntRange(0, 12).Draw(t, "writes before the owner dies"), *rec
	if _, err := r.dyingRig(writes).run(t, &again, fence); err != nil && !errors.Is(err, errDied) {
		t.Fatal(err)
	}
}

// commitSome commits answers of random rows, and returns the texts of all committed rows with
// their answers. An empty answer is a failed row.
func (r *rig) commitSome(t *rapid.T, id string, fence store.Fence, m shard.Manifest, texts []string) map[string]string {
	answers := map[string]string{}
	for n, info := range m.Shards {
		within := roaring.New()
		for rel := range info.Rows {
			if rapid.Bool().Draw(t, "committed") {
				within.Add(uint32(rel))
			}
		}
		if within.IsEmpty() {
			continue
		}
		part := store.Part{Key: layout.NewPartKey(id, n, fence.Epoch), Shard: n, Rows: int64(within.GetCardinality())}
		part.Totals.Rows, part.Complete = part.Rows, int(part.Rows) == info.Rows
		if !part.Complete {
			part.Accepted, _ = within.ToBytes()
		}
		part.Size = must.Get(archive.WritePart(context.Background(), r.Bucket, part.Key, results.Schema{JobID: id, Model: "m"}, func(file *results.PartWriter) (err error) {
			for _, rel := range within.ToArray() {
				row := info.First + int64(rel)
				out := rowmill.RowOutput{Text: "answer to " + texts[row], InputTokens: 5, OutputTokens: 7, Attempts: 1}
				if rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
					out = rowmill.RowOutput{Err: &rowmill.RowError{Code: rowmill.RowRejected}}
					part.Totals.Failed++
				}
				answers[texts[row]] = out.Text
				err = errors.Join(err, file.Add(&rowmill.Row{Index: row, Text: texts[row]}, &out))
			}
			return err
		}))(t)
		must.Succeed(t, r.store.CommitParts(context.Background(), fence, []store.Part{part}))
	}
	return answers
}

// A job with a limit runs its sample. The job that runs the rest has each row of the input
// once, with the answers of the sample, wherever an owner dies.
func TestSampleAndRest(t *testing.T) {
	t.Parallel()
	base := setup(t)
	rapid.Check(t, func(t *rapid.T) {
		r := &rig{Config: base.Config, store: base.store, session: base.session}
		r.Parts, r.ShardRows = r.store, rapid.IntRange(1, 20).Draw(t, "rows of a shard")
		texts := numbered(rapid.IntRange(1, 60).Draw(t, "rows"))
		spec := rowmill.Spec{Spooled: r.spool(t, texts...), JobQuotas: rowmill.JobQuotas{RowQuota: 60}, RowChoice: rowmill.RowChoice{
			Limit: rapid.Int64Range(1, 70).Draw(t, "limit"), Sample: rapid.SampledFrom([]rowmill.Sample{rowmill.SampleFirst, rowmill.SampleRandom}).Draw(t, "sample"),
		}}
		spec.Seed = rapid.Int64().Draw(t, "seed")
		size := min(spec.Limit, int64(len(texts)))
		spec.RowQuota = size // the quota is for the sample
		rec, fence := r.job(t, spec)
		m := r.runUntilDone(t, rec, fence)
		sample := r.texts(t, rec, m)
		isChosen := func(text string) bool { return slices.Contains(sample, text) }
		switch {
		case int64(len(sample)) != size || m.InputRows != int64(len(texts)):
			t.Fatalf("%d of %d rows, want %d of %d", len(sample), m.InputRows, size, len(texts))
		case !slices.Equal(sample, slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return !isChosen(text) })):
			t.Fatalf("the sample is not in order: %q", sample)
		case spec.Sample == rowmill.SampleFirst && !slices.Equal(sample, texts[:size]):
			t.Fatalf("the sample is %q", sample)
		}
		answers := r.commitSome(t, rec.Job.ID, fence, m, sample)
		old := r.cancel(t, rec.Job.ID)
		if rapid.Bool().Draw(t, "continued before") { // by a job with the same sample
			next := rowmill.Spec{RowChoice: spec.RowChoice, Continue: &rowmill.Continuation{Job: old.Job.ID}}
			next.Seed = spec.Seed
			between, fence := r.job(t, next)
			if rapid.Bool().Draw(t, "ended early") {
				r.runPartly(t, between, fence)
			} else if again := r.runUntilDone(t, between, fence); again.InputRows != m.InputRows || again.Taken != int64(len(answers)) {
				t.Fatalf("the continuation has %+v, want %d rows taken over", again, len(answers))
			}
			old = r.cancel(t, between.Job.ID)
		}
		rest, fence := r.job(t, rowmill.Spec{Continue: &rowmill.Continuation{Job: old.Job.ID, Failed: true, Rest: true}})
		if rapid.Bool().Draw(t, "ended early") {
			r.runPartly(t, rest, fence)
			r.cancel(t, rest.Job.ID)
			rest, fence = r.job(t, rowmill.Spec{Continue: &rowmill.Continuation{Job: rest.Job.ID}})
		}
		m = r.runUntilDone(t, rest, fence)
		if got := r.texts(t, rest, m); !slices.Equal(got, texts) || m.InputRows != 0 || len(m.Sample) != 0 {
			t.Fatalf("the rest has the rows %q, %+v", got, m)
		}
		got := r.committed(t, r.cancel(t, rest.Job.ID), texts)
		for text, answer := range answers {
			if answer == "" {
				delete(answers, text)
			} else if got[text] != answer {
				t.Fatalf("%q has the answer %q, want %q", text, got[text], answer)
			}
		}
		if len(got) != len(answers) || m.Taken != int64(len(got)) || r.get(t, rest.Job.ID).Job.RowsTakenOver != m.Taken {
			t.Fatalf("%d rows are taken over, %d in the manifest, want %d", len(got), m.Taken, len(answers))
		}
	})
}

// committed returns the committed answers of a job by the text of their rows.
func (r *rig) committed(t *rapid.T, rec store.Record, texts []string) map[string]string {
	rows := must.Get(archive.New(struct {
		store.Jobs
		store.Parts
	}{r.store, r.store}, r.Bucket, slog.New(slog.DiscardHandler)).OpenCommitted(context.Background(), rec))(t)
	defer rows.Close()
	answers := map[string]string{}
	must.Succeed(t, rows.Each(context.Background(), func(row *rowmill.Row, out *rowmill.RowOutput) error {
		if row.Text != texts[row.Index] {
			return fmt.Errorf("row %d is %q", row.Index, row.Text)
		}
		answers[row.Text] = out.Text
		return nil
	}))
	return answers
}
