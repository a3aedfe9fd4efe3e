package work

import (
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/dispatch"
)

var start = time.Unix(1000, 0)

// finished returns a row of a shard with an answer of this many bytes.
func finished(shard, bytes int) *dispatch.RowTask {
	tasks, _ := dispatch.NewTasks(shard, 0, []rowmill.Row{{}})
	tasks[0].Out.Text = strings.Repeat("y", bytes-dispatch.TaskBytes)
	return tasks[0]
}

func TestFlusherCutsAtHalfAPart(t *testing.T) {
	t.Parallel()
	f := NewFlusher(10_000, time.Minute)
	f.Add(finished(0, 1000), start)
	f.Add(finished(1, 3900), start)
	if got := f.CutFull(start); got != nil {
		t.Fatalf("cut %v before half of a part has gathered", got)
	}
	f.Add(finished(0, 1000), start)
	got := f.CutFull(start)
	if len(got) != 1 || got[0].Shard != 1 || len(f.shards()) != 1 || !f.HasGatheredRows() {
		t.Fatalf("cut %v, want the shard that has most of it", got)
	}
	if f.IsBehind() {
		t.Error("behind with less than a part")
	}
	for range 5 {
		f.Add(finished(0, 1000), start)
	}
	if !f.IsBehind() {
		t.Error("a part waits, the next one has gathered, and rows may begin")
	}
	all := f.CutAll()
	if len(all) != 1 || len(all[0].Tasks) != 7 || f.HasGatheredRows() || f.Idle() {
		t.Fatalf("cut %v", all)
	}
	f.MarkWritten("one", got[0])
	f.MarkWritten("two", all[0])
	if !f.Idle() || !f.IsBehind() {
		t.Error("a written batch is dropped before its acknowledgement")
	}
	f.MarkAcked("two")
	f.MarkAcked("two")
	f.MarkAcked("unknown")
	if f.IsBehind() || f.unacked != 3900 {
		t.Errorf("%d bytes wait after all but one was acknowledged", f.unacked)
	}
}

// If rows finish approximately in order, a part has consecutive rows, and the rows after
// a gap go into the next part.
func TestFlusherCutsRuns(t *testing.T) {
	t.Parallel()
	f := NewFlusher(10_000, time.Minute)
	f.ExpectInputOrder()
	add := func(at time.Time, rels ...int) {
		for _, rel := range rels {
			task := finished(0, 1000)
			task.Rel = rel
			f.Add(task, at)
		}
	}
	want := func(got []*Batch, rels ...int) {
		t.Helper()
		if len(got) != 1 {
			t.Fatalf("cut %d batches", len(got))
		}
		for i, task := range got[0].Tasks {
			if len(got[0].Tasks) != len(rels) || task.Rel != rels[i] {
				t.Fatalf("row %d of %d is %d, want %v", i, len(got[0].Tasks), task.Rel, rels)
			}
		}
		if got[0].bytes != 1000*int64(len(rels)) {
			t.Errorf("%d rows count %d bytes", len(rels), got[0].bytes)
		}
	}
	late := start.Add(30 * time.Second)
	add(start, 1, 0, 2, 5, 4)
	want(f.CutFull(late), 0, 1, 2)
	if f.gathered != 2000 || f.HasOverdueRows(late) || len(f.CutDue(start)) != 0 {
		t.Errorf("%d bytes gather, want the two rows that came ahead, as if finished now", f.gathered)
	}
	add(late, 3, 6, 7)
	want(f.CutFull(late), 3, 4, 5, 6, 7)
	// If most rows are after the first gap, for example behind a row that is retried,
	// the gap does not delay them.
	add(late, 8, 10, 11, 12, 13)
	want(f.CutFull(late), 8, 10, 11, 12, 13)
	// A row waits for one part at most.
	add(late, 20, 21, 22, 26, 28)
	want(f.CutFull(late), 20, 21, 22)
	add(late, 23, 24, 25)
	want(f.CutFull(late), 23, 24, 25, 26, 28)
	// The end of a shard does not wait for a gap either, nor do rows that are due.
	add(late, 30, 32)
	want(f.Cut(0), 30, 32)
	if f.HasGatheredRows() {
		t.Error("something is left")
	}
}

// A shard is due by its own first row, and its batch includes all its later rows.
func TestFlusherCutsDueShards(t *testing.T) {
	t.Parallel()
	f := NewFlusher(10_000, time.Minute)
	f.Add(finished(0, 1000), start)
	f.Add(finished(1, 1000), start.Add(time.Second))
	f.Add(finished(0, 1000), start.Add(2*time.Second))
	if got := f.CutDue(start.Add(-1)); got != nil {
		t.Fatalf("cut %v before any is due", got)
	}
	got := f.CutDue(start)
	if len(got) != 1 || got[0].Shard != 0 || len(got[0].Tasks) != 2 {
		t.Fatalf("cut %v, want both rows of shard 0", got)
	}
	f.Add(finished(0, 1000), start.Add(3*time.Second))
	if got = f.CutDue(start.Add(time.Second)); len(got) != 1 || got[0].Shard != 1 {
		t.Fatalf("cut %v, want shard 1", got)
	}
	if got = f.CutDue(start.Add(time.Hour)); len(got) != 1 || len(got[0].Tasks) != 1 || f.HasGatheredRows() {
		t.Fatalf("cut %v, want the last row", got)
	}
}

// Finished rows that are not recorded in time are at risk, in each state of their batch.
func TestFlusherReportsRowsAtRisk(t *testing.T) {
	t.Parallel()
	late := start.Add(time.Minute + 1)
	f := NewFlusher(10_000, time.Minute)
	if f.HasOverdueRows(late) {
		t.Error("nothing is at risk")
	}
	f.Add(finished(0, 1000), start)
	f.Add(finished(0, 1000), late)
	if f.HasOverdueRows(start.Add(time.Minute)) || !f.HasOverdueRows(late) {
		t.Error("what gathers is at risk with its first row")
	}
	batch := f.Cut(0)[0]
	if !f.HasOverdueRows(late) {
		t.Error("a batch that is being written is not at risk")
	}
	f.MarkWritten("key", batch)
	if !f.HasOverdueRows(late) {
		t.Error("a written batch is not at risk")
	}
	f.MarkAcked("key")
	if f.HasOverdueRows(late) {
		t.Error("a recorded batch is still at risk")
	}
}

// A failed batch still counts as not recorded.
func TestFlusherKeepsFailedBatches(t *testing.T) {
	t.Parallel()
	f := NewFlusher(1000, time.Minute)
	f.Add(finished(3, 1000), start)
	if f.Cut(4) != nil {
		t.Error("cut a shard that has no rows waiting")
	}
	f.MarkFailed(f.Cut(3)[0])
	if !f.Idle() || !f.IsBehind() || !f.HasOverdueRows(start.Add(time.Hour)) {
		t.Error("a part that failed does not hold further rows back")
	}
}
