package engine

import "time"

// A Window decides how many rows may be in flight on one server, all jobs
// together. It follows the server's own gauges where there are any, and
// otherwise grows additively and halves on refusals. It keeps a small standing
// queue on the server and the rest with us, so that priorities and shares can
// work. It is a plain struct: its owner serialises the calls and passes the
// time in.
type Window struct {
	slots int     // rows the server runs at once; a guess while guessed is true
	size  float64 // rows allowed in flight
	kv    float64 // smoothed KV use

	guessed     bool
	preemptions int64
	gauged      time.Time // when gauges were last read
	cut         time.Time // when the window last shrank on a refusal
}

// Bounds of the window. Constants are reasoned from the behaviour of
// continuous batching, see docs/architecture.md.
const (
	guessedSlots = 256  // vLLM's default max_num_seqs
	mostSlots    = 1024 // its max_num_seqs on the largest GPUs: more in flight costs memory and gains nothing
	minWindow    = 1
	staleGauges  = 5 * time.Second
	kvGrow       = 0.90
	kvShrink     = 0.95
)

// NewWindow starts a window for a server that runs slots rows at once; 0 when
// it does not say.
func NewWindow(slots int) *Window {
	w := &Window{slots: slots, guessed: slots == 0}
	if w.guessed {
		w.slots = guessedSlots
	}
	w.size = float64(min(w.slots, 64))
	if !w.guessed {
		w.size = float64(w.slots)
	}
	return w
}

// Limit is the number of rows allowed in flight now.
func (w *Window) Limit() int { return int(w.size) }

// queue is the standing queue aimed at on the server.
func (w *Window) queue() float64 { return min(max(float64(w.slots)/8, 2), 64) }

func (w *Window) max() float64 { return float64(w.slots) + w.queue() }

// Observe takes a reading of the server's gauges, with our own number of rows
// in flight.
func (w *Window) Observe(g Gauges, inFlight int, now time.Time) {
	w.gauged = now
	kv := max(g.KVUse, 0)
	w.kv += (kv - w.kv) / 2
	preempted := g.Preemptions > w.preemptions && w.preemptions >= 0
	w.preemptions = g.Preemptions
	waiting, q := float64(g.Waiting), w.queue()
	full := float64(inFlight) >= 0.9*w.size
	switch {
	case preempted, w.kv > kvShrink && waiting > 0, waiting > 2*q:
		w.size = max(minWindow, min(0.8*w.size, float64(g.Running)+q))
	case waiting < q && w.kv < kvGrow && full:
		if w.guessed && waiting == 0 {
			w.slots = min(mostSlots, max(w.slots, int(2*w.size))) // it took everything: there is more room
		}
		w.size = min(w.max(), w.size+max(1, w.size/4))
	}
}

// Answered notes rows that came back well. Without gauges the window grows by
// one row per window of answers.
func (w *Window) Answered(rows int, inFlight int, now time.Time) {
	if now.Sub(w.gauged) < staleGauges || float64(inFlight) < 0.9*w.size {
		return
	}
	w.size = min(w.max(), w.size+float64(rows)/w.size)
}

// Refused notes that the server said it is overloaded: the window halves, once
// per second at most, since the rows in flight were sent under the old one.
func (w *Window) Refused(now time.Time) {
	if now.Sub(w.cut) < time.Second {
		return
	}
	w.cut = now
	w.size = max(minWindow, w.size/2)
}
