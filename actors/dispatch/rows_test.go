package dispatch

import (
	"slices"
	"testing"
	"time"
)

func TestRowsHoldsRetriesBack(t *testing.T) {
	t.Parallel()
	q := NewPendingRows(10)
	now := time.Unix(0, 0)
	q.Add(tasks(2, 1))
	first := q.Take(0, 1, true)[0]
	first.attempts, first.Port = 1, 0
	q.Retry(first, now)
	if q.Ready() != 1 || q.Empty() {
		t.Fatalf("%d ready, want the other row only", q.Ready())
	}
	wait := q.WakeDueRetries(now)
	if wait <= 0 || wait > firstRetry+time.Millisecond {
		t.Fatalf("pause before the second attempt = %v", wait)
	}
	if q.WakeDueRetries(now.Add(wait)) != 0 || q.Take(0, 1, true)[0] != first {
		t.Error("a row whose pause is over must go before the others")
	}
}

func TestRowsHonoursRetryAfterAndBoundsThePause(t *testing.T) {
	t.Parallel()
	q := NewPendingRows(10)
	now := time.Unix(0, 0)
	asked := &RowTask{attempts: 1, Port: 0, due: now.Add(time.Minute)}
	q.Retry(asked, now)
	if got := q.WakeDueRetries(now); got != time.Minute {
		t.Errorf("pause = %v, want the pause that the server asked for", got)
	}
	q = NewPendingRows(10)
	q.Retry(&RowTask{attempts: 60, Port: 0}, now)
	if got := q.WakeDueRetries(now); got > lastRetry+time.Millisecond {
		t.Errorf("pause = %v, want at most %v", got, lastRetry)
	}
}

func TestRowsSendsUntouchedRowsAtOnce(t *testing.T) {
	t.Parallel()
	q := NewPendingRows(10)
	q.Retry(&RowTask{}, time.Unix(0, 0))
	if q.Ready() != 1 {
		t.Error("a row that was never sent must not wait")
	}
}

// After a failure at one engine, a row goes to another engine first, and back only if
// there is no other.
func TestRowsTriesElsewhereFirst(t *testing.T) {
	t.Parallel()
	q := NewPendingRows(10)
	now := time.Unix(0, 0)
	row := tasks(1, 1)[0]
	row.attempts, row.Port = 1, 3
	q.Retry(row, now)
	q.WakeDueRetries(now.Add(time.Hour))
	if got := q.Take(3, 1, false); len(got) != 0 {
		t.Error("the row went back to the engine that failed it")
	}
	if got := q.Take(3, 1, true); len(got) != 1 {
		t.Error("the row waits although there is no other engine")
	}
}

// Short rows may lag behind, but not until the end of the job.
func TestRowsSendsRowsOfOldShards(t *testing.T) {
	t.Parallel()
	q := NewPendingRows(1000)
	old := tasks(5, 1)
	q.Add(old)
	for shard := 1; shard <= holdBack+1; shard++ {
		long := tasks(20, 5000)
		for _, row := range long {
			row.Shard, row.Behind = shard, shard
		}
		q.Add(long)
	}
	for _, row := range q.Take(0, len(old), true) {
		if row.Shard != 0 {
			t.Fatalf("a row of shard %d before those of shard 0, which is %d shards behind", row.Shard, holdBack+1)
		}
	}
}

// Rows are given back in the order in which they would have been sent.
func TestRowsRemove(t *testing.T) {
	t.Parallel()
	q := NewPendingRows(10)
	made := tasks(5, 1)
	q.Add(made[:3])
	q.Return(made[3:4])
	made[4].attempts = 1
	q.Retry(made[4], time.Unix(0, 0))
	if q.Ready() != 4 || q.Remove(0) != nil {
		t.Fatalf("%d ready", q.Ready())
	}
	if got := q.Remove(1); len(got) != 1 || got[0] != made[3] {
		t.Errorf("returned rows go first: %v", got)
	}
	if got := q.Remove(10); len(got) != 3 || q.Ready() != 0 || q.Empty() {
		t.Errorf("%d taken out, %d ready", len(got), q.Ready())
	}
	if got := q.RemoveLater(); len(got) != 1 || got[0] != made[4] || !q.Empty() {
		t.Errorf("%d that had to wait", len(got))
	}
}

// An answer changes the expected cost of the other rows.
func TestRowsLearn(t *testing.T) {
	t.Parallel()
	q := NewPendingRows(2)
	made := tasks(2, 400)
	q.Add(made)
	first := q.Take(0, 1, true)[0]
	before := first.expect
	first.Out.InputTokens, first.Out.OutputTokens = 100, 5000
	for range 100 {
		q.Learn(first)
	}
	if second := q.Take(0, 1, true)[0]; second.expect < before+1000 {
		t.Errorf("expected to cost %d tokens before and %d after an answer of 5000", before, second.expect)
	}
}

// A row that may have crashed its server goes first to a server of its own node. Other
// nodes get it only while this node has no server.
func TestRowsKeepsSuspects(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		name   string
		enters func(q *PendingRows, suspect *RowTask)
	}{
		{"after its pause", func(q *PendingRows, suspect *RowTask) {
			q.Retry(suspect, now)
			q.WakeDueRetries(now.Add(time.Hour))
		}},
		{"taken back from a queue", func(q *PendingRows, suspect *RowTask) { q.Return([]*RowTask{suspect}) }},
		{"another node has said so", func(q *PendingRows, suspect *RowTask) {
			suspect.trialGroup = 0
			suspect.Suspect(1, 1)
			q.Add([]*RowTask{suspect})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			q := NewPendingRows(10)
			q.Add(tasks(2, 1))
			suspect := &RowTask{trialGroup: 1, refusals: 1, refusedAt: now, Port: 0}
			c.enters(q, suspect)
			if q.Ready() != 3 || q.CountReturnable() != 2 {
				t.Errorf("%d rows are ready, %d for other nodes, want 3 and 2", q.Ready(), q.CountReturnable())
			}
			if given := q.Remove(10); len(given) != 2 || slices.Contains(given, suspect) {
				t.Errorf("%d rows are given to other nodes, want the 2 that are no suspects", len(given))
			}
			if q.Empty() {
				t.Error("the suspect is gone")
			}
			if got := q.Take(0, 1, true); len(got) != 1 || got[0] != suspect {
				t.Fatalf("its server gets %v", got)
			}
			q.Return([]*RowTask{suspect})
			if q.ReleaseSuspects(); q.CountReturnable() != 1 {
				t.Error("a node without a server keeps it")
			}
			if given := q.Remove(1); len(given) != 1 || given[0] != suspect {
				t.Errorf("other nodes get %v", given)
			} else if group, _ := suspect.SuspectInfo(); group != 1 {
				t.Error("the row is no suspect any more")
			}
			q.Return([]*RowTask{{trialGroup: 1}})
			if rest := q.RemoveLater(); len(rest) != 1 || q.Ready() != 0 {
				t.Errorf("a node that leaves gives %d suspects back, want 1", len(rest))
			}
		})
	}
}

// Another server of the node is tried before the server that crashed.
func TestRowsSuspectsAvoidTheirServer(t *testing.T) {
	t.Parallel()
	q := NewPendingRows(10)
	q.Return([]*RowTask{{trialGroup: 1, avoid: 0}})
	if len(q.Take(0, 1, false)) != 0 || len(q.Take(1, 1, false)) != 1 {
		t.Error("the suspect goes to the server that crashed")
	}
}
