package engine

import (
	"math"
	"time"
)

// A Window decides how much may be in flight on one server, all jobs together,
// without being told how much the server can take. It aims at a small standing
// queue on the server: that keeps the server busy whatever bounds it (its
// slots, its prefill, its KV cache), and leaves the rest of the rows with us,
// where priorities and shares can work. It is a plain struct: its owner
// serialises the calls and passes the time in.
//
// Three signs steer it, the first that there is:
//
//	gauges      the server's queue: grow while it is short, shrink while it is
//	            long; near the end of the KV cache grow slowly, and shrink when
//	            rows are preempted, which the server then computes again
//	slots       known and no gauges: slots and a small queue
//	answers     neither: grow while more in flight brings more answers per
//	            second, halve on refusals and grow by one for each answer up to where
//	            a new window begins (slow start, Jacobson 1988)
type Window struct {
	slots int     // rows the server runs at once; 0 while unknown
	size  float64 // rows allowed in flight

	// With gauges.
	gauged      time.Time // when they were last read
	running     float64   // rows in the batch then
	rising      bool      // more than at the reading before: a queue may be prompts on their way in
	congested   bool      // a queue or a full cache has been seen: no more leaps
	shrunk      time.Time // when the window last shrank by gauges
	preemptions int64     // total at the last reading; -1 before the first
	preempted   float64   // of late: fades within fade
	answers     float64   // of late: fades within fade
	kv          int64     // size of the KV cache, tokens; 0 when unknown
	used        float64   // of it, tokens
	share       float64   // of it that rows in flight may be expected to fill
	rows        float64   // answered, of all time
	prompts     float64   // their tokens
	outputs     float64   // their answers' tokens

	// Without.
	epoch   time.Time // since when answers are counted for the rate of a size
	counted float64   // answers in the epoch
	best    float64   // highest rate seen, answers per second
	of      float64   // tokens of a row, prompt and answer, when it was
	work    float64   // tokens of the answers in the epoch
	settled bool      // growing has stopped to help
	refused time.Time // when the window last halved
	refusal float64   // the size at the first of the refusals without an answer between them
	since   float64   // answers since the last refusal
	regrow  float64   // up to this size the window grows with each answer; 0 before a refusal
}

// Bounds of the window. docs/architecture.md says what they were tried on.
const (
	firstSize   = 64   // rows sent to an unknown server with gauges: they correct it within a second
	blindSize   = 8    // rows sent to an unknown server without: a small one serves 1 to 4 at once
	mostRunning = 1024 // vLLM's max_num_seqs on the largest GPUs: more in flight costs memory and gains nothing
	mostBlind   = 256
	minWindow   = 1

	staleGauges = 5 * time.Second
	slowReading = time.Second
	fastReading = 100 * time.Millisecond // while the window grows

	kvNearlyFull = 0.92 // from here the window grows by single rows
	kvFull       = 0.98

	// The expected final sizes of all rows in flight may add up to a share of
	// the KV cache. It is found out, beginning with firstShare: rows in flight
	// are on average half done, but the long ones are in flight for longest.
	firstShare = 0.9
	leastShare = 0.4
	mostShare  = 2.0
	// shareStep is by how much the share may grow in the time that a row is in
	// flight: only then does its effect show.
	shareStep = 0.2

	// leap is by how much a window grows at once while no queue has been seen: 256
	// slots are found within three answers of a quick server.
	leap = 2

	// bearable is the share of rows that may be preempted: less than what the
	// larger batch gains. Preemptions and answers are counted over about fade.
	bearable = 0.004
	fade     = 30 * time.Second
)

// NewWindow starts a window for a server that runs slots rows at once; 0 when
// it does not say.
func NewWindow(slots int) *Window {
	w := &Window{slots: slots, preemptions: -1, share: firstShare, size: blindSize}
	if slots > 0 {
		w.size = float64(slots) + w.queue()
	}
	return w
}

// Limit is the number of rows allowed in flight now. Urgent rows may exceed it
// by the queue aimed at, so that they stand in no queue of ours.
func (w *Window) Limit(urgent bool) int {
	if urgent {
		return int(w.size + w.queue())
	}
	return int(w.size)
}

// Tokens is how many tokens, prompts and expected answers, the rows in flight
// may have together; 0 for no bound. Expectations rest on the rows that have
// been answered, which are the short ones at first. So answers are taken to be
// longer than those seen by what is still growing in the cache over what has
// ended, which is how a mean is estimated where some have not ended yet.
func (w *Window) Tokens() int64 {
	if w.kv == 0 || w.slots > 0 { // slots have their share of the cache to themselves
		return 0
	}
	rows := w.rows + 1
	growing := max(0, w.used-w.running*w.prompts/rows)
	seen := w.prompts + w.outputs + 1
	expected := w.prompts + w.outputs*(1+growing/(w.outputs+1)) + 1
	return max(int64(w.share*float64(w.kv)*seen/expected), 1)
}

// CacheTokens is the size of the server's KV cache; 0 when unknown.
func (w *Window) CacheTokens() int64 { return w.kv }

// Grows reports whether the window is full and would grow with the next
// reading of the gauges, if that is good.
func (w *Window) Grows(inFlight int) bool { return !w.congested && w.full(inFlight) }

// Next is when the gauges should be read again: soon while the window or the
// batch grows.
func (w *Window) Next(inFlight int) time.Duration {
	if w.rising || w.Grows(inFlight) {
		return fastReading
	}
	return slowReading
}

// queue is the standing queue aimed at on the server.
func (w *Window) queue() float64 {
	batch := w.running
	if w.slots > 0 {
		batch = float64(w.slots)
	}
	return min(max(batch/8, 2), 64)
}

func (w *Window) most() float64 {
	if w.slots > 0 {
		return float64(w.slots) + w.queue()
	}
	return mostRunning + w.queue()
}

func (w *Window) full(inFlight int) bool { return float64(inFlight) >= 0.9*math.Floor(w.size) }

// Observe takes a reading of the server's gauges, with our own rows in flight
// and the tokens expected of them. The first should come before the first row:
// a window that knows its server to have gauges starts with more.
func (w *Window) Observe(g Gauges, inFlight int, tokens int64, now time.Time) {
	if w.gauged.IsZero() && w.slots == 0 {
		w.size = max(w.size, firstSize)
	}
	span := min(now.Sub(w.gauged).Seconds(), fade.Seconds())
	left := math.Exp(-span / fade.Seconds())
	w.preempted *= left
	w.answers *= left
	if w.preemptions >= 0 {
		w.preempted += float64(max(0, g.Preemptions-w.preemptions))
	}
	w.rising = float64(g.Running) > 1.02*w.running
	w.gauged, w.preemptions, w.running, w.kv = now, g.Preemptions, float64(g.Running), g.KVTokens
	w.used = max(g.KVUse, 0) * float64(g.KVTokens)
	waiting, q := float64(g.Waiting), w.queue()
	switch {
	case waiting >= 1 || g.KVUse >= kvNearlyFull:
		w.congested = true
	case w.running >= 0.95*float64(inFlight) && w.preempted == 0:
		w.congested = false // what looked like a full server was prompts being read
	}
	byTokens := w.Tokens() > 0 && tokens >= w.Tokens()*9/10
	switch {
	case w.preempted > 1 && w.preempted > bearable*w.answers:
		if w.shrink(0.95*w.size, inFlight, now) {
			w.share = max(leastShare, w.share*0.95)
			w.preempted = 0
		}
	case waiting > 2*q && g.KVUse < kvFull:
		w.shrink(max(0.8*w.size, w.running+q), inFlight, now)
	case waiting > q/2 || w.running+waiting < 0.8*float64(inFlight): // the rest is on its way there
	case g.KVUse >= kvNearlyFull:
	case byTokens:
		w.share = min(mostShare, w.share*(1+shareStep*span/w.residence(inFlight)))
	case !w.full(inFlight):
	case !w.congested:
		w.size = min(w.most(), leap*w.size)
	default:
		w.size = min(w.most(), w.size+max(1, q-waiting))
	}
}

// residence is how long a row is in flight, in seconds (Little's law).
func (w *Window) residence(inFlight int) float64 {
	return max(1, float64(inFlight)*fade.Seconds()/max(w.answers, 1))
}

// shrink takes the window down, unless it has just done so: what follows shows
// only once some of the rows in flight have ended.
func (w *Window) shrink(to float64, inFlight int, now time.Time) bool {
	if now.Sub(w.shrunk).Seconds() < max(slowReading.Seconds(), w.residence(inFlight)/8) {
		return false
	}
	w.shrunk = now
	w.size = max(minWindow, min(to, w.size))
	return true
}

// Answered notes rows that came back well, and the tokens of their prompts and
// answers.
func (w *Window) Answered(rows int, prompts, outputs int64, inFlight int, now time.Time) {
	w.answers += float64(rows)
	w.since += float64(rows)
	w.rows += float64(rows)
	w.prompts += float64(prompts)
	w.outputs += float64(outputs)
	if now.Sub(w.gauged) < staleGauges {
		return
	}
	full := w.full(inFlight)
	switch {
	case w.slots == 0:
		w.climb(float64(rows), float64(prompts+outputs), inFlight, now)
	case full:
		w.size = min(w.most(), w.size+float64(rows)/w.size)
	}
	if full && w.size < w.regrow {
		w.size = min(w.size+float64(rows), w.regrow)
	}
}

// unlike is by what factor the tokens of rows may differ for rates of them to be compared.
const unlike = 2

// climb grows a window that has nothing but answers to go by: half as large
// again after each epoch of two windows of answers, as long as that brings at
// least 5 % more of them per second. The rate of other rows, much longer or shorter, says
// nothing of these.
func (w *Window) climb(rows, tokens float64, inFlight int, now time.Time) {
	if w.epoch.IsZero() || !w.full(inFlight) {
		w.epoch, w.counted, w.work = now, 0, 0
		return
	}
	w.counted += rows
	w.work += tokens
	span := now.Sub(w.epoch)
	if w.counted < 2*w.size || span < time.Second/4 {
		return
	}
	rate, of := w.counted/span.Seconds(), w.work/w.counted
	w.epoch, w.counted, w.work = now, 0, 0
	if of > unlike*w.of || w.of > unlike*of {
		w.best, w.of = 0, of
	}
	if rate > 1.05*w.best {
		w.best, w.settled = rate, false
		w.size = min(mostBlind, 1.5*w.size)
		return
	}
	if !w.settled {
		w.settled = true
		w.size = max(minWindow, w.size/1.5)
	}
	w.best *= 0.98 // is forgotten in time, so that a change of the load is found
}

// Refused notes that the server said it is overloaded: the window halves, once
// per second at most, since the rows in flight were sent under the old one.
func (w *Window) Refused(now time.Time) {
	w.congested = true
	if now.Sub(w.refused) < time.Second {
		return
	}
	w.refused = now
	// Where the server answered before, one row less would have been right. Where it refuses
	// whatever is in flight, the size was not the reason.
	begin := float64(blindSize)
	if w.slots > 0 {
		begin = float64(w.slots) + w.queue()
	}
	if w.since > 0 || w.refusal == 0 {
		w.refusal = w.size
		w.regrow = min(begin, w.size-1)
	} else {
		w.regrow = min(begin, w.refusal)
	}
	w.since = 0
	w.best, w.settled = 0, false
	w.size = max(minWindow, w.size/2)
}
