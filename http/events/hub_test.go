package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// records is a store of jobs by id. The part of an id before the slash is the account.
type records struct {
	mu    sync.Mutex
	marks map[string]store.Revision
	born  map[string]time.Time
	polls int // number of calls of ListActiveJobs and Revisions
	gets  atomic.Int32
	err   error
}

func newRecords() *records {
	return &records{marks: map[string]store.Revision{}, born: map[string]time.Time{}}
}

// put creates jobs, or gives them a new version.
func (r *records) put(status rowmill.Status, ids ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if r.born[id].IsZero() {
			r.born[id] = time.Now()
		}
		r.marks[id] = store.Revision{Version: r.marks[id].Version + 1, Status: status}
	}
}

// fail makes all calls return err; nil ends that.
func (r *records) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *records) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.polls
}

func (r *records) ListActiveJobs(_ context.Context, accounts []string, since time.Time, limit int) ([][]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.polls++
	found := make([][]string, len(accounts))
	for i, account := range accounts {
		for id, mark := range r.marks {
			if strings.HasPrefix(id, account+"/") && (!mark.Status.IsTerminal() || !r.born[id].Before(since)) {
				found[i] = append(found[i], id)
			}
		}
	}
	return found, r.err
}

func (r *records) Revisions(_ context.Context, ids []string, _ string) ([]store.Revision, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.polls++
	marks := make([]store.Revision, len(ids))
	for i, id := range ids {
		marks[i] = r.marks[id]
	}
	return marks, r.err
}

func (r *records) Get(_ context.Context, id string) (store.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gets.Add(1)
	account, _, _ := strings.Cut(id, "/")
	return store.Record{Job: rowmill.Job{ID: id}, Spec: rowmill.Spec{Account: account}}, r.err
}

func newHub(r *records) *Hub {
	return New(Config{
		Store: r, Logger: slog.New(slog.DiscardHandler), Now: time.Now, Most: 3,
		Nodes:   func(context.Context) string { return "the nodes" },
		Waiting: func(*rowmill.Job, string) string { return "" },
	})
}

func (h *Hub) joined(t *testing.T, last string, topics ...Topic) *Listener {
	t.Helper()
	l := must.Get(h.Join(t.Context(), topics, last))(t)
	t.Cleanup(l.Leave)
	return l
}

// names returns the sorted job ids of changes.
func names(changes []TopicChange) string {
	var ids []string
	for _, c := range changes {
		ids = append(ids, c.Job)
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// expect checks the next changes of a listener, in any order.
func (l *Listener) expect(t *testing.T, what, want string) []TopicChange {
	t.Helper()
	changes := l.TakeChanges()
	if got := names(changes); got != want {
		t.Errorf("%s: changes %q, want %q", what, got, want)
	}
	return changes
}

// pass waits for some polls.
func pass(polls int) {
	time.Sleep(time.Duration(polls) * pollEvery)
	synctest.Wait()
}

const (
	pending = rowmill.StatusPending
	running = rowmill.StatusRunning
	ended   = rowmill.StatusSucceeded
)

func TestHub_ReportsChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecords()
		r.put(ended, "a/old")
		time.Sleep(time.Hour)
		r.put(running, "a/1", "a/2", "b/1")
		h := newHub(r)
		all := h.joined(t, "", Topic{Account: "a"})
		one := h.joined(t, "", Topic{Account: "a", Job: "a/old"}, Topic{Account: "a", Job: "a/2"})
		if got := names(all.Initial); got != "a/1 a/2" || !all.Whole || all.Lost {
			t.Errorf("at first %q, whole %v, lost %v", got, all.Whole, all.Lost)
		}
		if got := names(one.Initial); got != "a/2 a/old" {
			t.Errorf("of the named jobs at first %q", got)
		}
		pass(3)
		all.expect(t, "nothing happened", "")

		r.put(running, "a/1", "b/1")
		r.put(running, "a/1")
		pass(1)
		all.expect(t, "one changed twice", "a/1")
		one.expect(t, "another changed", "")

		r.put(ended, "a/2")
		r.put(ended, "a/fleeting")
		r.put(pending, "a/new")
		pass(1)
		all.expect(t, "an end and two new ones", "a/2 a/fleeting a/new")
		one.expect(t, "its end", "a/2")
		pass(300)
		all.expect(t, "long after", "")
		r.put(ended, "a/old")
		pass(1)
		one.expect(t, "a change after the end", "a/old")
	})
}

func TestHub_CoalescesForASlowListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecords()
		r.put(running, "a/1", "a/2")
		h := newHub(r)
		l := h.joined(t, "", Topic{Account: "a"})
		for range 100 {
			r.put(running, "a/1")
			pass(1)
		}
		r.put(ended, "a/1")
		r.put(running, "a/2")
		pass(1)
		if len(l.pending) != 2 {
			t.Errorf("%d are pending after a hundred changes of one job", len(l.pending))
		}
		changes := l.expect(t, "all together", "a/1 a/2")
		if changes[0].Seq >= changes[1].Seq {
			t.Errorf("changes are not in order: %v", changes)
		}
		l.PutBack(changes)
		r.put(running, "a/2")
		pass(1)
		if again := l.expect(t, "put back", "a/1 a/2"); again[1].Job != "a/2" || again[1].Seq <= changes[1].Seq {
			t.Errorf("put back as %v", again)
		}
	})
}

func TestHub_PollsOncePerSecondOnlyWithListeners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecords()
		r.put(running, "a/1")
		h := newHub(r)
		pass(10)
		if n := r.count(); n != 0 {
			t.Errorf("%d polls without listeners", n)
		}
		for n := 1; n <= 3; n++ {
			h.joined(t, "", Topic{Account: "a"})
			before := r.count()
			pass(10)
			if made := r.count() - before; made != 20 {
				t.Errorf("%d calls in 10 s for %d listeners, want Active and Revisions each second", made, n)
			}
		}
		if _, err := h.Join(t.Context(), []Topic{{Account: "b"}}, ""); !errors.Is(err, ErrFull) {
			t.Errorf("one too many: %v", err)
		}
		for l := range h.listeners {
			l.Leave()
			l.Leave() // a second call does nothing
		}
		before := r.count()
		pass(10)
		if made := r.count() - before; made != 0 {
			t.Errorf("%d polls after all listeners left", made)
		}
	})
}

func TestHub_ContinuesAfterAnEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecords()
		r.put(running, "a/1", "a/2", "a/3")
		h := newHub(r)
		account := Topic{Account: "a"}
		l := h.joined(t, "", account)
		beginning := l.Position
		r.put(running, "a/1")
		pass(1)
		first := h.EventID(l.TakeChanges()[0].Seq)
		l.Leave()

		r.put(ended, "a/2") // while there is no listener
		r.put(ended, "a/4")
		pass(20)
		for last, want := range map[string]string{first: "a/2 a/4", beginning: "a/1 a/2 a/4"} {
			l = h.joined(t, last, account)
			if got := names(l.Initial); got != want || l.Whole || l.Lost {
				t.Errorf("after %s: %q, whole %v, lost %v; want %q", last, got, l.Whole, l.Lost, want)
			}
			if l.Initial[0].Seq == 0 {
				t.Error("a change has no place of its own")
			}
			l.Leave()
		}
		for what, last := range map[string]string{
			"another process": "0123456789ab-1", "the middle of all there is": h.EventID(0), "the future": h.EventID(99), "nonsense": "x",
		} {
			l = h.joined(t, last, account)
			if got := names(l.Initial); got != "a/1 a/3" || !l.Whole || !l.Lost || l.Initial[0].Seq != 0 {
				t.Errorf("after %s: %q %v, whole %v, lost %v", what, got, l.Initial, l.Whole, l.Lost)
			}
			l.Leave()
		}
		// A topic without earlier listeners has no known history.
		if l = h.joined(t, first, account, Topic{Account: "a", Job: "a/3"}); !l.Lost {
			t.Error("a topic without earlier listeners is reported as known")
		}
		l.Leave()
		last := l.Position
		pass(int(keepFor/pollEvery) + 2)
		if l = h.joined(t, last, account); !l.Lost {
			t.Error("changes are reported as known after a long time without listeners")
		}
	})
}

func TestHub_ManyNewJobsLoseThePosition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecords()
		h := newHub(r)
		l := h.joined(t, "", Topic{Account: "a"})
		for i := range maxWaiting {
			r.put(pending, fmt.Sprint("a/", i))
		}
		pass(1)
		l.TakeChanges()
		l.Leave()
		if again := h.joined(t, l.Position, Topic{Account: "a"}); again.Lost || len(again.Initial) != maxWaiting {
			t.Errorf("at once: lost %v, %d jobs", again.Lost, len(again.Initial))
		} else {
			again.Leave()
		}
		pass(10)
		if again := h.joined(t, h.EventID(h.seq), Topic{Account: "a"}); !again.Lost {
			t.Error("jobs that came and ended meanwhile are reported as known")
		}
	})
}

func TestHub_DropsOldEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecords()
		h := newHub(r)
		l := h.joined(t, "", Topic{Account: "a"})
		begun := l.Position
		for i := range 500 {
			r.put(ended, fmt.Sprint("a/", i))
			pass(1)
			if l.TakeChanges() == nil {
				t.Fatalf("no change of job %d", i)
			}
		}
		if n := len(h.topics[Topic{Account: "a"}].items); n > 2*int(keepFor/pollEvery) {
			t.Errorf("%d jobs that are over are remembered", n)
		}
		if late := h.joined(t, begun, Topic{Account: "a"}); !late.Lost {
			t.Error("dropped ends are reported as known")
		}
	})
}

func TestHub_StoreUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecords()
		r.put(running, "a/1")
		h := newHub(r)
		l := h.joined(t, "", Topic{Account: "a"})
		away := errors.New("away")
		r.fail(away)
		r.put(ended, "a/1")
		r.put(ended, "a/2") // created longer ago than newFor when the store is back
		if _, err := h.Join(t.Context(), []Topic{{Account: "b"}}, ""); !errors.Is(err, away) {
			t.Errorf("joining: %v", err)
		}
		if _, _, err := h.ReadJob(t.Context(), "a/1"); !errors.Is(err, away) {
			t.Errorf("reading: %v", err)
		}
		pass(100)
		l.expect(t, "while it is away", "")
		r.fail(nil)
		pass(1)
		l.expect(t, "when it is back", "a/1 a/2")
		if _, _, err := h.ReadJob(t.Context(), "a/1"); err != nil {
			t.Errorf("reading when it is back: %v", err)
		}
		if len(h.listeners) != 1 {
			t.Errorf("%d listeners, want the one that stayed", len(h.listeners))
		}
	})
}

func TestHub_Nodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecords()
		h := newHub(r)
		var text atomic.Value
		text.Store("one node")
		h.cfg.Nodes = func(context.Context) string { return text.Load().(string) }
		l := h.joined(t, "", Nodes)
		if len(l.Initial) != 1 || l.Initial[0].Nodes != "one node" {
			t.Errorf("at first %v", l.Initial)
		}
		pass(5)
		l.expect(t, "nothing changed", "")
		text.Store("two nodes")
		pass(1)
		if c := l.TakeChanges(); len(c) != 1 || c[0].Nodes != "two nodes" || c[0].Job != "" {
			t.Errorf("then %v", c)
		}
		if n := r.count(); n != 0 {
			t.Errorf("%d polls of the store for nodes", n)
		}
	})
}

func TestHub_WaitingReasonIsAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecords()
		r.put(pending, "a/1")
		r.put(ended, "a/2")
		h := newHub(r)
		var waiting atomic.Value
		waiting.Store("")
		h.cfg.Waiting = func(*rowmill.Job, string) string { return waiting.Load().(string) }
		all := h.joined(t, "", Topic{Account: "a"})
		one := h.joined(t, "", Topic{Account: "a", Job: "a/1"}, Topic{Account: "a", Job: "a/2"})
		waiting.Store("a place")
		pass(1)
		one.expect(t, "it waits", "a/1")
		all.expect(t, "each of many that wait", "")
	})
}

func TestHub_ReadsAJobOnceForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecords()
		r.put(running, "a/1")
		h := newHub(r)
		h.joined(t, "", Topic{Account: "a"})
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if job, account, err := h.ReadJob(t.Context(), "a/1"); err != nil || account != "a" || job.ID != "a/1" {
					t.Errorf("%v of %q, %v", job.ID, account, err)
				}
			})
		}
		all.Wait()
		if n := r.gets.Load(); n != 1 {
			t.Errorf("%d reads for 50 listeners", n)
		}
		pass(1)
		if _, _, err := h.ReadJob(t.Context(), "a/1"); err != nil || r.gets.Load() != 2 {
			t.Errorf("%d reads after the next poll, %v", r.gets.Load(), err)
		}
	})
}
