package virtual

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// goSlice is the time after which Go's scheduler interrupts a goroutine, so that others run
// first (runtime.forcePreemptNS).
const goSlice = 10 * time.Millisecond

// repeatTries is the number of times that a schedule may differ on a busy machine.
const repeatTries = 5

// TestSchedulesRepeat runs 50 schedules, or ROWMILL_VIRTUAL_REPEAT, in two processes, and
// compares the effects and their times: a failure of a seed must be repeatable. A process that
// waited longer than goSlice for its processor may have run its goroutines in another order. If
// such a schedule differs, the test runs it again.
func TestSchedulesRepeat(t *testing.T) {
	t.Parallel()
	many := 50
	if text := os.Getenv("ROWMILL_VIRTUAL_REPEAT"); text != "" {
		var err error
		if many, err = strconv.Atoi(text); err != nil {
			t.Fatalf("ROWMILL_VIRTUAL_REPEAT: %v", err)
		}
	}
	crews := []*crew{newCrew(1), newCrew(1)}
	differ := 0
	for i := range many {
		seed := uint64(i + 1)
		if i%5 == 4 { // with the newest faults
			seed += newest
		}
		ask := task{Schedule: Generate(seed), Effects: true}
		var verdicts [2]Verdict
		for range repeatTries {
			var both sync.WaitGroup
			for k, c := range crews {
				both.Go(func() { verdicts[k] = c.run(ask) })
			}
			both.Wait()
			if verdicts[0].Print == verdicts[1].Print || max(verdicts[0].Waited, verdicts[1].Waited) < goSlice {
				break
			}
			t.Logf("seed %d differs; the processes waited %v and %v for a processor", seed, verdicts[0].Waited, verdicts[1].Waited)
		}
		if verdicts[0].Print != verdicts[1].Print {
			differ++
			t.Errorf("seed %d:\n%s", seed, difference(verdicts[0].Trace, verdicts[1].Trace))
		}
	}
	for _, c := range crews {
		c.close()
	}
	if differ > 0 {
		t.Errorf("%d of %d schedules differ", differ, many)
	}
}

// difference returns the first different lines of two traces, with three lines before.
func difference(a, b []string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	var text strings.Builder
	for _, line := range a[max(i-3, 0):i] {
		fmt.Fprintf(&text, "    %s", line)
	}
	for _, line := range a[i:min(i+3, len(a))] {
		fmt.Fprintf(&text, "  1 %s", line)
	}
	for _, line := range b[i:min(i+3, len(b))] {
		fmt.Fprintf(&text, "  2 %s", line)
	}
	return text.String()
}
