package virtual

import (
	"embed"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

var (
	seed    = flag.Uint64("seed", 0, "run only the schedule of this seed, and print its trace")
	verbose = flag.Bool("verbose", false, "with -seed or -schedule: also print reads, and the logs of the nodes")
	file    = flag.String("schedule", "", "run only the schedule in this file, and print its trace")
	from    = flag.Uint64("from", 0, "first seed of TestSchedules; 0: 1, or a random one if ROWMILL_VIRTUAL sets the amount")
	less    = flag.Bool("shrink", true, "search for the smallest schedule that fails")
	most    = flag.Int("failures", 3, "stop after this number of failures")
)

// TestWorker is the process of a worker of the other tests.
func TestWorker(t *testing.T) {
	if os.Getenv(workerEnv) == "" {
		t.Skip("it works for the other tests")
	}
	work(t, os.Stdin, os.Stdout)
}

//go:embed testdata/schedules
var kept embed.FS

// keptSchedules returns the saved schedules, which once found a fault.
func keptSchedules(t *testing.T) map[string]Schedule {
	t.Helper()
	const folder = "testdata/schedules"
	files := must.Get(kept.ReadDir(folder))(t)
	schedules := map[string]Schedule{}
	for _, f := range files {
		text, err := kept.ReadFile(path.Join(folder, f.Name()))
		if err == nil {
			schedules[f.Name()], err = Parse(text)
		}
		if err != nil {
			t.Fatalf("%s: %v", f.Name(), err)
		}
	}
	return schedules
}

// TestKeptSchedules runs the saved schedules: a fixed fault must not return.
func TestKeptSchedules(t *testing.T) {
	t.Parallel()
	if *seed != 0 || *file != "" {
		t.Skip("one schedule was asked for")
	}
	c := newCrew(runtime.GOMAXPROCS(0))
	defer c.close()
	for name, s := range keptSchedules(t) {
		t.Run(name, func(t *testing.T) {
			if v := c.run(task{Schedule: s, Trace: true}); len(v.Wrongs) > 0 {
				report(t, c, s, v)
			}
		})
	}
}

// amountEnv is the variable with the time or the number of new schedules.
const amountEnv = "ROWMILL_VIRTUAL"

// amount returns the time limit or the number of new schedules: 200 without
// ROWMILL_VIRTUAL.
func amount(t *testing.T) (lasts time.Duration, many int) {
	t.Helper()
	text := os.Getenv(amountEnv)
	if text == "" {
		return math.MaxInt64, 200
	}
	if many, err := strconv.Atoi(text); err == nil {
		return math.MaxInt64, many
	}
	lasts, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: neither a number nor a duration: %v", amountEnv, err)
	}
	return lasts, math.MaxInt
}

// TestSchedules runs random schedules. Without flags and variables they are always the same, and
// each second one may have the newest faults.
func TestSchedules(t *testing.T) {
	t.Parallel()
	if *seed != 0 || *file != "" {
		one(t)
		return
	}
	size := runtime.GOMAXPROCS(0)
	c := newCrew(size)
	first, fixed := *from, *from == 0 && os.Getenv(amountEnv) == ""
	if first == 0 {
		first = 1
		if os.Getenv(amountEnv) != "" {
			first = rand.Uint64()>>1 + 1
		}
	}
	lasts, many := amount(t)
	began := time.Now()
	var mu sync.Mutex
	var all sync.WaitGroup
	next, failed, shapes := first, 0, map[string]bool{}
	ran, struck, virtual := 0, 0, time.Duration(0)
	shared, swift, hostile, parked := 0, 0, 0, 0
	for range size {
		all.Go(func() {
			for time.Since(began) < lasts {
				mu.Lock()
				if failed >= *most || many == 0 {
					mu.Unlock()
					return
				}
				seed := next
				if fixed && next%2 == 0 {
					seed += newest
				}
				s := Generate(seed)
				next++
				many--
				mu.Unlock()
				v := c.run(task{Schedule: s})
				mu.Lock()
				ran, struck, virtual = ran+1, struck+v.Struck, virtual+v.Virtual
				swift += v.Swift
				parked += v.Parked
				if s.twoAccounts() {
					shared++
				}
				if s.hostile() {
					hostile++
				}
				fresh := len(v.Wrongs) > 0 && !shapes[shape(v.Wrongs[0])]
				if fresh {
					shapes[shape(v.Wrongs[0])] = true
					failed++
				} else if len(v.Wrongs) > 0 {
					t.Errorf("seed %d fails too: %s", s.Seed, v.Wrongs[0])
				}
				mu.Unlock()
				if fresh {
					report(t, c, s, v)
				}
			}
		})
	}
	all.Wait()
	c.close()
	t.Logf("%d with two accounts, where %d urgent jobs were held to their time; %d with a hostile engine; %d innocent jobs were parked", shared, swift, hostile, parked)
	t.Logf("%d schedules from seed %d on in %v, %.0f a minute; %v of processor time and %v of virtual time each; %d faults struck",
		ran, first, time.Since(began).Round(time.Second), float64(ran)/time.Since(began).Minutes(),
		(c.cpu / time.Duration(max(ran, 1))).Round(time.Millisecond), (virtual / time.Duration(max(ran, 1))).Round(time.Second), struck)
}

// one runs the schedule of the flags and prints its trace.
func one(t *testing.T) {
	s := Generate(*seed)
	if *file != "" {
		text, err := os.ReadFile(*file)
		if err == nil {
			s, err = Parse(text)
		}
		must.Succeed(t, err)
	}
	c := newCrew(1)
	defer c.close()
	v := c.run(task{Schedule: s, Trace: true, Log: *verbose})
	t.Logf("%v\n%s\n%v", s, strings.Join(v.Trace, "\n"), v.String())
	if len(v.Wrongs) > 0 {
		t.Fail()
	}
}

// report shrinks a failing schedule and prints it with its trace.
func report(t *testing.T, c *crew, s Schedule, v Verdict) {
	t.Helper()
	like := shape(v.Wrongs[0])
	asks := 120
	if !*less || strings.Contains(v.Wrongs[0], spinning) { // each would take a minute
		asks = 0
	}
	least := Shrink(s, asks, func(smaller Schedule) bool {
		got := c.run(task{Schedule: smaller})
		return got.shaped(like)
	})
	again := c.run(task{Schedule: least, Trace: true})
	if asks > 0 && !again.shaped(like) {
		least, again = s, c.run(task{Schedule: s, Trace: true})
	}
	how := "it fails each time"
	if !again.shaped(like) {
		how, again = "IT DOES NOT FAIL AGAIN", v
	}
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s\nthe least schedule that fails (%s; keep it in testdata/schedules):\n%v\nwhat happens:\n", s.Seed, strings.Join(v.Wrongs, "\n"), how, least)
	for _, line := range again.Trace {
		b.WriteString("  " + line + "\n")
	}
	t.Error(b.String())
}
