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

// inputsKept returns how long the input of a job stays after the end of the job, for jobs
// that continue it.
func (w *world) inputsKept() time.Duration {
	if w.InputRetention > 0 {
		return time.Duration(w.InputRetention)
	}
	return 7 * day
}

// dataKept returns how long the data of a job is kept.
func (j *jobCase) dataKept() time.Duration {
	if j.owner() == defaultAccount {
		return j.world.dataKept()
	}
	return 90 * day
}

// dataKept returns how long the data of jobs of defaultAccount is kept.
func (w *world) dataKept() time.Duration {
	if w.RetentionDays > 0 {
		return time.Duration(w.RetentionDays) * day
	}
	return 90 * day
}

// keepDays sets the retention of defaultAccount in days.
func (w *world) keepDays(days int) error {
	doc, err := json.Marshal(store.AccountSettings{RetentionDays: &days})
	if err != nil {
		return err
	}
	_, err = w.vault.base.PutValue(background, store.SettingsValueName(defaultAccount), doc, 0)
	return err
}

// catchUp returns CatchUp of the janitor: days of retention without a running node pass in
// seconds.
func (w *world) catchUp() int {
	if w.RetentionDays > 0 {
		return int(day / time.Second)
	}
	return 0
}

// removeData removes the data of an ended job, as its client.
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
		j.confirmed, j.answered = true, j.world.now()
		j.mu.Unlock()
		j.world.tell(-1, "removed", short(id), "")
		for _, info := range j.world.shelf.list(layout.JobPrefix(id)) {
			if info.Modified.Before(asked) {
				j.wrong("%s is there, and the client of job %d is told that its data is removed", short(plain(info.Key)), j.index)
			}
		}
	}
}

// expires checks when the record of an ended job says that its data was removed. The
// caller holds j.mu.
func (j *jobCase) expires(rec store.Record, at time.Duration) (wrong string) {
	if rec.InputRemoved != nil {
		j.inputGone = true
	}
	if rec.DataRemoved == nil || j.dataGone {
		return ""
	}
	j.dataGone = true
	if since := at - j.ended; !j.removing && since < j.dataKept()-store.EndTolerance {
		return fmt.Sprintf("the data of job %d is removed %v after its end, but no client asked for it", j.index, since)
	}
	return ""
}

// isGone reports whether the record of a job ever said that its data was removed.
func (j *jobCase) isGone() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.dataGone
}

// wanted reports whether the object key must still exist, because another job may
// continue this ended job with it.
func (j *jobCase) wanted(rec store.Record, key string) bool {
	job := rec.Job
	switch {
	case j.isGone(), job.Status == rowmill.StatusSucceeded && job.FailedRows == 0 && !job.HasOtherRows() && !j.Estimate,
		j.Estimate && job.Status != rowmill.StatusSucceeded, // only the input of an estimate that has succeeded runs later
		job.FailureReason != nil && job.FailureReason.Code == rowmill.CodeInvalidInputFile,
		j.From != "" && rec.DownloadFinished == nil: // shards of a broken download are not the whole input
		return false
	case key == layout.RawInputKey(job.ID) || key == layout.SpooledRowsKey(job.ID):
		if j.world.inShards(job.ID) {
			return false
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ended > 0 && j.world.now()-j.ended < j.world.inputsKept()-j.world.unsure()
}

// inShards reports whether the shards of a job hold its whole input.
func (w *world) inShards(id string) bool {
	_, err := w.shelf.get(layout.ManifestKey(id))
	return err == nil
}

// unsure returns the largest error in the time of the end of a job: nodes with a wrong
// clock may have set it.
func (w *world) unsure() time.Duration {
	wrong := slices.ContainsFunc(w.Nodes, func(n Node) bool { return n.Clock != 0 }) ||
		slices.ContainsFunc(w.Faults, func(f Fault) bool { return f.Kind == "clock" })
	if wrong {
		return store.EndTolerance
	}
	return 0
}

// of returns the job of the schedule with an id, or nil.
func (a *account) of(id string) *jobCase {
	i := slices.IndexFunc(a.jobs, func(j *jobCase) bool { return j.known() == id })
	if i < 0 {
		return nil
	}
	return a.jobs[i]
}

// bereft reports whether data or input of the continued jobs may have been removed.
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

// doubtful reports whether the data of a job was removed, but the store forgot it and the
// node that could repeat the write has crashed or kept it no longer.
func (j *jobCase) doubtful(rec store.Record) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.confirmed && j.pastRecall(j.answered) ||
		j.dataGone && rec.DataRemoved == nil && len(j.forgets) > 0 && j.undone && !j.world.remembers()
}

// judgeRemoved checks that data is gone after its client removed it, and that an input is
// gone after its retention.
func (j *jobCase) judgeRemoved(rec store.Record, node int) {
	j.mu.Lock()
	removed := j.confirmed
	j.mu.Unlock()
	switch {
	case j.doubtful(rec):
	case rec.DataRemoved != nil:
		j.judgeGone(node)
	case removed:
		j.wrong("the data of job %d was removed, as its client was told, and its record does not say so", j.index)
	}
	if j.world.InputRetention > 0 && rec.InputRemoved == nil && !j.doubtful(rec) {
		j.wrong("the input of job %d was to be kept for %v, and is still", j.index, time.Duration(j.world.InputRetention))
	}
}

// judgeGone checks that only the record of a job is left.
func (j *jobCase) judgeGone(node int) {
	for _, info := range j.world.shelf.list(layout.JobPrefix(j.id)) {
		j.wrong("%s is left of job %d, whose data was removed", short(plain(info.Key)), j.index)
	}
	if parts := j.parts(j.id); len(parts) > 0 {
		j.wrong("%d records of parts are left of job %d, whose data was removed", len(parts), j.index)
	}
	code, text := j.world.request(node, http.MethodGet, "/v1/jobs/"+j.id+"/results?partial=true", http.Header{"Authorization": {"Key " + keyOf(j.owner())}}, nil)
	if code != http.StatusGone && !j.Estimate { // an estimate never has results
		j.wrong("the results of job %d, whose data was removed: %d %.300s", j.index, code, text)
	}
}

// judgeExpiry lets the retention pass while no node runs. It checks that nothing is removed
// before its end, and everything after it, also if faults of the schedule come then.
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
	held, err := w.vault.base.RetainedJobs(background, defaultAccount, time.Now(), 100)
	if err != nil {
		a.wrong("read the held data: %v", err)
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

// standstill stops the last node and waits until a time.
func (a *account) standstill(keeper int, until time.Duration) {
	if p := a.world.proc(keeper); p != nil {
		a.world.stop(p)
	}
	time.Sleep(until - a.world.now())
}

// judgeInput reports a removed input of a job that may still be continued.
func (j *jobCase) judgeInput(rec store.Record, key string) {
	if strings.HasPrefix(key, layout.InputPrefix(rec.Job.ID)) && j.wanted(rec, key) {
		j.wrong("%s is removed %v after the end of the job, which may be continued for %v", short(plain(key)), j.world.now()-j.ended, j.world.inputsKept())
	}
}
