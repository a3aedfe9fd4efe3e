package ingest

import (
	"fmt"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// answered returns the id of an ended job with these rows. The answer to a row is the answer prefix
// and the text of the row; rows with the text "bad" failed. The IDs of the rows are their numbers.
func (r *rig) answered(t *testing.T, prefix string, texts ...string) (id string) {
	t.Helper()
	rec, _ := r.job(t, rowmill.Spec{Inline: texts})
	rows := make([]rowmill.Row, len(texts))
	for i, text := range texts {
		rows[i] = rowmill.Row{Index: int64(i), Text: text, ID: rowmill.ID{Kind: rowmill.IDInt, Int: int64(i)}}
	}
	r.finish(t, rec.Job.ID, results.Schema{IDColumn: "sku", IDType: rowmill.IDType{IDKind: rowmill.IDInt}}, prefix, rows)
	return rec.Job.ID
}

// finish ends a job with the answers to these rows, see answered.
func (r *rig) finish(t *testing.T, id string, schema results.Schema, prefix string, rows []rowmill.Row) {
	t.Helper()
	schema.JobID, schema.Model = id, "m"
	key := layout.NewPartKey(id, 0, 1)
	size := must.Get(archive.WritePart(t.Context(), r.Bucket, key, schema, func(file *results.PartWriter) error {
		for i := range rows {
			out := rowmill.RowOutput{Text: prefix + rows[i].Text, InputTokens: 5, OutputTokens: 7, Attempts: 1}
			if rows[i].Text == "bad" {
				out = rowmill.RowOutput{Err: &rowmill.RowError{Code: rowmill.RowRejected}}
			}
			if err := file.Add(&rows[i], &out); err != nil {
				return err
			}
		}
		return nil
	}))(t)
	r.cancel(t, id)
	for _, variant := range []string{layout.Full, layout.Rows} { // the part has the columns of both
		must.Get(r.store.AddArtifact(t.Context(), id, variant, store.Artifact{Key: key, Size: size}))(t)
	}
}

// reuses creates a job that takes over rows of jobs, and runs these texts.
func (r *rig) reuses(t *testing.T, by rowmill.ReuseBy, texts []string, jobs ...string) (*store.Record, store.Fence) {
	t.Helper()
	lines := ""
	for i, text := range texts {
		lines += fmt.Sprintf("%d,%s\n", i, text)
	}
	file := fmt.Sprintf("file-%d", time.Now().UnixNano())
	r.put(t, file, "sku,text\n"+lines)
	r.Parts, r.ShardRows = r.store, 2
	return r.job(t, rowmill.Spec{
		Spooled: file, InputFile: rowmill.InputFile{File: file, FileName: "rows.csv"}, ColumnChoice: rowmill.ColumnChoice{Column: "text", IDColumn: "sku"},
		Reuse: &rowmill.Reuse{From: "x", By: by, Jobs: jobs},
	})
}

// answers returns the committed answers of a job, by the number of the row.
func (r *rig) answers(t *testing.T, rec *store.Record) map[int64]string {
	t.Helper()
	found := map[int64]string{}
	shelf := archive.New(r.store, r.Bucket, nil)
	now := r.get(t, rec.Job.ID)
	rows := must.Get(shelf.OpenCommitted(t.Context(), now))(t)
	defer rows.Close()
	must.Succeed(t, rows.Each(t.Context(), func(row *rowmill.Row, out *rowmill.RowOutput) error {
		found[row.Index] = fmt.Sprint(rows.Schema.IDText(row.ID), " ", row.Text, ": ", out.Text)
		return nil
	}))
	return found
}

// A job takes over the answers to equal rows, whatever their order, and counts the tokens of the
// other rows alone. Rows that failed run again. The newest job comes first.
func TestReuse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		by     rowmill.ReuseBy
		texts  []string
		want   map[int64]string
		tokens int64
	}{
		"by text": {
			rowmill.ReuseByText,
			[]string{"c", "new row", "a", "bad", "a", "e"},
			map[int64]string{0: "0 c: old c", 2: "2 a: new a", 4: "4 a: new a", 5: "5 e: new e"},
			3, // "new row" and "bad"
		},
		"by id": {
			rowmill.ReuseByID,
			[]string{"z", "y", "x", "w", "v", "u u"},
			map[int64]string{0: "0 z: new a", 1: "1 y: new e", 2: "2 x: old c", 4: "4 v: old d"},
			3, // 3 failed, and 5 is new
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			old, newer := r.answered(t, "old ", "a", "b", "c", "bad", "d"), r.answered(t, "new ", "a", "e")
			rec, fence := r.reuses(t, test.by, test.texts, newer, old)
			m := r.runs(t, rec, fence)
			if got := r.answers(t, rec); fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("took over %v, want %v", got, test.want)
			}
			if now := r.get(t, rec.Job.ID); m.Taken != int64(len(test.want)) || now.Job.RowsTakenOver != m.Taken || *now.Job.InputTokens != 0 {
				t.Errorf("%d rows are taken over, the record has %+v", m.Taken, now.Job.RowCounts)
			}
			if m.Tokens != test.tokens {
				t.Errorf("%d tokens will run, want %d", m.Tokens, test.tokens)
			}
			if !r.has(t, layout.DigestsKey(rec.Job.ID, string(test.by))) {
				t.Error("the job has no digests for later jobs")
			}
		})
	}
}

// The quotas apply to the rows that run.
func TestReuse_Quotas(t *testing.T) {
	t.Parallel()
	r := setup(t)
	old := r.answered(t, "", "a", "b", "c")
	run := func(rows, tokens int64) error {
		rec, fence := r.reuses(t, rowmill.ReuseByText, []string{"a", "b", "c", "d e"}, old)
		rec.Spec.RowQuota, rec.Spec.TokenQuota = rows, tokens
		_, err := r.run(t, rec, fence)
		return err
	}
	must.Succeed(t, run(1, 2))
	fails(t, run(0, 1), rowmill.CodeTokenQuota, "token")
}

// A job gives no rows after its results were removed, before or during the takeover. All rows run.
func TestReuse_OfRemovedJobs(t *testing.T) {
	t.Parallel()
	r := setup(t)
	old, gone := r.answered(t, "", "a"), r.answered(t, "", "b")
	must.Get(r.store.RemoveData(t.Context(), gone, time.Now()))(t)
	rec, fence := r.reuses(t, rowmill.ReuseByText, []string{"a", "b"}, gone, old, rowmill.NewJobID())
	if m := r.runs(t, rec, fence); m.Taken != 1 || m.Rows != 2 {
		t.Errorf("took over %d of %d rows, want 1 of 2", m.Taken, m.Rows)
	}
	rec, fence = r.reuses(t, rowmill.ReuseByText, []string{"a", "b"}, old)
	during := *r
	during.Bucket = &hooked{Bucket: r.Bucket, create: func(key string) error {
		if key == layout.ReuseMatchesKey(rec.Job.ID) {
			return r.Bucket.DeletePrefix(t.Context(), layout.JobPrefix(old))
		}
		return nil
	}}
	if m := during.runs(t, rec, fence); m.Taken != 0 || m.Rows != 2 || m.Tokens != 2 {
		t.Errorf("took over %d of %d rows, %d tokens run; want 0 of 2, and 2 tokens", m.Taken, m.Rows, m.Tokens)
	}
}

// If an owner dies at any point, the next owner takes over everything, and nothing twice.
func TestReuse_DeathAnywhereIsHarmless(t *testing.T) {
	t.Parallel()
	for writes, over := 0, false; !over; writes++ {
		t.Run(fmt.Sprint("writes=", writes), func(t *testing.T) {
			r := setup(t)
			old := r.answered(t, "", "a", "b", "c")
			rec, fence := r.reuses(t, rowmill.ReuseByText, []string{"a", "new", "b", "c"}, old)
			again := *rec
			over = r.runDying(t, writes, &again, fence)
			now := r.get(t, rec.Job.ID)
			m := r.runs(t, &now, fence)
			if now = r.get(t, rec.Job.ID); m.Taken != 3 || m.Tokens != 1 || now.Job.RowsTakenOver != 3 || now.Job.RowsDone != 3 {
				t.Errorf("%d rows are taken over, %d tokens run; the record has %+v", m.Taken, m.Tokens, now.Job.RowCounts)
			}
			if parts := r.parts(t, rec.Job.ID); len(parts) != 2 {
				t.Errorf("parts %+v", parts)
			}
		})
	}
}

// A job of a set reuses rows, and reads the input of a job of the set that reuses rows, too.
func TestReuse_InSet(t *testing.T) {
	t.Parallel()
	r := setup(t)
	old := r.answered(t, "old ", "a", "b")
	first, fence := r.reuses(t, rowmill.ReuseByText, []string{"a", "new", "b"}, old)
	r.runs(t, first, fence)
	r.countShards(t, fence)
	rec, fence := r.job(t, rowmill.Spec{FromJob: first.Job.ID, ColumnChoice: rowmill.ColumnChoice{IDColumn: "sku"}, Reuse: &rowmill.Reuse{From: "x", By: rowmill.ReuseByText, Jobs: []string{old}}})
	if m := r.runs(t, rec, fence); m.Rows != 3 || m.Taken != 2 || m.Tokens != 1 {
		t.Errorf("%d of %d rows are taken over, %d tokens run; want 2 of 3, and 1 token", m.Taken, m.Rows, m.Tokens)
	}
}
