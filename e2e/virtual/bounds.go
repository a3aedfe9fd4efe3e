package virtual

import (
	"slices"
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
	for _, text := range j.different() {
		again += max(0, t.answered[text]-1)
	}
	j.mu.Lock()
	j.reruns += again
	j.mu.Unlock()
	family := j.family()
	bound := j.world.mayRerun() * len(family)
	for _, stray := range j.strays(j.owner()) { // they run the rows of others
		if rec, err := j.look(stray.id); err == nil {
			bound += int(stray.ran(rec).Rows)
		}
	}
	if len(family) > 1 {
		want, lost := j.answers()
		again, bound = -want, bound+lost
		for _, text := range j.different() {
			again += t.answered[text]
		}
	}
	if again > bound {
		j.wrong("%d rows of job %d were answered again, %d may", again, j.index, bound)
	}
}

// different are the rows of a job, each once.
func (j *jobCase) different() []string {
	return slices.Compact(slices.Sorted(slices.Values(j.texts)))
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
	bound := w.account.kills() * flight
	for i, f := range w.Faults {
		if !w.struck[i] {
			continue
		}
		switch f.Kind {
		case "clock", "unacknowledged":
		case "drain":
			if w.silenced() {
				bound += flight
			}
		case "forget":
			bound += len(w.Nodes) * (flight + int(rate*(time.Duration(f.For)+2*time.Second).Seconds()))
		case "crash", "stop":
			for _, n := range w.nodesOf(f) {
				// One that only owned costs no row, unless nobody has a place for its
				// jobs as long as workers wait.
				if !w.Nodes[n].NoEngine || w.Places > 0 {
					bound += flight
				}
			}
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

// silenced reports whether a call had no answer for as long as a node has for its
// drain, which then leaves what it waits for.
func (w *world) silenced() bool {
	for i, f := range w.Faults {
		if w.struck[i] && f.How == "silence" {
			return true
		}
	}
	return false
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

// judgeOwners wants a job to have no more owners than what struck explains: one
// that is passed round and round comes to its end only by luck.
func (j *jobCase) judgeOwners() {
	j.mu.Lock()
	owners := j.owners
	j.mu.Unlock()
	if most := 1 + j.world.mayChange(); owners > most {
		j.wrong("job %d had %d owners, %d may have been", j.index, owners, most)
	}
}

// mayChange is how often a job may have got another owner for what struck. Who
// dies, stops or cannot be understood loses it once, and whoever has it then may
// lose it for what comes back. What lasts may cost it as often as sessions end
// meanwhile. A wrong clock and an engine that lies are no reason.
func (w *world) mayChange() (most int) {
	most = w.account.kills()
	for i, f := range w.Faults {
		if !w.struck[i] {
			continue
		}
		n := 1
		if f.Node < 0 {
			n = len(w.Nodes)
		}
		switch f.Kind {
		case "clock", "engine":
		case "away", "full", "slow", "cut", "messages":
			most += 1 + int(f.For/w.Lease)
		default:
			most += n
		}
	}
	return most
}
