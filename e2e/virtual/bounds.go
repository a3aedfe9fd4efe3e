package virtual

import (
	"slices"
	"time"
)

// judgeReruns compares the number of repeated answers with its bound.
func (j *jobCase) judgeReruns() {
	if j.of != nil {
		return // counted with the first job of the family
	}
	bound := j.ranAgain()
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
	bound += j.world.mayRerun() * len(family)
	for _, stray := range j.strays(j.owner()) { // strays run rows of other jobs
		if rec, err := j.look(stray.id); err == nil {
			bound += int(stray.ran(rec).Rows)
		}
	}
	if len(family) > 1 {
		want, lost := j.answers()
		again, bound = -want, bound+lost
		for _, text := range different(j.input) {
			again += t.answered[text]
		}
	}
	if again > bound {
		j.wrong("%d rows of job %d were answered again, %d may", again, j.index, bound)
	}
}

// different returns the rows of a job without repetitions.
func (j *jobCase) different() []string { return different(j.texts) }

func different(texts []string) []string { return slices.Compact(slices.Sorted(slices.Values(texts))) }

// rate returns the largest number of rows per second of a server: a row takes at least half
// of Pace.
func (w *world) rate() float64 { return float64(w.Slots) / time.Duration(w.Pace).Seconds() * 2 }

// inFlight returns the largest number of rows of a node that are answered and not yet
// committed.
func (w *world) inFlight() int {
	return 2*w.Slots + 4 + int(w.rate()*(2*time.Duration(w.PartInterval)+time.Second).Seconds())
}

// mayRerun returns how many rows of a job may run again because of the faults that struck.
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
			// Workers of other nodes keep answered rows for the next owner. They drop
			// them if no node has a place for the job before they stop waiting.
			if w.silenced() || w.Places > 0 {
				bound += flight
			}
		case "forget", splitBrain:
			bound += len(w.Nodes) * (flight + int(rate*(time.Duration(f.For)+2*time.Second).Seconds()))
		case "crash", "stop":
			for _, n := range w.nodesOf(f) {
				// A node without an engine loses no row, unless no other node has room
				// for its jobs while workers wait.
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

// silenced reports whether a call had no answer. It may take as long as the drain timeout,
// and the node then ends without its answer.
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

// judgeOwners checks that a job had no more owners than the faults explain. A job that
// changes owners without end finishes only by luck.
func (j *jobCase) judgeOwners() {
	j.mu.Lock()
	owners, parked := j.owners, j.parked
	j.mu.Unlock()
	most := 1 + parked + j.world.mayChange() // the owner that parks the job releases it
	if j.Pause > 0 {
		most++ // so does the owner of a paused job
	}
	if owners > most {
		j.wrong("job %d had %d owners, %d may have been", j.index, owners, most)
	}
}

// mayChange returns how often a job may change its owner because of the faults that struck:
// once for each node that a fault hit once, and once more for a lasting fault for each
// lease in its duration. A wrong clock and a wrong engine are no reason.
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
		case "away", "full", "slow", "cut", "messages", splitBrain:
			most += 1 + int(f.For/w.Lease)
		default:
			most += n
		}
	}
	return most
}
