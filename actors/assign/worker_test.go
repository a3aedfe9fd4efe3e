package assign

import "testing"

func worker() *Worker { return NewWorker("w", 1, "session") }

func batch(number int64, from, to int) *Assignment {
	return &Assignment{Epoch: 1, Worker: "w", Batches: []Batch{{number, []RowSpan{{From: from, To: to}}}}}
}

func where(w *Worker, shard, row int) RowState {
	state, _ := w.states.stateOf(shard, row)
	return state
}

// The rows of a dropped part may come back in the message that reports the drop.
func TestWorkerKeepsRowsThatComeBackWithAnAcknowledgement(t *testing.T) {
	t.Parallel()
	w := worker()
	w.ApplyAssignment(batch(1, 0, 2))
	w.MarkFinished(0, 0)
	w.MarkFinished(0, 1)
	w.MarkWritten(part("p", 0, 2))
	m := batch(2, 1, 2)
	m.Acked = []string{"p"}
	if spans, acked, _, ok := w.ApplyAssignment(m); !ok || len(spans) != 1 || len(acked) != 1 {
		t.Fatalf("new are %v and %v", spans, acked)
	}
	if where(w, 0, 0) != Elsewhere || where(w, 0, 1) != Assigned {
		t.Errorf("row 0 is %s and row 1 %s", where(w, 0, 0), where(w, 0, 1))
	}
}

// A repeated assignment is applied once.
func TestWorkerObeysOnce(t *testing.T) {
	t.Parallel()
	w, m := worker(), batch(1, 0, 4)
	m.Revoke = Revocation{1, 3}
	if spans, _, back, _ := w.ApplyAssignment(m); len(spans) != 1 || back != 3 {
		t.Errorf("first: %v, %d back", spans, back)
	}
	if spans, _, back, ok := w.ApplyAssignment(m); !ok || len(spans) != 0 || back != 0 {
		t.Errorf("again: %v, %d back", spans, back)
	}
	if _, _, _, ok := w.ApplyAssignment(&Assignment{Epoch: 1, Worker: "another"}); ok {
		t.Error("an assignment for another worker was applied")
	}
	if _, _, _, ok := w.ApplyAssignment(&Assignment{Epoch: 2, Worker: "w"}); ok {
		t.Error("another owner was obeyed")
	}
}

// A worker repeats the rows that it gives back until the owner confirms them. Rows given
// back meanwhile go into the next batch.
func TestWorkerGivesBackInBatches(t *testing.T) {
	t.Parallel()
	w := worker()
	w.ApplyAssignment(batch(1, 0, 10))
	w.GiveBack(0, rows(0, 3))
	report := func() (h Heartbeat) { w.FillHeartbeat(&h); return h }
	if h := report(); h.Batch != 1 || !h.Back[0].Rows.Equals(rows(0, 3)) {
		t.Errorf("reported %+v", h)
	}
	w.GiveBack(0, rows(3, 4))
	if h := report(); h.Batch != 1 || !h.Back[0].Rows.Equals(rows(0, 3)) {
		t.Errorf("reported %+v before the first batch was taken", h)
	}
	w.ApplyAssignment(&Assignment{Epoch: 1, Worker: "w", Taken: 1})
	if h := report(); h.Batch != 2 || !h.Back[0].Rows.Equals(rows(3, 4)) {
		t.Errorf("reported %+v", h)
	}
	if w.Idle() || w.CountUnfinished(0) != 6 {
		t.Errorf("idle %v, %d unfinished", w.Idle(), w.CountUnfinished(0))
	}
}

// The worker's first heartbeat to a new owner names all its rows, but no rows that it
// has given back.
func TestWorkerReportsItsRowsToANewOwner(t *testing.T) {
	t.Parallel()
	w := worker()
	w.ApplyAssignment(batch(1, 0, 10))
	w.MarkFinished(0, 1)
	w.MarkWritten(part("p", 2, 4))
	w.GiveBack(0, rows(8, 10))
	if !w.SwitchOwner(2, "other") || w.SwitchOwner(2, "other") || w.SwitchOwner(1, "session") {
		t.Error("Adopt mixes up a new owner, the same owner and an old owner")
	}
	var h Heartbeat
	w.FillHeartbeat(&h)
	if !h.Fresh || h.Epoch != 2 || len(h.Back) != 0 || len(h.Parts) != 1 || !h.Holds[0].Rows.Equals(rows(0, 8)) {
		t.Errorf("reported %+v", h)
	}
}
