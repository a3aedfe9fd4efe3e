package work

import (
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// A part has its rows in order, and returns their numbers and totals.
func TestWritePart(t *testing.T) {
	t.Parallel()
	bucket := must.Get(dir.Open(dir.Config{Root: t.TempDir()}))(t)
	tasks, _ := dispatch.NewTasks(2, 100, []rowmill.Row{{Index: 100}, {Index: 101}, {Index: 103}, {Index: 104}})
	f := NewFlusher(1<<20, time.Minute)
	for i, task := range []*dispatch.RowTask{tasks[3], tasks[0], tasks[2], tasks[1]} {
		task.Out = rowmill.RowOutput{Text: "answer", InputTokens: 10, OutputTokens: int64(i)}
		f.Add(task, start)
	}
	tasks[0].Cut, tasks[1].Out.Finish = true, rowmill.FinishLength
	tasks[2].Out.Err = &rowmill.RowError{Code: rowmill.RowRejected, Message: "no"}
	part := must.Get(WritePart(t.Context(), bucket, results.Schema{JobID: "job"}, "jobs/job/parts/x", f.CutAll()[0]))(t)
	want := store.RowTotals{Rows: 4, Failed: 1, TruncatedRows: 1, TruncatedOutputs: 1, InputTokens: 30, OutputTokens: 4}
	if part.Totals != want || part.Shard != 2 || !part.Rows.Equals(roaring.BitmapOf(0, 1, 3, 4)) {
		t.Errorf("part %+v, want totals %+v", part, want)
	}
	if o, err := bucket.Stat(t.Context(), part.Key); err != nil || o.Size != part.Size {
		t.Errorf("the object has %d bytes, its record says %d: %v", o.Size, part.Size, err)
	}
}
