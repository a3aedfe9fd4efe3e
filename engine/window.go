package engine

import (
	"math"
	"time"
)

// A Window limits how many rows run at once on one server, for all jobs together. It
// learns the limit while rows run, because servers do not report it. It aims at a small
// queue on the server. The queue keeps the server busy, whether slots, prefill or the
// KV cache limit the server. All other rows wait in Rowmill, where priorities and fair
// shares apply. A Window has no lock: its owner serialises the calls and passes the
// current time.
//
// A Window uses the first of these signals that the server provides:
//
//	gauges      the length of the server's queue: the window grows while the queue
//	            is short and shrinks while it is long. While the KV cache is nearly
//	            full, the window grows slowly. It shrinks when the server preempts
//	            rows, because the server must compute preempted rows again
//	slots       slots are known, but no gauges: the window is the slots and a small
//	            queue
//	answers     neither gauges nor slots: the window grows while more rows in
//	            flight bring more answers per second. It halves on refusals, then
//	            grows by one for each answer up to the size of a new window (slow
//	            start, Jacobson 1988)
type Window struct {
	slots int     // maximum rows that the server runs at the same time; 0 if unknown
	size  float64 // maximum rows in flight

	gaugeState
	answerRateState
}

// A gaugeState is the state of a Window that it needs for a server with gauges.
type gaugeState struct {
	gauged      time.Time // time of the last reading of the gauges
	running     float64   // rows that the server ran at the last reading
	rising      bool      // running rose between the last two readings: waiting rows may only be prompts that the server is still reading
	congested   bool      // the server had a queue or a nearly full KV cache: the window no longer doubles
	shrunk      time.Time // time when the gauges last made the window shrink
	preemptions int64     // Gauges.Preemptions at the last reading; -1 before the first reading
	preempted   float64   // number of recent preemptions; decays with the time constant decayTime
	answers     float64   // number of recent answers; decays with the time constant decayTime
	kv          int64     // size of the KV cache in tokens; 0 if unknown
	used        float64   // tokens in the KV cache at the last reading
	share       float64   // share of the KV cache that the rows in flight are allowed to fill, by their expected final sizes
	rows        float64   // number of answered rows since the start
	prompts     float64   // total prompt tokens of the answered rows
	outputs     float64   // total answer tokens of the answered rows
}

// An answerRateState is the state of a Window that it needs for a server without gauges,
// and the record of the server's refusals.
type answerRateState struct {
	epoch               time.Time // start of the current measurement of the answer rate
	epochAnswers        float64   // number of answers in the current epoch
	best                float64   // highest answer rate so far, answers per second; decays slowly
	bestTokens          float64   // mean tokens per row (prompt and answer) when the rate best was measured
	epochTokens         float64   // tokens of prompts and answers in the current epoch
	settled             bool      // a larger window no longer raises the answer rate
	refused             time.Time // time when a refusal last halved the window
	sizeAtRefusal       float64   // size of the window at the first refusal since the last answer
	answersSinceRefusal float64   // number of answers since the last refusal
	regrow              float64   // below this size the window grows by one for each answer; 0 before the first refusal
}

// Limits and start values of a Window. docs/architecture.md names the servers on which
// they were tuned.
const (
	firstSize              = 64   // start size for a server with gauges, which correct the size within a second
	firstSizeWithoutGauges = 8    // start size for a server without gauges and slots: a small server runs 1 to 4 rows at once
	maxGauged              = 1024 // vLLM's max_num_seqs on the largest GPUs: more rows in flight cost memory and gain nothing
	maxSizeWithoutGauges   = 256  // maximum size for a server without gauges and slots
	minWindow              = 1    // minimum size: one row in flight

	staleGauges = 5 * time.Second        // after this time without a reading, the window uses the answers instead of the gauges
	slowReading = time.Second            // time between two readings of the gauges of a stable window
	fastReading = 100 * time.Millisecond // time between two readings while the window or the batch grows

	kvNearlyFull = 0.92 // used share of the KV cache from which the window does not grow; afterwards it grows by single rows
	kvFull       = 0.98 // used share of the KV cache from which a long queue does not shrink the window

	// The expected final sizes of all rows in flight may add up to this share of the KV
	// cache. The window starts at firstShare and keeps the share between minShare and
	// maxShare. The share may exceed 1: on average, a row in flight is half done. But
	// long rows stay in flight longest.
	firstShare = 0.9
	minShare   = 0.4
	maxShare   = 2.0
	// shareStep limits the growth of the share, relative to its value, during the mean
	// time that a row is in flight: a change shows its effect only after that time.
	shareStep = 0.2

	// growthFactor multiplies the size of the window after each reading of the gauges
	// until the server has a queue. So the window reaches 256 rows while a fast server
	// gives three answers.
	growthFactor = 2

	// maxPreempted is the accepted ratio of recent preemptions to recent answers: below
	// it, the larger batch gains more than the preemptions cost. The counts of recent
	// preemptions and answers decay with the time constant decayTime.
	maxPreempted = 0.004
	decayTime    = 30 * time.Second
)

// NewWindow returns a window for a server that runs slots rows at the same time; slots
// is 0 if unknown.
func NewWindow(slots int) *Window {
	w := &Window{slots: slots, size: firstSizeWithoutGauges, gaugeState: gaugeState{preemptions: -1, share: firstShare}}
	if slots > 0 {
		w.size = float64(slots) + w.targetQueueLength()
	}
	return w
}

// RowLimit returns the number of rows allowed in flight now. For urgent rows the limit is
// larger by the target length of the server's queue, so that urgent rows never wait in
// Rowmill for other rows.
func (w *Window) RowLimit(urgent bool) int {
	if urgent {
		return int(w.size + w.targetQueueLength())
	}
	return int(w.size)
}

// TokenLimit returns the maximum number of tokens (prompts and expected answers) that all
// rows in flight may have together; 0 means no limit. TokenLimit estimates answer lengths
// from the answered rows. The first answered rows are the short ones, so TokenLimit
// multiplies their mean answer length by 1 + (tokens of unfinished answers in the cache
// / tokens of finished answers). This is the usual estimate of a mean while some
// samples are unfinished.
func (w *Window) TokenLimit() int64 {
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

// CanGrow reports whether the window is full and would grow after the next good reading
// of the gauges.
func (w *Window) CanGrow(inFlight int) bool { return !w.congested && w.isNearlyFull(inFlight) }

// GaugeInterval returns the time until the next reading of the gauges: short while the window or
// the batch grows.
func (w *Window) GaugeInterval(inFlight int) time.Duration {
	if w.rising || w.CanGrow(inFlight) {
		return fastReading
	}
	return slowReading
}

// targetQueueLength returns the target length of the server's queue.
func (w *Window) targetQueueLength() float64 {
	batch := w.running
	if w.slots > 0 {
		batch = float64(w.slots)
	}
	return min(max(batch/8, 2), 64)
}

// maxSize returns the maximum size of the window for a server with slots or gauges.
func (w *Window) maxSize() float64 {
	if w.slots > 0 {
		return float64(w.slots) + w.targetQueueLength()
	}
	return maxGauged + w.targetQueueLength()
}

// isNearlyFull reports whether the rows in flight nearly fill the window.
func (w *Window) isNearlyFull(inFlight int) bool { return float64(inFlight) >= 0.9*math.Floor(w.size) }

// RecordGauges applies a reading of the server's gauges. inFlight is the number of Rowmill's
// own rows in flight, and tokens is their expected number of tokens. If the server has
// gauges, call RecordGauges before the first row: the window then starts larger.
func (w *Window) RecordGauges(g Gauges, inFlight int, tokens int64, now time.Time) {
	if w.gauged.IsZero() && w.slots == 0 {
		w.size = max(w.size, firstSize)
	}
	span := min(now.Sub(w.gauged).Seconds(), decayTime.Seconds())
	left := math.Exp(-span / decayTime.Seconds())
	w.preempted *= left
	w.answers *= left
	if w.preemptions >= 0 {
		w.preempted += float64(max(0, g.Preemptions-w.preemptions))
	}
	w.rising = float64(g.Running) > 1.02*w.running
	w.gauged, w.preemptions, w.running, w.kv = now, g.Preemptions, float64(g.Running), g.KVTokens
	w.used = max(g.KVUse, 0) * float64(g.KVTokens)
	waiting, q := float64(g.Waiting), w.targetQueueLength()
	switch {
	case waiting >= 1 || g.KVUse >= kvNearlyFull:
		w.congested = true
	case w.running >= 0.95*float64(inFlight) && w.preempted == 0:
		w.congested = false // the waiting rows were only prompts that the server was reading
	}
	byTokens := w.TokenLimit() > 0 && tokens >= w.TokenLimit()*9/10
	switch {
	case w.preempted > 1 && w.preempted > maxPreempted*w.answers:
		if w.tryShrink(0.95*w.size, inFlight, now) {
			w.share = max(minShare, w.share*0.95)
			w.preempted = 0
		}
	case waiting > 2*q && g.KVUse < kvFull:
		w.tryShrink(max(0.8*w.size, w.running+q), inFlight, now)
	case waiting > q/2 || w.running+waiting < 0.8*float64(inFlight): // in the second case some rows have not reached the server yet
	case g.KVUse >= kvNearlyFull:
	case byTokens:
		w.share = min(maxShare, w.share*(1+shareStep*span/w.secondsInFlight(inFlight)))
	case !w.isNearlyFull(inFlight):
	case !w.congested:
		w.size = min(w.maxSize(), growthFactor*w.size)
	default:
		w.size = min(w.maxSize(), w.size+max(1, q-waiting))
	}
}

// secondsInFlight estimates how long a row is in flight, in seconds (Little's law).
func (w *Window) secondsInFlight(inFlight int) float64 {
	return max(1, float64(inFlight)*decayTime.Seconds()/max(w.answers, 1))
}

// tryShrink reduces the window to the size newSize, unless an earlier call reduced it
// recently: a reduction shows its effect only after some rows in flight have ended. It
// reports whether it reduced the window.
func (w *Window) tryShrink(newSize float64, inFlight int, now time.Time) bool {
	if now.Sub(w.shrunk).Seconds() < max(slowReading.Seconds(), w.secondsInFlight(inFlight)/8) {
		return false
	}
	w.shrunk = now
	w.size = max(minWindow, min(newSize, w.size))
	return true
}

// RecordAnswers records successful rows and the tokens of their prompts and answers.
func (w *Window) RecordAnswers(rows int, promptTokens, outputTokens int64, inFlight int, now time.Time) {
	w.answers += float64(rows)
	w.answersSinceRefusal += float64(rows)
	w.rows += float64(rows)
	w.prompts += float64(promptTokens)
	w.outputs += float64(outputTokens)
	if now.Sub(w.gauged) < staleGauges {
		return
	}
	full := w.isNearlyFull(inFlight)
	switch {
	case w.slots == 0:
		w.adaptToAnswerRate(float64(rows), float64(promptTokens+outputTokens), inFlight, now)
	case full:
		w.size = min(w.maxSize(), w.size+float64(rows)/w.size)
	}
	if full && w.size < w.regrow {
		w.size = min(w.size+float64(rows), w.regrow)
	}
}

// maxLengthRatio is the largest accepted ratio between the mean row lengths, in tokens,
// of two epochs. adaptToAnswerRate compares the answer rates of two epochs only below this ratio.
const maxLengthRatio = 2

// adaptToAnswerRate adapts the size of a window without gauges and slots. It measures the answer
// rate in epochs of 2·size answers. After each epoch the window grows by half if the
// answer rate rose by more than 5 %. adaptToAnswerRate does not compare the rates of epochs with
// very different row lengths.
func (w *Window) adaptToAnswerRate(rows, tokens float64, inFlight int, now time.Time) {
	if w.epoch.IsZero() || !w.isNearlyFull(inFlight) {
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
		w.size = min(maxSizeWithoutGauges, 1.5*w.size)
		return
	}
	if !w.settled {
		w.settled = true
		w.size = max(minWindow, w.size/1.5)
	}
	w.best *= 0.98 // the best rate decays, so that adaptToAnswerRate notices a change of the load
}

// RecordRefusal records that the server refused a row because of overload. It halves the
// window at most once per second, because the rows already in flight were sent under
// the old limit.
func (w *Window) RecordRefusal(now time.Time) {
	w.congested = true
	if now.Sub(w.refused) < time.Second {
		return
	}
	w.refused = now
	// If the server has answered since the last refusal, the window was one row too large.
	// If the server refuses every row, the size of the window is not the reason.
	begin := float64(firstSizeWithoutGauges)
	if w.slots > 0 {
		begin = float64(w.slots) + w.targetQueueLength()
	}
	if w.answersSinceRefusal > 0 || w.sizeAtRefusal == 0 {
		w.sizeAtRefusal = w.size
		w.regrow = min(begin, w.size-1)
	} else {
		w.regrow = min(begin, w.sizeAtRefusal)
	}
	w.answersSinceRefusal = 0
	w.best, w.settled = 0, false
	w.size = max(minWindow, w.size/2)
}
