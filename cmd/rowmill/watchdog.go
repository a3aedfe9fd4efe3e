package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// stopTimeout is how long a node that was told to stop may live beyond
	// jobs.drain_timeout, whatever still runs in it.
	stopTimeout = 10 * time.Second
	// tellTimeout is how long the watchdog may take to say why it ends the
	// process: what the log is written to may be what hangs.
	tellTimeout = time.Second
)

// A watchdog ends the process where it does not end by itself.
type watchdog struct {
	log   *slog.Logger
	limit time.Duration
	end   func() // the process

	step  atomic.Pointer[string] // of stopping, that is under way
	mu    sync.Mutex
	timer *time.Timer // nil until it is armed
}

// arm begins the time within which the process has to end. Twice is harmless.
func (w *watchdog) arm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(w.limit-tellTimeout, w.bite)
	}
}

// disarm is for a process that ends by itself, or was not told to.
func (w *watchdog) disarm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.NewTimer(0)
	}
	w.timer.Stop()
}

// at notes what the process is about to close.
func (w *watchdog) at(step string) {
	if w != nil {
		w.step.Store(&step)
	}
}

// bite says what still runs and ends the process.
func (w *watchdog) bite() {
	late := time.AfterFunc(tellTimeout, w.end)
	step := "the start of the node"
	if at := w.step.Load(); at != nil {
		step = *at
	}
	w.log.Error("the node does not stop: its process is ended; what was committed is kept, the rest is run again",
		"limit", w.limit.String(), "closing", step, "running", strings.Join(running(), ", "))
	if late.Stop() {
		w.end()
	}
}

// mostRunning is how many places are named at which the process runs.
const mostRunning = 12

var (
	recordStart = regexp.MustCompile(`^(\d+) @`)
	ownFrame    = regexp.MustCompile(`github\.com/rowmill/rowmill/(\S+)\+0x`)
)

// running are the places in our own code where goroutines are, those of most of
// them first.
func running() (places []string) {
	var text strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&text, 1) // a builder takes all
	counts, goroutines := map[string]int{}, 0
	for line := range strings.Lines(text.String()) {
		if start := recordStart.FindStringSubmatch(line); start != nil {
			goroutines, _ = strconv.Atoi(start[1])
		} else if frame := ownFrame.FindStringSubmatch(line); frame != nil {
			counts[frame[1]] += goroutines
			goroutines = 0 // those further down have called it
		}
	}
	for _, place := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	}) {
		if counts[place] > 0 && len(places) < mostRunning {
			places = append(places, fmt.Sprintf("%d × %s", counts[place], place))
		}
	}
	return places
}
