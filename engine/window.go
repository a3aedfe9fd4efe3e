package engine

import (
	"math"
	"time"
)

// A Window limits how many rows run at once on one server, for all jobs together. It
// learns the limit, because servers do not report it. It aims at a small queue on the
// server: the queue keeps the server busy whatever limits it (slots, prefill, KV
// cache), and all other rows wait in Rowmill, where priorities and fair shares apply. A
// Window is a plain struct: its owner serialises the calls and passes the time.
//
// A Window uses the first of these signals that the server provides:
//
//	gauges      the server's queue: grow while it is short, shrink while it is
//	            long; near the end of the KV cache grow slowly, and shrink when
//	            the server preempts rows, because it then computes them again
//	slots       known slots without gauges: the slots and a small queue
//	answers     without gauges and slots: grow while more rows in flight bring
//	            more answers per second; halve on refusals, then grow by one for
//	            each answer up to the size of a new window (slow start, Jacobson
//	            1988)
type Window struct {
	slots int     // rows that the server runs at once; 0 if unknown
	size  float64 // rows allowed in flight

	gaugeWindow
	answerWindow
}

// A gaugeWindow holds the values of a Window that are used with gauges.
type gaugeWindow struct {
	gauged      time.Time // time of the last reading
	running     float64   // rows in the batch at the last reading
	rising      bool      // running has risen since the reading before: a queue may be prompts that the server is still reading
	congested   bool      // a queue or a full cache was seen: the window no longer doubles
	shrunk      time.Time // when the gauges last made the window shrink
	preemptions int64     // server's total at the last reading; -1 before the first
	preempted   float64   // recent preemptions; decays over fade
	answers     float64   // recent answers; decays over fade
	kv          int64     // size of the KV cache, tokens; 0 if unknown
	used        float64   // used tokens of the KV cache
	share       float64   // limit of the share of the KV cache that the rows in flight are expected to fill
	rows        float64   // answered rows since the start
	prompts     float64   // tokens of their prompts
	outputs     float64   // tokens of their answers
}

// An answerWindow holds the values of a Window that are used without gauges.
type answerWindow struct {
	epoch        time.Time // start of the current measurement of the answer rate
	epochAnswers float64   // answers in the epoch
	best         float64   // highest rate seen, answers per second
	bestTokens   float64   // mean tokens of a row (prompt and answer) at the best rate
	epochTokens  float64   // tokens of prompts and answers in the epoch
	settled      bool      // growing no longer raises the rate
	refused      time.Time // when the window last halved
	refusal      float64   // the size at the first refusal since the last answer
	since        float64   // answers since the last refusal
	regrow       float64   // below this size the window grows by one for each answer; 0 before a refusal
}

// Limits of the window. docs/architecture.md names the servers that they were tuned on.
const (
	firstSize = 64   // first size for a server with gauges: they correct it within a second
	blindSize = 8    // first size for a server without gauges: a small server runs 1 to 4 rows at once
	maxGauged = 1024 // vLLM's max_num_seqs on the largest GPUs: more rows in flight cost memory and gain nothing
	maxBlind  = 256
	minWindow = 1

	staleGauges = 5 * time.Second
	slowReading = time.Second
	fastReading = 100 * time.Millisecond // while the window grows

	kvNearlyFull = 0.92 // from here the window grows by single rows
	kvFull       = 0.98

	// The expected final sizes of all rows in flight may add up to this share of the KV
	// cache. The window adapts the share, beginning with firstShare. On average, rows
	// in flight are half done, but long rows stay in flight longest.
	firstShare = 0.9
	minShare   = 0.4
	maxShare   = 2.0
	// shareStep limits the growth of the share during the time that a row is in flight:
	// the effect shows only after that time.
	shareStep = 0.2

	// growthFactor multiplies the size of a window that grows before a queue was seen.
	// The window reaches 256 slots in the time in which a fast server gives three answers.
	growthFactor = 2

	// maxPreempted is the accepted share of preempted rows: they cost less than the
	// larger batch gains. The counts of recent preemptions and answers decay over about
	// the time fade.
	maxPreempted = 0.004
	fade         = 30 * time.Second
)

// NewWindow returns a window for a server that runs slots rows at once; 0 if unknown.
func NewWindow(slots int) *Window {
	w := &Window{slots: slots, size: blindSize, gaugeWindow: gaugeWindow{preemptions: -1, share: firstShare}}
	if slots > 0 {
		w.size = float64(slots) + w.queue()
	}
	return w
}

// Limit returns the number of rows allowed in flight now. For urgent rows the limit is
// larger by the target length of the server's queue, so that urgent rows never wait in
// Rowmill for other rows.
func (w *Window) Limit(urgent bool) int {
	if urgent {
		return int(w.size + w.queue())
	}
	return int(w.size)
}

// Tokens returns how many tokens (prompts and expected answers) the rows in flight may
// have together; 0 means no limit. The estimate uses answered rows, and the first
// answered rows are the short ones. So it assumes longer answers: it multiplies their
// mean by 1 + (tokens of unfinished answers in the cache / tokens of finished answers).
// This is the usual estimate of a mean while some samples are unfinished.
func (w *Window) Tokens() int64 {
	if w.kv == 0 || w.slots > 0 { // each slot has its own part of the cache
		return 0
	}
	rows := w.rows + 1
	growing := max(0, w.used-w.running*w.prompts/rows)
	measured := w.prompts + w.outputs + 1
	expected := w.prompts + w.outputs*(1+growing/(w.outputs+1)) + 1
	return max(int64(w.share*float64(w.kv)*measured/expected), 1)
}

// CacheTokens returns the size of the server's KV cache; 0 if unknown.
func (w *Window) CacheTokens() int64 { return w.kv }

// Grows reports whether the window is full and would grow after the next good reading
// of the gauges.
func (w *Window) Grows(inFlight int) bool { return !w.congested && w.full(inFlight) }

// Next returns the time until the next reading of the gauges: short while the window or
// the batch grows.
func (w *Window) Next(inFlight int) time.Duration {
	if w.rising || w.Grows(inFlight) {
		return fastReading
	}
	return slowReading
}

// queue returns the target length of the server's queue.
func (w *Window) queue() float64 {
	batch := w.running
	if w.slots > 0 {
		batch = float64(w.slots)
	}
	return min(max(batch/8, 2), 64)
}

func (w *Window) maxSize() float64 {
	if w.slots > 0 {
		return float64(w.slots) + w.queue()
	}
	return maxGauged + w.queue()
}

func (w *Window) full(inFlight int) bool { return float64(inFlight) >= 0.9*math.Floor(w.size) }

// Observe applies a reading of the server's gauges. inFlight is the number of Rowmill's
// own rows in flight, and tokens is their expected number of tokens. If the server has
// gauges, call Observe before the first row: the window then starts larger.
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
		w.congested = false // the full server was only reading prompts
	}
	byTokens := w.Tokens() > 0 && tokens >= w.Tokens()*9/10
	switch {
	case w.preempted > 1 && w.preempted > maxPreempted*w.answers:
		if w.shrink(0.95*w.size, inFlight, now) {
			w.share = max(minShare, w.share*0.95)
			w.preempted = 0
		}
	case waiting > 2*q && g.KVUse < kvFull:
		w.shrink(max(0.8*w.size, w.running+q), inFlight, now)
	case waiting > q/2 || w.running+waiting < 0.8*float64(inFlight): // the other rows are on their way to the server
	case g.KVUse >= kvNearlyFull:
	case byTokens:
		w.share = min(maxShare, w.share*(1+shareStep*span/w.residence(inFlight)))
	case !w.full(inFlight):
	case !w.congested:
		w.size = min(w.maxSize(), growthFactor*w.size)
	default:
		w.size = min(w.maxSize(), w.size+max(1, q-waiting))
	}
}

// residence estimates how long a row is in flight, in seconds (Little's law).
func (w *Window) residence(inFlight int) float64 {
	return max(1, float64(inFlight)*fade.Seconds()/max(w.answers, 1))
}

// shrink reduces the window, unless it was reduced a moment ago: the effect shows only
// after some rows in flight have ended. It returns whether it reduced the window.
func (w *Window) shrink(to float64, inFlight int, now time.Time) bool {
	if now.Sub(w.shrunk).Seconds() < max(slowReading.Seconds(), w.residence(inFlight)/8) {
		return false
	}
	w.shrunk = now
	w.size = max(minWindow, min(to, w.size))
	return true
}

// Answered records successful rows and the tokens of their prompts and answers.
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
		w.size = min(w.maxSize(), w.size+float64(rows)/w.size)
	}
	if full && w.size < w.regrow {
		w.size = min(w.size+float64(rows), w.regrow)
	}
}

// maxLengthRatio limits the difference in length of the rows of two answer rates: climb
// compares the rates only if the mean tokens per row differ by at most this factor.
const maxLengthRatio = 2

// climb adapts a window that can use only answers. It measures the answer rate in
// epochs of 2·size answers. After each epoch the window grows by half, if the rate rose
// by more than 5 %. climb does not compare rates of rows with very different lengths.
func (w *Window) climb(rows, tokens float64, inFlight int, now time.Time) {
	if w.epoch.IsZero() || !w.full(inFlight) {
		w.epoch, w.epochAnswers, w.epochTokens = now, 0, 0
		return
	}
	w.epochAnswers += rows
	w.epochTokens += tokens
	span := now.Sub(w.epoch)
	if w.epochAnswers < 2*w.size || span < time.Second/4 {
		return
	}
	rate, rowTokens := w.epochAnswers/span.Seconds(), w.epochTokens/w.epochAnswers
	w.epoch, w.epochAnswers, w.epochTokens = now, 0, 0
	if rowTokens > maxLengthRatio*w.bestTokens || w.bestTokens > maxLengthRatio*rowTokens {
		w.best, w.bestTokens = 0, rowTokens
	}
	if rate > 1.05*w.best {
		w.best, w.settled = rate, false
		w.size = min(maxBlind, 1.5*w.size)
		return
	}
	if !w.settled {
		w.settled = true
		w.size = max(minWindow, w.size/1.5)
	}
	w.best *= 0.98 // decays, so that a change of the load is noticed
}

// Refused records that the server reported overload. It halves the window at most once
// per second, because rows in flight were sent under the old limit.
func (w *Window) Refused(now time.Time) {
	w.congested = true
	if now.Sub(w.refused) < time.Second {
		return
	}
	w.refused = now
	// If the server has answered since the last refusal, the window was one row too large.
	// If the server refuses every row, the size of the window is not the reason.
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
