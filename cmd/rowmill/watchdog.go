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
	// stopTimeout is how long the process of a stopping node may continue after
	// jobs.drain_timeout. Then the watchdog ends it, even if some parts still run.
	stopTimeout = 10 * time.Second
	// tellTimeout is how long the watchdog may take to log why it ends the process. It
	// needs this limit because a write to the log can block too.
	tellTimeout = time.Second
)

// A watchdog ends the process if the node takes too long to stop.
type watchdog struct {
	log   *slog.Logger
	limit time.Duration
	end   func() // ends the process

	step  atomic.Pointer[string] // name of the part that the node is closing
	mu    sync.Mutex
	timer *time.Timer // nil before arm or disarm
}

// arm starts the time limit of the process. A second call does nothing.
func (w *watchdog) arm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(w.limit-tellTimeout, w.endProcess)
	}
}

// disarm stops the watchdog: the node has stopped in time. A later call of arm does
// nothing.
func (w *watchdog) disarm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.NewTimer(0)
	}
	w.timer.Stop()
}

// setClosingPart stores the name of the part that the node closes next, for the log.
func (w *watchdog) setClosingPart(partName string) {
	if w != nil {
		w.step.Store(&partName)
	}
}

// endProcess logs where the goroutines of the program are, and ends the process.
func (w *watchdog) endProcess() {
	late := time.AfterFunc(tellTimeout, w.end)
	step := "the start of the node"
	if at := w.step.Load(); at != nil {
		step = *at
	}
	w.log.Error("the node does not stop in time, so the watchdog ends its process; committed rows are kept, other rows run again",
		"limit", w.limit.String(), "closing", step, "running", strings.Join(goroutineLocations(), ", "))
	if late.Stop() {
		w.end()
	}
}

// mostRunning limits how many code locations of goroutines are logged.
const mostRunning = 12

var (
	recordStart = regexp.MustCompile(`^(\d+) @`)
	ownFrame    = regexp.MustCompile(`github\.com/rowmill/rowmill/(\S+)\+0x`)
)

// goroutineLocations returns the locations in Rowmill's code at which goroutines are, with the
// number of goroutines at each. The most frequent location is first.
func goroutineLocations() (places []string) {
	var text strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&text, 1) // writes to a builder do not fail
	counts, goroutines := map[string]int{}, 0
	for line := range strings.Lines(text.String()) {
		if start := recordStart.FindStringSubmatch(line); start != nil {
			goroutines, _ = strconv.Atoi(start[1])
		} else if frame := ownFrame.FindStringSubmatch(line); frame != nil {
			counts[frame[1]] += goroutines
			goroutines = 0 // count only the innermost frame in Rowmill's code
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
