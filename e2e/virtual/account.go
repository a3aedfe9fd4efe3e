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

// An account checks a world: it compares the knowledge of clients about their jobs with the
// store and the bucket, at any time.
type account struct {
	world *world
	jobs  []*jobCase
	acks  *acks

	mu       sync.Mutex
	wrongs   []string
	forgets  []forgetting
	reruns   int
	crashed  map[string]bool          // by the id of a process
	takers   map[string]*proc         // by the id of a job: the process with the last claim
	taken    map[string]takeOver      // by the id of a job: the last time when it took rows over
	innocent int                      // innocent jobs that were parked
	made     map[string]time.Duration // by the end of an id: time of the first record
	refused  map[string]rowmill.Money // by job: the last refused reservation
	listed   map[string]listing       // by job
}

// A forgetting is a time at which the store forgot all writes since another time.
type forgetting struct{ since, at time.Duration }

// A jobCase is one job of the schedule.
type jobCase struct {
	*account
	Job
	index int
	input []string // the rows of its input
	texts []string // the rows that it runs
	of    *jobCase // the job that it continues
	reads *jobCase // the job that has its input

	reuses *jobCase // it takes over rows of this job
	shared []string // its rows that are rows of that job

	// Guarded by account.mu.
	id        string
	accepted  time.Duration
	teller    *proc // accepted the job
	orphaned  bool  // teller crashed before the end of all faults
	cancelled bool  // a client got this answer
	history   []glimpse
	finals    []store.Record // its records after each write with a final status
	losing    []store.Record // the same in the copy that the losers of a split use
	never     bool           // no job was created: there was nothing to continue
	released  bool           // its client is finished
	dataGone  bool           // its record said that its data was removed
	inputGone bool           // its record said that its input was removed
	ended     time.Duration
	seen      time.Duration // time of the world of its first final status
	download
	ownership
	removal
}

// A download is the download of a job's input.
type download struct {
	asked   int           // how often the rows were requested
	asker   *proc         // process of the last request
	excused bool          // it may fail because of the server or the network
	stored  time.Duration // time when it was stored
}

// An ownership counts the owners of a job.
type ownership struct {
	owners int           // number of owners
	killed int           // number of owners that the job killed
	parked int           // how often the job was parked
	tried  []store.Claim // the owners so far, before the job's final status
}

// A removal is the removal of a job's data by its client.
type removal struct {
	removing  bool          // the client asked for it
	confirmed bool          // and got the answer that the data is removed
	answered  time.Duration // at this time
	remover   *proc         // by this process
	undone    bool          // remover crashed before the end of all faults
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
	a := &account{world: w, acks: newAcks(w.now), made: make(map[string]time.Duration), crashed: make(map[string]bool), takers: make(map[string]*proc), taken: make(map[string]takeOver), refused: make(map[string]rowmill.Money), listed: make(map[string]listing)}
	for i, j := range w.Jobs {
		c := &jobCase{account: a, Job: j, index: i}
		if j.Continues > 0 {
			c.of = a.jobs[j.Continues-1]
			c.input, c.texts, c.Rows, c.Broken, c.Deadly, c.Equal, c.Schema, c.Account = c.of.input, c.of.texts, 0, c.of.Broken, c.of.Deadly, c.of.Equal, c.of.Schema, c.of.Account
		}
		if j.Reads > 0 {
			c.readInputOf(a.jobs[j.Reads-1])
			a.jobs = append(a.jobs, c)
			continue
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
			c.input = append(c.input, text)
		}
		switch {
		case j.Reuses > 0:
			c.reuseRowsOf(a.jobs[j.Reuses-1])
		case j.Limit > 0:
			c.texts = c.input[:j.Limit]
		case c.of == nil || j.Rest:
			c.texts = c.input
		}
		a.jobs = append(a.jobs, c)
	}
	return a
}

// mostWrongs limits the messages about one world.
const mostWrongs = 8

func (a *account) wrong(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if text := fmt.Sprintf(format, args...); len(a.wrongs) < mostWrongs && !slices.Contains(a.wrongs, text) {
		a.wrongs = append(a.wrongs, text)
		a.world.tell(-1, "WRONG", text, "")
	}
}

// forgot notes that the store forgot the last writes.
func (a *account) forgot(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, until := a.world.now()-d, a.world.now()
	for _, f := range a.forgets {
		until = max(until, f.at) // the losers of a split repeat nothing before its end
	}
	a.forgets = append(a.forgets, forgetting{since, until})
	clear(a.listed)
	for _, j := range a.jobs {
		j.history = nil
	}
}

// divided notes that the store will forget the writes of the losers of a split.
func (a *account) divided(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgets = append(a.forgets, forgetting{a.world.now(), a.world.now() + d})
}

// forgottenAt reports whether the store later forgot the writes of a time.
func (a *account) forgottenAt(at time.Duration) bool {
	return slices.ContainsFunc(a.forgets, func(f forgetting) bool { return f.since <= at && at <= f.at })
}

// pastRecall reports whether the store forgot the writes of a time so late that no node kept
// them any more. The caller holds a.mu.
func (a *account) pastRecall(at time.Duration) bool {
	return slices.ContainsFunc(a.forgets, func(f forgetting) bool { return f.since <= at && at < f.at-a.world.settleTime()+time.Second })
}

// look reads a record without faults.
func (a *account) look(id string) (store.Record, error) { return a.world.vault.get(id) }

func (a *account) parts(id string) []store.Part {
	v := a.world.vault
	v.mu.RLock()
	defer v.mu.RUnlock()
	parts, _ := v.base.ListParts(background, id)
	return parts
}

// partsOf returns the parts of a job with this record, from a cache if the record has not
// changed.
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
	if now, err := v.base.Revisions(background, []string{id}, ""); err == nil && now[0].Version == rec.Version { // the record did not change meanwhile
		a.mu.Lock()
		a.listed[id] = listing{rec.Version, parts}
		a.mu.Unlock()
	}
	return parts
}

// A listing holds the parts of a job at a version of its record.
type listing struct {
	version int64
	parts   []store.Part
}

// watch checks jobs after each write.
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
			j.glimpseLosing(id)
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

// glimpse compares a record with its previous version.
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
	unfair := false
	if rec.Job.ParkedUntil != nil && was.session != "" {
		if j.waitsForInput(rec) {
			j.parked++
		} else {
			unfair = !j.park()
		}
	}
	if !rec.Job.Status.IsTerminal() {
		j.tried = rec.Claims
	} else {
		j.finals = append(j.finals, rec)
		if j.seen == 0 {
			j.seen = g.at
		}
		if j.ended == 0 {
			j.ended = min(g.at, max(0, rec.EndedAt().Sub(j.world.began))) // the write may be slow
		}
		early = j.expires(rec, g.at)
	}
	j.mu.Unlock()
	switch {
	case unfair:
		j.wrong("job %d is parked, but no two processes that ran it alone have crashed", j.index)
	case early != "":
		j.wrong("%s", early)
	case was.status.IsTerminal() && was.status != g.status:
		j.wrong("job %d was %s and is %s", j.index, was.status, g.status)
	case g.epoch < was.epoch || g.version < was.version:
		j.wrong("the record of job %d went back from epoch %d, version %d to %d, %d", j.index, was.epoch, was.version, g.epoch, g.version)
	case g.done < was.done:
		j.wrong("rows done of job %d went back from %d to %d", j.index, was.done, g.done)
	case g.epoch == was.epoch && was.session != "" && g.session != "" && g.session != was.session:
		j.wrong("epoch %d of job %d belongs to two sessions", g.epoch, j.index)
	}
}

// glimpseLosing notes the ended job of the losers of a split.
func (j *jobCase) glimpseLosing(id string) {
	s := j.world.vault.split.Load()
	if s == nil {
		return
	}
	rec, err := s.copy.get(id)
	if err != nil || !rec.Job.Status.IsTerminal() {
		return
	}
	j.mu.Lock()
	j.losing = append(j.losing, rec)
	early := j.expires(rec, j.world.now())
	j.mu.Unlock()
	if early != "" {
		j.wrong("%s", early)
	}
}

// judgeParts checks that each recorded part has its object, until the job has its result.
func (j *jobCase) judgeParts(id string) {
	j.mu.Lock()
	forgot := len(j.forgets) > 0 // the record may name parts that were removed later
	j.mu.Unlock()
	rec, err := j.look(id)
	if err != nil || rec.Job.Status == rowmill.StatusSucceeded || rec.DataRemoved != nil {
		return // parts are being removed, in any order
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

// removed reports the removal of an object that a record still needs.
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
	over, going := rec.Job.Status.IsTerminal(), rec.DataRemoved != nil
	if j := a.of(id); j != nil {
		going = going || j.isGone() // the store may just have forgotten the removal, and the end of the job
		if over {
			j.judgeInput(rec, key)
		}
	}
	switch {
	case strings.HasPrefix(name, "input/") && !over && !going && !(key == layout.RawInputKey(id) && a.world.inShards(id)):
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
