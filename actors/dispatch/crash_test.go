package dispatch

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// A fragile server ends when it reads the word POISON, and is back a second later.
type fragile struct {
	mu      sync.Mutex
	back    time.Time
	end     chan struct{} // closed when it ends
	crashes int
	alone   map[string]int // times a row was in flight alone at a crash, by its text
	running map[string]bool
}

func (f *fragile) down() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Before(f.back)
}

func (f *fragile) answer(ctx context.Context, row engine.Row) (engine.Reply, error) {
	text := string(row.Text)
	f.mu.Lock()
	if time.Now().Before(f.back) {
		f.mu.Unlock()
		return engine.Reply{}, &engine.Error{Class: engine.Busy, Code: "unreachable", Message: "nobody listens"}
	}
	end := f.end
	f.running[text] = true
	f.mu.Unlock()
	took := time.NewTimer(300 * time.Millisecond)
	defer took.Stop()
	if strings.Contains(text, "POISON") {
		took.Reset(100 * time.Millisecond)
	}
	select {
	case <-ctx.Done():
		return engine.Reply{}, ctx.Err()
	case <-end:
		return engine.Reply{}, &engine.Error{Class: engine.Busy, Broke: true, Code: "connection_broken", Message: "reset"}
	case <-took.C:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !strings.Contains(text, "POISON") {
		delete(f.running, text)
		return answered("ok")
	}
	f.crashes++
	if len(f.running) == 1 {
		f.alone[text]++
	}
	f.running = make(map[string]bool)
	f.back = time.Now().Add(time.Second)
	close(f.end)
	f.end = make(chan struct{})
	return engine.Reply{}, &engine.Error{Class: engine.Busy, Broke: true, Code: "connection_broken", Message: "reset"}
}

// judged has a probe follow each broken connection, as the server's actor does.
func (f *fragile) judged(ctx context.Context, d *Dispatcher) {
	probes := make(chan struct{}, 1)
	d.hooks.Suspect = func(error) {
		select {
		case probes <- struct{}{}:
		default:
		}
	}
	go func() {
		for {
			select {
			case <-probes:
			case <-ctx.Done():
				return
			}
			for again := true; again; {
				began := time.Now()
				time.Sleep(time.Millisecond)
				var crashed bool
				if crashed, again = d.Judge(began, f.down()); crashed {
					d.Pause()
					for f.down() {
						time.Sleep(100 * time.Millisecond)
					}
					d.Renew(0)
					d.Resume()
				}
			}
		}
	}()
}

// drive runs rows to their end, as a worker does.
func (b *bench) drive(made []*Task) (took time.Duration) {
	began, rows := time.Now(), NewRows(int64(len(made)))
	rows.Add(made)
	sent := 0
	for left := len(made); left > 0; {
		pause := rows.Wake(time.Now())
		if n := min(rows.Ready(), b.queue.Demand()-sent); n > 0 {
			b.queue.Put(rows.Take(0, n, true))
			sent += n
		}
		if pause == 0 {
			pause = time.Minute
		}
		select {
		case <-b.news:
		case <-time.After(pause):
		}
		for _, t := range b.out.Take(nil) {
			sent--
			if t.Outcome == Final {
				left--
			} else {
				rows.Retry(t, time.Now())
			}
		}
	}
	return time.Since(began)
}

// A row that ends its server fails after two crashes alone, and no other with it.
func TestQueue_RowsThatCrashTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		rows    int
		poison  []int
		crashes int // at most
	}{
		"one of 40":         {40, []int{20}, 4},
		"the first":         {40, []int{0}, 4},
		"alone":             {1, []int{0}, 2},
		"two of 40":         {40, []int{3, 30}, 8},
		"two beside":        {40, []int{20, 21}, 7},
		"one of a thousand": {1000, []int{500}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fragile{end: make(chan struct{}), alone: map[string]int{}, running: map[string]bool{}}
				b := newBench(t, &scripted{answer: f.answer})
				f.judged(t.Context(), b.disp)
				texts := make([]string, c.rows)
				for i := range texts {
					texts[i] = "row " + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
				}
				for _, i := range c.poison {
					texts[i] += " POISON"
				}
				made := tasksOf(texts, plain)
				took := b.drive(made)
				time.Sleep(2 * time.Second) // the server is back
				for i, task := range made {
					poison := strings.Contains(texts[i], "POISON")
					if task.Out.Failed() != poison || poison && (task.Out.Err.Code != rowmill.RowCrashesServer || f.alone[texts[i]] != mostCrashes) {
						t.Errorf("row %d: %+v, %d crashes alone", i, task.Out.Err, f.alone[texts[i]])
					}
				}
				if f.crashes > c.crashes {
					t.Errorf("%d crashes, want %d at most", f.crashes, c.crashes)
				}
				t.Logf("%d crashes, %v", f.crashes, took)
			})
		})
	}
}

// A server that is busy costs rows no attempt, whatever it says, and is asked again when
// it wants to be.
func TestQueue_BusyServers(t *testing.T) {
	for name, refusal := range map[string]engine.Error{
		"as it asks":   {Class: engine.Busy, Status: 429, Overloaded: true, RetryAfter: 7 * time.Second, Message: "later"},
		"says nothing": {Class: engine.Busy, Status: 503, Overloaded: true, Message: "loading"},
		"a gateway":    {Class: engine.Busy, Status: 502, Message: "bad gateway"},
		"nobody there": {Class: engine.Busy, Code: "unreachable", Message: "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int64
				from := time.Now().Add(3 * time.Minute)
				b := newBench(t, &scripted{answer: func(context.Context, engine.Row) (engine.Reply, error) {
					if time.Now().Before(from) {
						asked.Add(1)
						return engine.Reply{}, new(refusal)
					}
					time.Sleep(50 * time.Millisecond)
					return answered("ok")
				}})
				b.rest()
				made := tasksOf(make([]string, 60), func(string) string { return "a row" })
				took := b.drive(made)
				for _, task := range made {
					if task.Out.Failed() || task.Out.Attempts != 1 {
						t.Fatalf("%+v after %d attempts", task.Out.Err, task.Out.Attempts)
					}
				}
				if took > 4*time.Minute {
					t.Errorf("it took %v, a minute longer than the server was busy", took)
				}
				if asked.Load() > 400 {
					t.Errorf("it was asked %d times in three minutes", asked.Load())
				}
				t.Logf("asked %d times, %v", asked.Load(), took)
			})
		})
	}
}

// rest has routes rest for as long as the dispatcher says, as the server's actor does.
func (b *bench) rest() {
	b.disp.hooks.Opened = func(r engine.Route, pause time.Duration, _ error) {
		time.AfterFunc(pause, func() { b.disp.Try(r) })
	}
}

// A row that is refused for ever fails when its time is up, and its job only where the
// server answers no other row.
func TestQueue_BusyForTooLong(t *testing.T) {
	for name, c := range map[string]struct {
		others bool
		code   string
	}{
		"all rows": {false, rowmill.CodeModelUnavailable},
		"one row":  {true, rowmill.RowAttemptsUsedUp},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, &scripted{answer: func(_ context.Context, row engine.Row) (engine.Reply, error) {
					if string(row.Text) == "refused" {
						return engine.Reply{}, &engine.Error{Class: engine.Busy, Status: 429, Overloaded: true, Message: "later"}
					}
					time.Sleep(time.Minute)
					return answered("ok")
				}})
				b.disp.cfg.Wait = 10 * time.Minute
				b.rest()
				texts := []string{"refused"}
				for range 600 {
					if c.others {
						texts = append(texts, "another")
					}
				}
				made := tasksOf(texts, plain)
				began := time.Now()
				b.drive(made)
				if err := made[0].Out.Err; err == nil || err.Code != c.code {
					t.Errorf("%+v, want %s", err, c.code)
				}
				if took := time.Since(began); !c.others && (took < 10*time.Minute || took > 11*time.Minute) {
					t.Errorf("it failed after %v", took)
				}
			})
		})
	}
}
