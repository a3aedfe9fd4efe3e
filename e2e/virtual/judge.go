package virtual

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/store"
)

// over reports whether all jobs have ended, or were lawfully never created.
func (a *account) over() bool {
	for _, j := range a.jobs {
		a.mu.Lock()
		id, seen, never, wants := j.id, len(j.history) > 0, j.never, j.Remove > 0 && !j.released
		over := seen && j.history[len(j.history)-1].status.IsTerminal()
		a.mu.Unlock()
		if never || over && !wants {
			continue
		}
		if over {
			return false
		}
		if id == "" || seen {
			return false
		}
		rec, err := a.look(id) // the store forgot the job
		switch {
		case errors.Is(err, rowmill.ErrNotFound) && j.lawfullyGone() && a.world.wholeFor() > comesBack:
		case err != nil, !rec.Job.Status.IsTerminal(), wants:
			return false
		}
	}
	return true
}

// comesBack is the time in which a node writes a forgotten job again, also if the node was
// stopped for most of the time.
const comesBack = 20 * time.Second

// endsWithin limits the time of a job after all faults have ended. It is far more than any
// job needs.
const endsWithin = 4 * time.Minute

// await waits until all jobs have ended and no fault can strike any more.
func (a *account) await() {
	var last time.Duration
	for _, f := range a.world.Faults {
		if f.Nth == 0 {
			last = max(last, time.Duration(f.At+f.For))
		}
	}
	for _, j := range a.world.Jobs {
		last = max(last, time.Duration(j.Pause+j.Paused))
	}
	for a.world.now() < last {
		time.Sleep(min(time.Second, last-a.world.now()))
	}
	// No client waits until the same times.
	time.Sleep(a.world.latency(-1, "judge", ""))
	for range 20 { // faults at effects may still strike, and nodes start again
		if a.over() {
			break
		}
		time.Sleep(time.Second)
	}
	a.world.heal()
	until := a.world.now() + endsWithin
	for !a.over() && a.world.now() < until {
		time.Sleep(250 * time.Millisecond)
	}
	a.world.tell(-1, "over", "", "")
}

// judgeUnended reports the jobs that keep the world from its end.
func (a *account) judgeUnended() {
	for _, j := range a.jobs {
		id := j.known()
		if id == "" && j.never {
			continue
		}
		if id == "" {
			a.wrong("job %d is not accepted by anyone", j.index)
			continue
		}
		if rec, err := a.look(id); err != nil && j.lost() {
			continue
		} else if err != nil {
			a.wrong("job %d was accepted and is gone: %v", j.index, err)
		} else if !rec.Job.Status.IsTerminal() {
			a.wrong("job %d does not end: it is %s, epoch %d, %d of %d rows done: %s", j.index, rec.Job.Status, rec.Epoch, rec.Job.RowsDone, len(j.texts), rec.Job.Message)
		} else if j.Remove > 0 && !j.released {
			a.wrong("the data of job %d cannot be removed", j.index)
		}
	}
}

// settle stops all nodes but one, which cleans up, and then checks the results.
func (a *account) settle() {
	w := a.world
	for _, j := range a.jobs {
		j.orphaned = j.teller == nil || j.teller.dead()
		j.undone = j.remover == nil || j.remover.dead()
	}
	if !a.over() {
		a.judgeUnended()
		return
	}
	time.Sleep(30 * time.Second) // late messages and effects arrive
	keeper := -1
	for i, n := range w.Nodes {
		if p := w.proc(i); p == nil {
			a.wrong("node %d does not come up", i)
		} else if keeper < 0 && !n.OwnsNone {
			keeper = i
		} else {
			w.stop(p)
		}
	}
	if keeper < 0 {
		return
	}
	time.Sleep(2*orphanAge + 30*time.Second)
	for _, j := range a.jobs {
		if j.known() != "" {
			j.judge(keeper)
		}
	}
	a.judgeAcks()
	a.judgeIsolation(keeper)
	a.judgeLedger()
	a.judgeReserved(keeper)
	a.judgeExpiry(keeper)
}

// judge checks one job.
func (j *jobCase) judge(node int) {
	rec, err := j.look(j.id)
	if err != nil {
		if !j.lost() {
			j.wrong("job %d was accepted and is gone: %v", j.index, err)
		}
		return
	}
	job := rec.Job
	j.judgeReruns()
	j.judgeOwners()
	j.judgeTaken(rec)
	j.judgeReused(rec)
	j.judgeKept(rec)
	j.judgeRemoved(rec, node)
	j.judgeSource(job.Status)
	j.judgeSwift(rec)
	if j.Poison != "" {
		j.judgePoison()
	}
	switch job.Status {
	case rowmill.StatusCancelled:
		if j.Cancel <= 0 {
			j.wrong("job %d was cancelled, but no client asked for it", j.index)
		}
		return
	case rowmill.StatusSucceeded:
	default:
		if !j.mayFail(rec) {
			j.wrong("job %d is %s: %+v", j.index, job.Status, job.FailureReason)
		}
		return
	}
	if j.Estimate {
		j.judgeEstimate(&job)
		return
	}
	if j.tooMany() {
		j.wrong("job %d has succeeded, and %d of its %d rows have failed", j.index, j.Broken, len(j.texts))
	}
	if j.cancelled && !slices.ContainsFunc(j.forgets, func(forgetting) bool { return true }) {
		j.wrong("job %d was cancelled, as its client was told, and has succeeded", j.index)
	}
	var input, output int64
	for _, text := range j.different() {
		if !broken(text) {
			a := answerTo(text, j.Schema)
			input, output = input+a.input, output+a.output
		}
	}
	var unpaid rowmill.RowOutput // tokens of rows that the other job has paid
	for _, text := range j.shared {
		a := answerTo(text, false)
		unpaid.InputTokens, unpaid.OutputTokens = unpaid.InputTokens+a.input, unpaid.OutputTokens+a.output
	}
	if input, output = input-unpaid.InputTokens, output-unpaid.OutputTokens; j.lostRows(&job) > 0 { // any of them
		if in, out := value(job.InputTokens), value(job.OutputTokens); in >= input && in <= input+unpaid.InputTokens && out >= output && out <= output+unpaid.OutputTokens {
			input, output = in, out
		}
	}
	rows := int64(len(j.texts))
	for old := j.of; old != nil; old = old.of { // the account does not pay again for rows that were taken over
		if was, err := j.look(old.id); err == nil && !old.Estimate { // an estimate costs nothing, so the next job pays
			if source, _, failed := j.source(rec); old == source {
				was = old.asTaken(was, job.RowsTakenOver, failed)
			} else if old.of != nil && old.paysFor(was) && was.Job.NumRows == nil { // it was cancelled while it paid for rows of the estimate
				continue
			}
			input, output = input-max(0, value(was.Job.InputTokens)), output-max(0, value(was.Job.OutputTokens))
		}
	}
	if job.NumRows == nil || *job.NumRows != rows || job.RowsDone != rows || job.FailedRows != int64(j.Broken) ||
		job.InputTokens == nil || *job.InputTokens != input || *job.OutputTokens != output {
		j.wrong("job %d: %d rows done, %d failed, tokens %v and %v, want %d, %d, %d and %d", j.index, job.RowsDone, job.FailedRows,
			value(job.InputTokens), value(job.OutputTokens), rows, j.Broken, input, output)
	}
	if copies := rows - int64(len(j.different())); job.DeduplicatedRows != copies && j.of == nil {
		j.wrong("job %d says that %d rows were equal to others, want %d", j.index, job.DeduplicatedRows, copies)
	}
	if want := (float64(input)*1000 + float64(output)*2000) / 1e6; job.JobCost == nil || math.Abs(*job.JobCost-want) > 1e-9 {
		j.wrong("job %d costs %v, want %v", j.index, job.JobCost, want)
	}
	if rec.DataRemoved == nil && !j.doubtful(rec) {
		j.judgeResults(node)
		j.judgeAttempts(node)
		j.judgeDeadly(node)
	}
}

// judgeEstimate checks an estimate that has succeeded.
func (j *jobCase) judgeEstimate(job *rowmill.Job) {
	rows := int64(len(j.texts))
	switch e := job.Estimate; {
	case e == nil || job.NumRows == nil || *job.NumRows != rows || job.CostEstimate == nil || job.JobCost == nil || *job.JobCost != 0:
		j.wrong("estimate %d of %d rows is %+v: %+v", j.index, rows, e, job)
	case e.Method == rowmill.EstimateSampled && (e.SampleRows != rows || job.RowsDone != rows || job.FailedRows > 0):
		j.wrong("estimate %d has %d rows in its sample, %d done and %d failed, want all %d", j.index, e.SampleRows, job.RowsDone, job.FailedRows, rows)
	}
}

// tooMany reports whether the job must fail because of its failed rows.
func (j *jobCase) tooMany() bool { return j.Broken > max(1, len(j.texts)/20) }

// mayFail reports whether a job may fail with the reason in its record.
func (j *jobCase) mayFail(rec store.Record) bool {
	switch reason := rec.Job.FailureReason; {
	case reason == nil:
	case reason.Code == rowmill.CodeTooManyFailedRows:
		return j.tooMany()
	case reason.Code == rowmill.CodeDownloadFailed && j.reads != nil:
		other, err := j.look(j.reads.known())
		return j.mayMissInput(other, err)
	case reason.Code == rowmill.CodeDownloadFailed:
		return j.mayLoseInput(rec)
	case reason.Code == rowmill.CodeCostQuota:
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.account.refused[j.id] > 0
	case reason.Code == rowmill.CodeInternalError: // an owner that claimed it in between found no objects
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.dataGone && j.forgottenAt(j.ended)
	}
	return false
}

func value(p *int64) int64 {
	if p == nil {
		return -1
	}
	return *p
}

// judgeResults checks that there is one output for each row, in order.
func (j *jobCase) judgeResults(node int) {
	code, text := j.world.request(node, http.MethodGet, "/v1/jobs/"+j.id+"/results?include_inputs=true", http.Header{"Authorization": {"Key " + keyOf(j.owner())}}, nil)
	var got struct {
		Inputs  []string          `json:"inputs"`
		Outputs []json.RawMessage `json:"outputs"`
	}
	if err := json.Unmarshal(text, &got); code != http.StatusOK || err != nil {
		j.wrong("the results of job %d: %d %.300s", j.index, code, text)
		return
	}
	if len(got.Outputs) != len(j.texts) || len(got.Inputs) != len(j.texts) {
		j.wrong("job %d of %d rows has %d outputs", j.index, len(j.texts), len(got.Outputs))
		return
	}
	for i, row := range j.texts {
		want := "null"
		if !broken(row) {
			text, _ := json.Marshal(answerTo(row, j.Schema).text)
			want = string(text)
		}
		if got.Inputs[i] != j.rawText(row) || string(got.Outputs[i]) != want {
			j.wrong("row %d of job %d: %s for %q, want %s for %q", i, j.index, got.Outputs[i], got.Inputs[i], want, row)
			return
		}
	}
}

// judgeKept checks the records and objects of an ended job.
func (j *jobCase) judgeKept(rec store.Record) {
	if rec.Reserved != 0 {
		j.wrong("%v are set aside for job %d, which is over", rec.Reserved, j.index)
	}
	if rec.DataRemoved != nil || j.doubtful(rec) {
		return // see judgeRemoved
	}
	named := map[string]bool{}
	for _, a := range rec.Artifacts {
		named[a.Key] = true
	}
	parts := j.parts(j.id)
	for _, p := range parts {
		named[p.Key] = true
	}
	if rec.Job.Status == rowmill.StatusSucceeded && len(parts) > 0 {
		j.wrong("%d records of parts of job %d are left", len(parts), j.index)
	}
	resumable := rec.Job.Status != rowmill.StatusSucceeded || rec.Job.FailedRows > 0 || rec.Job.HasOtherRows() || j.Estimate // its input stays for jobs that continue it
	resumable = resumable && j.world.InputRetention == 0
	for _, info := range j.world.shelf.list(layout.JobPrefix(j.id)) {
		if !named[info.Key] && !strings.HasPrefix(info.Key, layout.DigestsKey(j.id, "")) && (!resumable || !strings.HasPrefix(info.Key, layout.InputPrefix(j.id))) {
			j.wrong("%s is left of job %d, which is %s", short(plain(info.Key)), j.index, rec.Job.Status)
		}
		delete(named, info.Key)
	}
	for key := range named {
		j.wrong("%s of job %d is not there", short(plain(key)), j.index)
	}
}

// judgeLedger compares the ledger of each account with the records of its jobs.
func (a *account) judgeLedger() {
	for _, owner := range a.world.owners() {
		a.judgeLedgerOf(owner)
	}
}

func (a *account) judgeLedgerOf(owner string) {
	var used, charged store.RowTotals
	for _, j := range slices.Concat(a.jobs, a.strays(owner)) {
		if id := j.known(); id != "" && j.owner() == owner {
			if rec, err := a.look(id); err == nil && rec.Job.RunType != rowmill.RunEstimate {
				ran := j.ran(rec)
				if j.of != nil && j.paysFor(rec) {
					ran.Rows = rec.Job.RowsDone
				}
				used.Rows += ran.Rows
				used.Failed += ran.Failed
				used.InputTokens += max(0, value(rec.Job.InputTokens))
				used.OutputTokens += max(0, value(rec.Job.OutputTokens))
			}
		}
	}
	days, err := a.world.vault.base.Usage(background, owner, a.world.began.AddDate(0, 0, -1), time.Now().AddDate(0, 0, 1))
	if err != nil {
		a.wrong("the ledger: %v", err)
	}
	for _, d := range days {
		charged = charged.Plus(d.Totals)
	}
	if used.Rows != charged.Rows || used.Failed != charged.Failed || used.InputTokens != charged.InputTokens || used.OutputTokens != charged.OutputTokens {
		a.wrong("the ledger of %s says %+v, the records %+v", owner, charged, used)
	}
}

// strays returns the jobs of an account that no client knows. A late submission creates one
// if the store forgot its repetition and the job of its idempotency key.
func (a *account) strays(owner string) (strays []*jobCase) {
	jobs, _, err := a.world.vault.base.List(background, owner, 100, "")
	if err != nil {
		a.wrong("list jobs: %v", err)
	}
	a.mu.Lock()
	forgets := len(a.forgets)
	a.mu.Unlock()
	for _, job := range jobs {
		if known := a.of(job.ID); known != nil {
			if known.owner() != owner {
				a.wrong("job %d of %s is with those of %s", known.index, known.owner(), owner)
			}
			continue
		}
		if forgets == 0 {
			a.wrong("there is job %s, which no client knows", short(job.ID))
		}
		stray := &jobCase{account: a, index: -1, id: job.ID, Job: Job{Account: owner}}
		if job.Continues != nil {
			stray.of = a.of(*job.Continues)
		}
		strays = append(strays, stray)
	}
	return strays
}

// judgeAfter checks after all nodes have stopped that the records did not change.
func (a *account) judgeAfter() {
	for _, j := range a.jobs {
		if len(j.finals) == 0 {
			continue
		}
		rec, err := a.look(j.id)
		if err != nil && j.lost() {
			continue
		}
		was := j.finals[len(j.finals)-1]
		if err != nil || lasting(rec) != lasting(was) {
			a.wrong("job %d was over and changed: %s, then %s, %v", j.index, lasting(was), lasting(rec), err)
		}
	}
}

// lasting returns the values of an ended job that must never change.
func lasting(rec store.Record) string {
	job := rec.Job
	return fmt.Sprintf("%s at %v, %+v, %d+%d tokens", job.Status, job.Completed, job.RowCounts, value(job.InputTokens), value(job.OutputTokens))
}
