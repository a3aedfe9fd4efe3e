package registry

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func one(t *testing.T, r *Registry) Actor {
	t.Helper()
	l := r.List(Filter{})
	if len(l.Actors) != 1 {
		t.Fatalf("%d actors: %+v", len(l.Actors), l)
	}
	return l.Actors[0]
}

// The reported age of the oldest message is never too large, and grows with the clock
// while an actor hangs.
func TestTheOldestMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New(time.Now)
		e := r.NewEntry(ActorIdentity{Kind: "job", Job: "job-1"})
		e.MarkStarted("node/job-1")
		want := func(depth int64, oldest time.Duration) {
			t.Helper()
			if a := one(t, r); a.Depth != depth || a.Oldest != oldest {
				t.Errorf("depth %d, oldest %v; want %d, %v", a.Depth, a.Oldest, depth, oldest)
			}
		}
		want(0, 0)
		e.MessagePosted(1)
		time.Sleep(time.Second)
		want(1, time.Second)
		e.MessagePosted(2)
		time.Sleep(time.Second)
		want(2, 2*time.Second)
		e.MessageReceived(1) // the second message is watched from now on
		want(1, 0)
		time.Sleep(time.Hour) // this message is never finished
		e.MessagePosted(3)
		want(2, time.Hour)
		e.MessageReceived(2)
		e.MessageReceived(3)
		want(0, 0)
		time.Sleep(time.Hour)
		e.MessagePosted(4)
		want(1, 0)
	})
}

// After messages from many goroutines, an entry has none waiting.
func TestManyMessages(t *testing.T) {
	t.Parallel()
	r := New(time.Now)
	e := r.NewEntry(ActorIdentity{Kind: "job"})
	e.MarkStarted("a")
	var all sync.WaitGroup
	const each = 2000
	came := make(chan int, 4*each)
	for range 4 {
		all.Go(func() {
			for i := range each {
				e.MessagePosted(i)
				came <- i
			}
		})
	}
	all.Go(func() {
		for range 4 * each {
			e.MessageReceived(<-came)
			if a := e.snapshot(); a.Oldest > time.Minute || a.Depth < 0 {
				t.Errorf("%+v", a)
			}
		}
	})
	all.Wait()
	if a := one(t, r); a.Depth != 0 || a.Oldest != 0 || e.watched.Load() != 0 {
		t.Errorf("%+v, message %d is watched", a, e.watched.Load())
	}
}

func TestTasksAndTroubles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New(time.Now)
		e := r.NewEntry(ActorIdentity{Kind: "worker", Job: "job-1"})
		e.MarkStarted("node/worker-job-1-1")
		write := e.Begin("write a part")
		time.Sleep(time.Minute)
		load := e.Begin("load rows")
		if a := one(t, r); a.Tasks != 2 || a.Task != "write a part" || a.TaskTime != time.Minute || a.age() != time.Minute {
			t.Errorf("%+v", a)
		}
		if f := r.TotalsByKind()["worker"]; len(f.Tasks) != 2 || f.Tasks["write a part"] != time.Minute || f.Tasks["load rows"] != 0 {
			t.Errorf("%+v", f)
		}
		write.End()
		NoteTrouble(load.NewContext(t.Context()), errors.New("503 SlowDown"))
		NoteTrouble(t.Context(), errors.New("nobody's"))
		if a := one(t, r); a.Task != "load rows" || a.Trouble == nil || a.Trouble.Text != "503 SlowDown" || !a.Trouble.At.Equal(time.Now()) {
			t.Errorf("%+v", a)
		}
		e.setTrouble(strings.Repeat("x", 1000))
		if a := one(t, r); len(a.Trouble.Text) > maxTrouble+3 {
			t.Errorf("a trouble of %d bytes", len(a.Trouble.Text))
		}
	})
}

// An actor's warnings are its trouble, even if the log level hides them. Information is
// not, nor are attributes other than the error.
func TestWarningsAreTroubles(t *testing.T) {
	t.Parallel()
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelError + 1} {
		r := New(time.Now)
		e := r.NewEntry(ActorIdentity{Kind: "job"})
		e.MarkStarted("a")
		var out bytes.Buffer
		log := e.Log(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))).With("job", "job-1").WithGroup("g")
		log.Info("well")
		if a := one(t, r); a.Trouble != nil {
			t.Errorf("%+v", a.Trouble)
		}
		log.Warn("engine is down", "err", errors.New("refused"), "input", "the client's")
		if a := one(t, r); a.Trouble == nil || a.Trouble.Text != "engine is down: refused" {
			t.Errorf("%+v", a.Trouble)
		}
		if logged := strings.Contains(out.String(), "g.err=refused"); logged != (level == slog.LevelDebug) {
			t.Errorf("at %v: %s", level, out.String())
		}
	}
}

func TestRestartsAndPanics(t *testing.T) {
	t.Parallel()
	r := New(time.Now)
	for i := range 3 {
		e := r.NewEntry(ActorIdentity{Kind: "job", Job: "job-1"})
		e.MarkStarted(fmt.Sprint("node/job-1-", i))
		if a := one(t, r); a.Restarts != i {
			t.Errorf("start %d: %+v", i, a)
		}
		e.MarkStopped()
	}
	e := r.NewEntry(ActorIdentity{Kind: "worker", Job: "job-1"})
	e.MarkStarted("node/worker")
	e.MessagePosted(1)
	r.MarkPanicked("node/nobody", "why")
	r.MarkPanicked("node/worker", "panic: no")
	e.MarkStopped()
	if a := one(t, r); a.State != Panicked || a.Trouble.Text != "panic: no" || a.Depth != 0 || a.Restarts != 0 {
		t.Errorf("%+v", a)
	}
	for i := range 2 * mostStarts {
		e := r.NewEntry(ActorIdentity{Kind: "job", Job: fmt.Sprint(i)})
		e.MarkStarted(fmt.Sprint("node/", i))
		if i%100 == 0 {
			r.MarkPanicked(fmt.Sprint("node/", i), "panic: again")
		}
		e.MarkStopped()
	}
	if len(r.lost) != mostLost || len(r.live) != 0 || r.countStart(ActorIdentity{Kind: "job", Job: "0"}) != 0 || r.countStart(ActorIdentity{Kind: "job", Job: "7000"}) != 1 {
		t.Errorf("%d lost, %d live, or starts are remembered for ever", len(r.lost), len(r.live))
	}
}

func TestListing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New(time.Now)
		for i := range maxListed + 10 {
			e := r.NewEntry(ActorIdentity{Kind: []string{"job", "worker"}[i%2], Job: fmt.Sprint("job-", i/2)})
			e.MarkStarted(fmt.Sprintf("node/%04d", i))
			e.MessagePosted(1)
			time.Sleep(time.Second)
		}
		l := r.List(Filter{})
		if len(l.Actors) != maxListed || l.LeftOut != 10 || l.Actors[0].ID != "node/0000" || l.Actors[1].ID != "node/0001" {
			t.Errorf("%d, %d left out, %+v", len(l.Actors), l.LeftOut, l.Actors[:2])
		}
		if l := r.List(Filter{Kind: "worker", Job: "job-7"}); len(l.Actors) != 1 || l.Actors[0].ID != "node/0015" || l.LeftOut != 0 {
			t.Errorf("%+v", l)
		}
		if l := r.List(Filter{MinAge: (maxListed + 9) * time.Second}); len(l.Actors) != 2 {
			t.Errorf("%d", len(l.Actors))
		}
	})
}

func BenchmarkMessage(b *testing.B) {
	e := New(time.Now).NewEntry(ActorIdentity{Kind: "job"})
	for b.Loop() {
		e.MessagePosted(nil)
		e.MessageReceived(nil)
	}
}

func BenchmarkTask(b *testing.B) {
	e := New(time.Now).NewEntry(ActorIdentity{Kind: "job"})
	for b.Loop() {
		task := e.Begin("write a part")
		_ = task.NewContext(b.Context())
		task.End()
	}
}
