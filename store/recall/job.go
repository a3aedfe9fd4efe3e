package recall

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rowmill/rowmill/store"
)

// A job is what is remembered of one.
type job struct {
	id      string
	writer  *store.Writer // knows what the store has acknowledged
	mending chan struct{} // full while its writes are made again

	mu     sync.Mutex
	asked  string        // session of a claim whose outcome may not be known
	since  time.Time     // of asked
	fence  store.Fence   // of the last claim here; none after its release
	base   *store.Record // as it was when it was claimed
	final  bool          // its end was acknowledged
	behind bool          // writes are to be made again
	later  bool          // a look has found that, and has not come to it
	mends  int           // how often they were
	missed int           // how often its end was missing
	log    []*write
}

// A write that the store has acknowledged, or is being asked for.
type write struct {
	at     time.Time
	acked  bool
	owners bool // it needs the fence
	create bool
	gives  bool                                     // it gives the job back
	brings func(store.Mark) bool                    // whether an end is what it brings; nil if it ends nothing
	do     func(context.Context, store.Fence) error // makes it again
}

// repeats waits until nobody else makes the job's writes again, unless ctx ends
// first. done lets the next begin.
func (j *job) repeats(ctx context.Context) (done func(), err error) {
	select {
	case j.mending <- struct{}{}:
		return func() { <-j.mending }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// What a record must show that is read later.
type standing struct {
	writes  int64 // of this writer
	created bool
	over    bool
	behind  bool // writes are to be made again, whatever it shows
}

// stands is what a record must show from now on: to be asked before it is read,
// since what is acknowledged meanwhile may not be in what was read.
func (j *job) stands() standing {
	j.mu.Lock()
	defer j.mu.Unlock()
	created := slices.ContainsFunc(j.log, func(w *write) bool { return w.create && w.acked })
	return standing{j.writer.Acked(), created, j.final, j.behind}
}

// forgotten reports whether a record that stands at m lacks what is remembered.
func (s standing) forgotten(m store.Mark) bool {
	return s.behind || m.Writes < s.writes || s.over && !m.Status.Terminal() || s.created && m.Version == 0
}

// prune forgets writes before a time, or where some are to be made again, before
// one that is by patience earlier. It reports whether nothing is left to be
// remembered.
func (j *job) prune(before time.Time, patience time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.behind || j.later {
		before = before.Add(-patience)
	}
	j.log = slices.DeleteFunc(j.log, func(w *write) bool { return w.at.Before(before) })
	j.behind = j.behind && len(j.log) > 0
	return len(j.log) == 0 && (j.final || j.fence.Session == "") && j.since.Before(before)
}

// found takes in a record: it says whether a claim, or the job's submission, has
// taken effect of which nobody was told.
func (j *job) found(rec store.Record) {
	j.mu.Lock()
	for _, w := range j.log {
		w.acked = w.acked || w.create
	}
	j.learn(store.Mark{Session: rec.Session, Epoch: rec.Epoch, Status: rec.Job.Status})
	known := j.fence.Session == rec.Session && j.fence.Epoch == rec.Epoch // from a claim before
	claimed := j.asked != "" && j.asked == rec.Session && !known && !rec.Job.Status.Terminal()
	j.mu.Unlock()
	if claimed && j.claimed(rec, 0) { // nobody knows on top of what
		j.fallBehind()
	}
}

// learn takes in that the job is over by a write of which nobody was told: j.mu is
// held.
func (j *job) learn(m store.Mark) {
	for _, w := range j.log {
		if !w.acked && w.brings != nil && m.Status.Terminal() && w.brings(m) {
			w.acked, j.final = true, true
		}
	}
}

// vouchEnd remembers a write that ended the job, which another may have made.
func (j *job) vouchEnd(w *write) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.final = true
	if slices.ContainsFunc(j.log, func(other *write) bool { return other.brings != nil && other.acked }) {
		return
	}
	w.at, w.acked = time.Now(), true
	j.log = append(j.log, w)
}

// vouch remembers that the job was stored.
func (j *job) vouch(w *write) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if slices.ContainsFunc(j.log, func(w *write) bool { return w.create && w.acked }) {
		return
	}
	w.at = time.Now()
	j.log = append(j.log, w)
}

// begin remembers a write that is asked for: its place is before those that are
// asked for later.
func (j *job) begin(w *write) (mends int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	w.at = time.Now()
	j.log = append(j.log, w)
	return j.mends
}

// end notes how a write came out. One that was under way while others were
// written again may have been forgotten with them. What is not known of a
// submission or an end counts once it is found.
func (j *job) end(w *write, err error, mends int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if (w.create || w.brings != nil) && errors.Is(err, store.ErrOutcomeUnknown) {
		return
	}
	if err != nil {
		j.log = slices.DeleteFunc(j.log, func(other *write) bool { return other == w })
		return
	}
	w.acked = true
	j.behind = j.behind || j.mends != mends
}

// remade notes that a write was made again: it may be forgotten again, too.
func (j *job) remade(w *write) {
	j.mu.Lock()
	defer j.mu.Unlock()
	w.at = time.Now()
}

// writes are those that were acknowledged, to be made again.
func (j *job) writes() []*write {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mends++
	return slices.DeleteFunc(slices.Clone(j.log), func(w *write) bool { return !w.acked })
}

func (j *job) state() (fence store.Fence, final bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.fence, j.final
}

// origin is what the job can be created from: its record as it was claimed, and
// its creation where that is remembered.
func (j *job) origin() (base *store.Record, created *write) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := slices.IndexFunc(j.log, func(w *write) bool { return w.create }); i >= 0 {
		created = j.log[i]
	}
	return j.base, created
}

// fallBehind notes that writes are to be made again, and reports whether that
// was known.
func (j *job) fallBehind() (before bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	before, j.behind = j.behind, true
	return before
}

// postpone notes whether a look has left for a later one what it found forgotten.
func (j *job) postpone(later bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.later = later
}

// mended notes that all was written again, under a fence. Without one the
// writes of an owner are still due, if there was one.
func (j *job) mended(fence store.Fence) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if fence.Session == "" {
		j.behind = j.fence.Session != ""
		return
	}
	j.fence, j.behind = fence, false
}

// misses counts how often the job's end was missing.
func (j *job) misses() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.missed++
	return j.missed
}

// reopened notes that the job is not over and anybody's.
func (j *job) reopened() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fence, j.final, j.missed = store.Fence{}, false, 0
}

// lose notes that the job has another owner, who goes on from what is recorded.
func (j *job) lose() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fence, j.behind = store.Fence{}, false
	j.log = slices.DeleteFunc(j.log, func(w *write) bool { return w.owners })
}

// follow takes over from a record that lacks nothing how the job stands.
func (j *job) follow(m store.Mark) {
	j.mu.Lock()
	other := j.fence.Session != "" && m.Epoch > j.fence.Epoch
	j.final, j.later = j.final || m.Status.Terminal(), false
	j.learn(m)
	j.mu.Unlock()
	if other {
		j.lose()
	}
}

// owns reports whether a fence is that of the last claim here.
func (j *job) owns(f store.Fence) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.fence.Session != "" && f.Session == j.fence.Session && f.Epoch == j.fence.Epoch
}

// claimed notes a claim by which the record holds so many writes from here, and
// reports whether those of before are to be made again under it: there are no
// more than there were.
func (j *job) claimed(rec store.Record, holds int64) (again bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	again = j.behind || holds <= j.writer.Acked()
	j.asked, j.fence = "", store.Fence{JobID: j.id, Session: rec.Session, Epoch: rec.Epoch}
	j.final, j.missed = false, 0 // who is asked to run a job waits for no end that is forgotten
	j.log = slices.DeleteFunc(j.log, func(w *write) bool { return w.gives })
	if j.base == nil {
		j.base = &rec
	}
	if !again {
		j.writer.Ack(holds)
	}
	return again
}

// count is how often writes were made again.
func (j *job) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mends
}

// ended notes that an end was acknowledged.
func (j *job) ended() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.final = true
}
