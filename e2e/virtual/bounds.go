package virtual

import (
	"time"
)

// judgeReruns counts what was answered twice against what may be.
func (j *jobCase) judgeReruns() {
	if j.of != nil {
		return // they are counted with those of the first
	}
	t := j.world.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	again := 0
	for _, text := range j.texts {
		again += max(0, t.answered[text]-1)
	}
	j.mu.Lock()
	j.reruns += again
	j.mu.Unlock()
	bound := j.world.mayRerun()
	for _, other := range j.jobs {
		if other.of != nil && other.root() == j { // its rows are ours, and what was in flight at our end is run again
			bound += j.world.mayRerun() + len(j.world.Nodes)*j.world.inFlight()
		}
	}
	if again > bound {
		j.wrong("%d rows of job %d were answered again, %d may", again, j.index, bound)
	}
}

// rate is how many rows a server answers in a second at most: a row takes half of
// Pace at least.
func (w *world) rate() float64 { return float64(w.Slots) / time.Duration(w.Pace).Seconds() * 2 }

// inFlight is how many rows of a node are answered and not committed at most.
func (w *world) inFlight() int {
	return 2*w.Slots + 4 + int(w.rate()*(2*time.Duration(w.PartInterval)+time.Second).Seconds())
}

// mayRerun is how many rows of a job may be run again after what struck.
func (w *world) mayRerun() int {
	rate := w.rate()
	flight := w.inFlight()
	bound := 0
	for i, f := range w.Faults {
		if !w.struck[i] {
			continue
		}
		switch f.Kind {
		case "drain", "clock", "unacknowledged":
		case "forget":
			bound += len(w.Nodes) * (flight + int(rate*(time.Duration(f.For)+2*time.Second).Seconds()))
		default:
			n := 1
			if f.Node < 0 || f.Kind == "cut" || f.Kind == "messages" {
				n = len(w.Nodes)
			}
			bound += n * flight
		}
	}
	return bound
}

func (a *account) struckFaults() int {
	n := 0
	for _, s := range a.world.struck {
		if s {
			n++
		}
	}
	return n
}
