package actors

import (
	"testing"
	"time"
)

func TestQueueHoldsRetriesBack(t *testing.T) {
	t.Parallel()
	q := newQueue(10)
	now := time.Unix(0, 0)
	q.add(tasks(2, 1))
	first := q.take(0, 1, true)[0]
	first.attempts, first.via = 1, &enginePort{id: 0}
	q.retry(first, now)
	if q.ready() != 1 || q.empty() {
		t.Fatalf("%d ready, want the other row only", q.ready())
	}
	wait := q.wake(now)
	if wait <= 0 || wait > firstPause+time.Millisecond {
		t.Fatalf("pause before the second attempt = %v", wait)
	}
	if q.wake(now.Add(wait)) != 0 || q.take(0, 1, true)[0] != first {
		t.Error("a row whose pause is over must go before the others")
	}
}

func TestQueueHonoursRetryAfterAndBoundsThePause(t *testing.T) {
	t.Parallel()
	q := newQueue(10)
	now := time.Unix(0, 0)
	asked := &task{attempts: 1, via: &enginePort{}, due: now.Add(time.Minute)}
	q.retry(asked, now)
	if got := q.wake(now); got != time.Minute {
		t.Errorf("pause = %v, want what the server asked for", got)
	}
	q = newQueue(10)
	q.retry(&task{attempts: 60, via: &enginePort{}}, now)
	if got := q.wake(now); got > lastPause+time.Millisecond {
		t.Errorf("pause = %v, want at most %v", got, lastPause)
	}
}

func TestQueueSendsUntouchedRowsAtOnce(t *testing.T) {
	t.Parallel()
	q := newQueue(10)
	q.retry(&task{}, time.Unix(0, 0))
	if q.ready() != 1 {
		t.Error("a row that was never sent must not wait")
	}
}

// A row that one engine failed goes to another first, and back only where
// there is no other.
func TestQueueTriesElsewhereFirst(t *testing.T) {
	t.Parallel()
	q := newQueue(10)
	now := time.Unix(0, 0)
	row := tasks(1, 1)[0]
	row.attempts, row.via = 1, &enginePort{id: 3}
	q.retry(row, now)
	q.wake(now.Add(time.Hour))
	if got := q.take(3, 1, false); len(got) != 0 {
		t.Error("the row went back to the engine that failed it")
	}
	if got := q.take(3, 1, true); len(got) != 1 {
		t.Error("the row waits although there is no other engine")
	}
}

// Short rows may stay behind for the end of the job, but not for ever.
func TestQueueSendsRowsOfOldShards(t *testing.T) {
	t.Parallel()
	q := newQueue(1000)
	old := tasks(5, 1)
	q.add(old)
	for shard := 1; shard <= holdBack+1; shard++ {
		long := tasks(20, 5000)
		for _, row := range long {
			row.shard = shard
		}
		q.add(long)
	}
	for _, row := range q.take(0, len(old), true) {
		if row.shard != 0 {
			t.Fatalf("a row of shard %d before those of shard 0, which is %d shards behind", row.shard, holdBack+1)
		}
	}
}
