package work

import (
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/dispatch"
)

var start = time.Unix(1000, 0)

// finished is a row of a shard with an answer of so many bytes.
func finished(shard, bytes int) *dispatch.Task {
	tasks, _ := dispatch.NewTasks(shard, 0, []rowmill.Row{{}})
	tasks[0].Out.Text = strings.Repeat("y", bytes-dispatch.TaskBytes)
	return tasks[0]
}

func TestFlusherCutsAtHalfAPart(t *testing.T) {
	t.Parallel()
	f := NewFlusher(10_000, time.Minute)
	f.Add(finished(0, 1000), start)
	f.Add(finished(1, 3900), start)
	if got := f.Full(); got != nil {
		t.Fatalf("cut %v before half of a part has gathered", got)
	}
	f.Add(finished(0, 1000), start)
	got := f.Full()
	if len(got) != 1 || got[0].Shard != 1 || len(f.Shards()) != 1 || !f.Gathers() {
		t.Fatalf("cut %v, want the shard that has most of it", got)
	}
	if f.Behind() {
		t.Error("behind with less than a part")
	}
	for range 5 {
		f.Add(finished(0, 1000), start)
	}
	if !f.Behind() {
		t.Error("a part waits, the next one has gathered, and rows may begin")
	}
	all := f.All()
	if len(all) != 1 || len(all[0].Tasks) != 7 || f.Gathers() || f.Idle() {
		t.Fatalf("cut %v", all)
	}
	f.Wrote("one", got[0])
	f.Wrote("two", all[0])
	if !f.Idle() || !f.Behind() {
		t.Error("what is written is forgotten before it is acknowledged")
	}
	f.Acked("two")
	f.Acked("two")
	f.Acked("unknown")
	if f.Behind() || f.unacked != 3900 {
		t.Errorf("%d bytes wait after all but one was acknowledged", f.unacked)
	}
}

// A shard is due by its own first row, and takes along what came after it.
func TestFlusherCutsWhatIsDue(t *testing.T) {
	t.Parallel()
	f := NewFlusher(10_000, time.Minute)
	f.Add(finished(0, 1000), start)
	f.Add(finished(1, 1000), start.Add(time.Second))
	f.Add(finished(0, 1000), start.Add(2*time.Second))
	if got := f.Due(start.Add(-1)); got != nil {
		t.Fatalf("cut %v before any is due", got)
	}
	got := f.Due(start)
	if len(got) != 1 || got[0].Shard != 0 || len(got[0].Tasks) != 2 {
		t.Fatalf("cut %v, want both rows of shard 0", got)
	}
	f.Add(finished(0, 1000), start.Add(3*time.Second))
	if got = f.Due(start.Add(time.Second)); len(got) != 1 || got[0].Shard != 1 {
		t.Fatalf("cut %v, want shard 1", got)
	}
	if got = f.Due(start.Add(time.Hour)); len(got) != 1 || len(got[0].Tasks) != 1 || f.Gathers() {
		t.Fatalf("cut %v, want the last row", got)
	}
}

// Finished rows that nobody records are at risk, whichever way they have come.
func TestFlusherKnowsWhatIsAtRisk(t *testing.T) {
	t.Parallel()
	late := start.Add(time.Minute + 1)
	f := NewFlusher(10_000, time.Minute)
	if f.AtRisk(late) {
		t.Error("nothing is at risk")
	}
	f.Add(finished(0, 1000), start)
	f.Add(finished(0, 1000), late)
	if f.AtRisk(start.Add(time.Minute)) || !f.AtRisk(late) {
		t.Error("what gathers is at risk with its first row")
	}
	batch := f.Cut(0)[0]
	if !f.AtRisk(late) {
		t.Error("what is being written")
	}
	f.Wrote("key", batch)
	if !f.AtRisk(late) {
		t.Error("what is written")
	}
	f.Acked("key")
	if f.AtRisk(late) {
		t.Error("what is recorded is safe")
	}
}

// A batch that could not be written still counts as lost to the record.
func TestFlusherKeepsWhatFailed(t *testing.T) {
	t.Parallel()
	f := NewFlusher(1000, time.Minute)
	f.Add(finished(3, 1000), start)
	if f.Cut(4) != nil {
		t.Error("cut a shard of which nothing gathers")
	}
	f.Failed(f.Cut(3)[0])
	if !f.Idle() || !f.Behind() || !f.AtRisk(start.Add(time.Hour)) {
		t.Error("a part that failed does not hold further rows back")
	}
}
