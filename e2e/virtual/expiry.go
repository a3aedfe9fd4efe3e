package virtual

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/store"
)

const day = 24 * time.Hour

// inputsKept is for how long the input of a job is kept that may be continued.
func (w *world) inputsKept() time.Duration {
	if w.InputRetention > 0 {
		return time.Duration(w.InputRetention)
	}
	return 7 * day
}

// dataKept is for how long the data of a job is.
func (j *jobCase) dataKept() time.Duration {
	if j.owner() == defaultAccount {
		return j.world.dataKept()
	}
	return 90 * day
}

// dataKept is for how long the data of jobs of defaultAccount is.
func (w *world) dataKept() time.Duration {
	if w.RetentionDays > 0 {
		return time.Duration(w.RetentionDays) * day
	}
	return 90 * day
}

// keepDays sets for how many days defaultAccount keeps the data of its jobs.
func (w *world) keepDays(days int) error {
	doc, err := json.Marshal(store.Settings{RetentionDays: &days})
	if err != nil {
		return err
	}
	_, err = w.vault.base.PutValue(background, store.SettingsValue(defaultAccount), doc, 0)
	return err
}

// catchUp has the days that a world stood still pass at once.
func (w *world) catchUp() int {
	if w.RetentionDays > 0 {
		return int(day / time.Second)
	}
	return 0
}

// removeData has the client of a job that is over remove its data.
func (j *jobCase) removeData() {
	defer func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.released = true
	}()
	id, _ := j.awaitEnd()
	if id == "" {
		return
	}
	time.Sleep(time.Duration(j.Remove))
	j.mu.Lock()
	j.removing = true
	j.mu.Unlock()
	asked := time.Now()
	if j.insist(http.MethodDelete, "/v1/jobs/"+id+"/data", nil, nil) {
		j.mu.Lock()
		j.removed = true
		j.mu.Unlock()
		j.world.tell(-1, "removed", short(id), "")
		for _, info := range j.world.shelf.list(layout.Job(id)) {
			if info.Modified.Before(asked) {
				j.wrong("%s is there, and the client of job %d is told that its data is removed", short(plain(info.Key)), j.index)
			}
		}
	}
}

// expires looks at what the record of a job that is over says of its data: j.mu
// is held.
func (j *jobCase) expires(rec store.Record, at time.Duration) (wrong string) {
	if rec.InputRemoved != nil {
		j.inputGone = true
	}
	if rec.DataRemoved == nil || j.dataGone {
		return ""
	}
	j.dataGone = true
	if since := at - j.ended; !j.removing && since < j.dataKept()-store.EndTolerance {
		return fmt.Sprintf("the data of job %d is removed %v after its end, and nobody asked for that", j.index, since)
	}
	return ""
}

// isGone reports whether a job's record has ever said that its data is removed.
func (j *jobCase) isGone() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.dataGone
}

// wanted reports whether a job that is over may be continued still, with what was
// its input.
func (j *jobCase) wanted(rec store.Record, key string) bool {
	job := rec.Job
	switch {
	case j.isGone(), job.Status == rowmill.StatusSucceeded && job.FailedRows == 0,
		job.FailureReason != nil && job.FailureReason.Code == rowmill.CodeInvalidInputFile,
		j.From != "" && rec.DownloadFinished == nil: // shards of a part of it are no input
		return false
	case key == layout.Raw(job.ID) || key == layout.Spooled(job.ID):
		if j.world.inShards(job.ID) {
			return false
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ended > 0 && j.world.now()-j.ended < j.world.inputsKept()-j.world.unsure()
}

// inShards reports whether there are shards of all of a job's input.
func (w *world) inShards(id string) bool {
	_, err := w.shelf.get(layout.Manifest(id))
	return err == nil
}

// unsure is by how much a job's end may be off for those who count from it.
func (w *world) unsure() time.Duration {
	wrong := slices.ContainsFunc(w.Nodes, func(n Node) bool { return n.Clock != 0 }) ||
		slices.ContainsFunc(w.Faults, func(f Fault) bool { return f.Kind == "clock" })
	if wrong {
		return store.EndTolerance
	}
	return 0
}

// of is the job of the schedule with an id, if any.
func (a *account) of(id string) *jobCase {
	i := slices.IndexFunc(a.jobs, func(j *jobCase) bool { return j.known() == id })
	if i < 0 {
		return nil
	}
	return a.jobs[i]
}

// bereft reports whether what a job is to take over may have gone meanwhile.
func (j *jobCase) bereft() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for from := j.of; from != nil; from = from.of {
		if from.dataGone || from.inputGone {
			return true
		}
	}
	return false
}

// doubtful reports whether the data of a job was removed, and the store has
// forgotten that with who had told its client so.
func (j *jobCase) doubtful(rec store.Record) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.dataGone && rec.DataRemoved == nil && len(j.forgets) > 0 && j.undone && !j.world.remembers()
}

// judgeRemoved wants that what a client has removed is, and an input that nobody
// may want any more too.
func (j *jobCase) judgeRemoved(rec store.Record, node int) {
	j.mu.Lock()
	removed := j.removed
	j.mu.Unlock()
	switch {
	case rec.DataRemoved != nil:
		j.judgeGone(node)
	case j.doubtful(rec):
	case removed:
		j.wrong("the data of job %d was removed, as its client was told, and its record does not say so", j.index)
	}
	if j.world.InputRetention > 0 && rec.InputRemoved == nil {
		j.wrong("the input of job %d was to be kept for %v, and is still", j.index, time.Duration(j.world.InputRetention))
	}
}

// judgeGone wants nothing to be left of a job but its record.
func (j *jobCase) judgeGone(node int) {
	for _, info := range j.world.shelf.list(layout.Job(j.id)) {
		j.wrong("%s is left of job %d, whose data was removed", short(plain(info.Key)), j.index)
	}
	if parts := j.parts(j.id); len(parts) > 0 {
		j.wrong("%d records of parts are left of job %d, whose data was removed", len(parts), j.index)
	}
	code, text := j.world.request(node, http.MethodGet, "/v1/jobs/"+j.id+"/results?partial=true", http.Header{"Authorization": {"Key " + keyOf(j.owner())}}, nil)
	if code != http.StatusGone {
		j.wrong("the results of job %d, whose data was removed: %d %.300s", j.index, code, text)
	}
}

// judgeExpiry lets the days pass for which the data of jobs is kept, in which
// nobody runs: before them nothing goes, and after them all, whatever faults
// there are left to come then.
func (a *account) judgeExpiry(keeper int) {
	w := a.world
	if w.RetentionDays <= 0 {
		return
	}
	first, last := w.now(), time.Duration(0)
	for _, j := range a.jobs {
		if j.ended > 0 {
			first, last = min(first, j.ended), max(last, j.ended)
		}
	}
	a.standstill(keeper, first+w.dataKept()-2*store.EndTolerance)
	w.up(keeper)
	time.Sleep(store.EndTolerance / 2)
	a.standstill(keeper, last+w.dataKept()+2*store.EndTolerance)
	w.mu.Lock()
	w.healed = false
	w.mu.Unlock()
	w.up(keeper)
	time.Sleep(time.Minute)
	w.heal()
	time.Sleep(2*orphanAge + 3*time.Minute)
	held, err := w.vault.base.Held(background, defaultAccount, time.Now(), 100)
	if err != nil {
		a.wrong("what is held: %v", err)
	}
	for _, j := range a.jobs {
		rec, err := a.look(j.known())
		switch {
		case j.never || j.known() == "", err != nil && j.lost():
		case err != nil:
			a.wrong("job %d was accepted and is gone: %v", j.index, err)
		case j.owner() != defaultAccount: // its data stays longer, see expires
		case rec.DataRemoved == nil || slices.Contains(held, j.id):
			a.wrong("the data of job %d was to be kept for %v, and is still", j.index, w.dataKept())
		default:
			j.judgeGone(keeper)
		}
	}
}

// standstill has nobody run until a time.
func (a *account) standstill(keeper int, until time.Duration) {
	if p := a.world.proc(keeper); p != nil {
		a.world.stop(p)
	}
	time.Sleep(until - a.world.now())
}

// judgeInput wants an input to stay as long as the job may be continued.
func (j *jobCase) judgeInput(rec store.Record, key string) {
	if strings.HasPrefix(key, layout.Input(rec.Job.ID)) && j.wanted(rec, key) {
		j.wrong("%s is removed %v after the end of the job, which may be continued for %v", short(plain(key)), j.world.now()-j.ended, j.world.inputsKept())
	}
}
