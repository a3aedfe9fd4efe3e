package actors

import (
	"testing"
	"time"
)

func TestQueueHoldsRetriesBack(t *testing.T) {
	t.Parallel()
	var q queue
	now := time.Unix(0, 0)
	q.add(tasks(2, 1))
	first := q.take(1)[0]
	first.attempts = 1
	q.retry(first, now)
	if q.ready() != 1 || q.empty() {
		t.Fatalf("%d ready, want the other row only", q.ready())
	}
	wait := q.wake(now)
	if wait <= 0 || wait > firstPause+time.Millisecond {
		t.Fatalf("pause before the second attempt = %v", wait)
	}
	if q.wake(now.Add(wait)) != 0 || q.take(1)[0] != first {
		t.Error("a row whose pause is over must go before the others")
	}
}

func TestQueueHonoursRetryAfterAndBoundsThePause(t *testing.T) {
	t.Parallel()
	var q queue
	now := time.Unix(0, 0)
	asked := &task{attempts: 1, due: now.Add(time.Minute)}
	q.retry(asked, now)
	if got := q.wake(now); got != time.Minute {
		t.Errorf("pause = %v, want what the server asked for", got)
	}
	q = queue{}
	q.retry(&task{attempts: 60}, now)
	if got := q.wake(now); got > lastPause+time.Millisecond {
		t.Errorf("pause = %v, want at most %v", got, lastPause)
	}
}

func TestQueueSendsUntouchedRowsAtOnce(t *testing.T) {
	t.Parallel()
	var q queue
	q.retry(&task{}, time.Unix(0, 0))
	if q.ready() != 1 {
		t.Error("a row that was never sent must not wait")
	}
}
