package virtual

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/store"
)

// An account is what clients know of their jobs, and what an observer sees of
// them who can look into the store and the bucket at any moment.
type account struct {
	world *world
	jobs  []*jobCase
	acks  *acks

	mu      sync.Mutex
	wrongs  []string
	forgets []forgetting
	reruns  int
	crashed map[string]bool          // by the id of a process
	takers  map[string]*proc         // by the id of a job: who has claimed it last
	mourned int                      // jobs that failed for owners that they did not end
	made    map[string]time.Duration // by the end of an id: when its record was written
	refused map[string]rowmill.Money // by job: what it was last refused to set aside
	listed  map[string]listing       // by job
}

// A forgetting is when the store forgot what had come since.
type forgetting struct{ since, at time.Duration }

// A jobCase is one job of the schedule.
type jobCase struct {
	*account
	Job
	index int
	texts []string
	of    *jobCase // whom it continues

	// Guarded by account.mu.
	id        string
	accepted  time.Duration
	teller    *proc // told its client so
	orphaned  bool  // and had died before all was mended
	cancelled bool  // a client was told so
	history   []glimpse
	finals    []store.Record // its record each time that it was over
	never     bool           // there is nothing to continue
	asked     int            // how often its rows were asked for
	asker     *proc          // who did last
	excused   bool           // a server or the way to it was broken
	stored    time.Duration  // when its rows were, as they came
	removing  bool           // its client has asked for its data to go
	removed   bool           // and was told that it is gone
	remover   *proc          // by this one
	undone    bool           // which had died before all was mended
	released  bool           // its client wants nothing more of it
	dataGone  bool           // its record has said that its data is removed
	inputGone bool           // or its input
	ended     time.Duration
	seen      time.Duration   // that it is over, whatever the clock of a node says
	owners    int             // how often it has become somebody's
	kills     int             // how many of them it has ended
	tried     []store.Adopter // who had taken it up when it was last open
}

// A glimpse is a job's record after a write.
type glimpse struct {
	at      time.Duration
	status  rowmill.Status
	epoch   int64
	version int64
	session string
	done    int64
}

func newAccount(w *world) *account {
	a := &account{world: w, acks: newAcks(w.now), made: make(map[string]time.Duration), crashed: make(map[string]bool), takers: make(map[string]*proc), refused: make(map[string]rowmill.Money), listed: make(map[string]listing)}
	for i, j := range w.Jobs {
		c := &jobCase{account: a, Job: j, index: i}
		if j.Continues > 0 {
			c.of = a.jobs[j.Continues-1]
			c.texts, c.Rows, c.Broken, c.Deadly, c.Equal, c.Schema, c.Account = c.of.texts, 0, c.of.Broken, c.of.Deadly, c.of.Equal, c.of.Schema, c.of.Account
		}
		for r := range c.Rows {
			if j.Equal > 0 {
				r = (r*r + 7*r) / 3 % j.Equal
			}
			text := fmt.Sprintf("job %d, row %d", i, r)
			switch {
			case r < min(j.Deadly, j.Broken):
				text = deadlyPrefix + text
			case r < j.Broken:
				text = "broken " + text
			}
			c.texts = append(c.texts, text)
		}
		a.jobs = append(a.jobs, c)
	}
	return a
}

// mostWrongs bounds what is said of one world.
const mostWrongs = 8

func (a *account) wrong(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if text := fmt.Sprintf(format, args...); len(a.wrongs) < mostWrongs && !slices.Contains(a.wrongs, text) {
		a.wrongs = append(a.wrongs, text)
		a.world.tell(-1, "WRONG", text, "")
	}
}

// forgot notes that the store went back.
func (a *account) forgot(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.world.now()
	a.forgets = append(a.forgets, forgetting{at - d, at})
	clear(a.listed)
	for _, j := range a.jobs {
		j.history = nil
	}
}

// forgottenAt reports whether what happened at a time was forgotten later.
func (a *account) forgottenAt(at time.Duration) bool {
	return slices.ContainsFunc(a.forgets, func(f forgetting) bool { return f.since <= at && at <= f.at })
}

// look reads a record past all faults.
func (a *account) look(id string) (store.Record, error) {
	v := a.world.vault
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.base.Get(background, id)
}

func (a *account) parts(id string) []store.Part {
	v := a.world.vault
	v.mu.RLock()
	defer v.mu.RUnlock()
	parts, _ := v.base.ListParts(background, id)
	return parts
}

// partsOf are the parts of a job whose record was just read: they are read anew where
// that has changed.
func (a *account) partsOf(rec store.Record) []store.Part {
	id := rec.Job.ID
	a.mu.Lock()
	known := a.listed[id]
	a.mu.Unlock()
	if known.version == rec.Version {
		return known.parts
	}
	v := a.world.vault
	v.mu.RLock()
	defer v.mu.RUnlock()
	parts, _ := v.base.ListParts(background, id)
	if now, err := v.base.Marks(background, []string{id}, ""); err == nil && now[0].Version == rec.Version { // nobody wrote meanwhile
		a.mu.Lock()
		a.listed[id] = listing{rec.Version, parts}
		a.mu.Unlock()
	}
	return parts
}

// A listing is the parts of a job at a version of its record.
type listing struct {
	version int64
	parts   []store.Part
}

// watch looks at a job after each write of its record.
func (a *account) watch(_ int, e effect) {
	if e.kind == "store.create" {
		a.mu.Lock()
		a.made[e.key] = a.world.now()
		a.mu.Unlock()
	}
	if e.kind == "blob.put" {
		a.acks.stored(e.key)
	}
	for _, j := range a.jobs {
		if e.kind == "blob.put" {
			j.brought(e.key)
		}
		if !strings.HasPrefix(e.kind, "store.") {
			continue
		}
		if id := j.known(); id != "" && strings.HasPrefix(e.key, short(id)) {
			j.glimpse(id)
			if e.kind == "store.commit-parts" || e.kind == "store.replace-parts" {
				j.judgeParts(id)
			}
		}
	}
}

func (j *jobCase) known() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.id
}

// glimpse compares a record with what it was before.
func (j *jobCase) glimpse(id string) {
	rec, err := j.look(id)
	if err != nil {
		return
	}
	g := glimpse{j.world.now(), rec.Job.Status, rec.Epoch, rec.Version, rec.Session, rec.Job.RowsDone}
	j.mu.Lock()
	was := g
	if n := len(j.history); n > 0 {
		was = j.history[n-1]
	}
	j.history = append(j.history, g)
	if g.epoch > was.epoch {
		j.owners++
	}
	early := ""
	if !rec.Job.Status.Terminal() {
		j.tried = rec.Adopters
	} else {
		j.finals = append(j.finals, rec)
		if j.seen == 0 {
			j.seen = g.at
		}
		if j.ended == 0 {
			j.ended = min(g.at, max(0, rec.EndedAt().Sub(j.world.began))) // slow stores hear of it later
		}
		early = j.expires(rec, g.at)
	}
	j.mu.Unlock()
	switch {
	case early != "":
		j.wrong("%s", early)
	case was.status.Terminal() && was.status != g.status:
		j.wrong("job %d was %s and is %s", j.index, was.status, g.status)
	case g.epoch < was.epoch || g.version < was.version:
		j.wrong("the record of job %d went back from epoch %d, version %d to %d, %d", j.index, was.epoch, was.version, g.epoch, g.version)
	case g.done < was.done:
		j.wrong("rows done of job %d went back from %d to %d", j.index, was.done, g.done)
	case g.epoch == was.epoch && was.session != "" && g.session != "" && g.session != was.session:
		j.wrong("epoch %d of job %d belongs to two sessions", g.epoch, j.index)
	}
}

// judgeParts wants the object of a part to be there as long as its record is, and
// the job has use for it.
func (j *jobCase) judgeParts(id string) {
	j.mu.Lock()
	forgot := len(j.forgets) > 0 // it may name what was removed since
	j.mu.Unlock()
	rec, err := j.look(id)
	if err != nil || rec.Job.Status == rowmill.StatusSucceeded || rec.DataRemoved != nil {
		return // they go, in any order
	}
	parts := j.partsOf(rec)
	if key, found := overlap(parts); found {
		j.wrong("part %s is recorded, and another has some of its rows", short(plain(key)))
	}
	for _, p := range parts {
		if _, err := j.world.shelf.get(p.Key); err != nil && !forgot {
			j.wrong("part %s is recorded, and its object is not there", short(plain(p.Key)))
		}
	}
}

// removed wants no object to go that a record still needs.
func (a *account) removed(key string) {
	rest, ok := strings.CutPrefix(key, layout.Jobs)
	if !ok {
		return
	}
	id, name, _ := strings.Cut(rest, "/")
	rec, err := a.look(id)
	if err != nil {
		return
	}
	over, going := rec.Job.Status.Terminal(), rec.DataRemoved != nil
	if j := a.of(id); j != nil {
		going = going || j.isGone() // the store may have forgotten that just now, and its end
		if over {
			j.judgeInput(rec, key)
		}
	}
	switch {
	case strings.HasPrefix(name, "input/") && !over && !going && !(key == layout.Raw(id) && a.world.inShards(id)):
		a.wrong("%s is removed while the job is %s", short(plain(key)), rec.Job.Status)
	case strings.HasPrefix(name, "parts/") && (!over || rec.Job.Status != rowmill.StatusSucceeded) && !going:
		if slices.ContainsFunc(a.partsOf(rec), func(p store.Part) bool { return p.Key == key }) {
			a.wrong("%s is removed while its record is there and the job is %s", short(plain(key)), rec.Job.Status)
		}
	case strings.HasPrefix(name, "results/") && over && !going:
		for _, artifact := range rec.Artifacts {
			if artifact.Key == key {
				a.wrong("%s is removed, and it is the result", short(plain(key)))
			}
		}
	}
}
