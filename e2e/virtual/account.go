package virtual

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
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

	mu      sync.Mutex
	wrongs  []string
	forgets []forgetting
	reruns  int
	made    map[string]time.Duration // by the end of an id: when its record was written
}

// A forgetting is when the store forgot what had come since.
type forgetting struct{ since, at time.Duration }

// A jobCase is one job of the schedule.
type jobCase struct {
	*account
	Job
	index int
	texts []string

	// Guarded by account.mu.
	id        string
	accepted  time.Duration
	cancelled bool // a client was told so
	history   []glimpse
	finals    []store.Record // its record each time that it was over
	gone      bool           // the store has forgotten it, and may have
	ended     time.Duration
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
	a := &account{world: w, made: make(map[string]time.Duration)}
	for i, j := range w.Jobs {
		c := &jobCase{account: a, Job: j, index: i}
		for r := range j.Rows {
			text := fmt.Sprintf("job %d, row %d", i, r)
			if r < j.Broken {
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

// watch looks at a job after each write of its record.
func (a *account) watch(_ int, e effect) {
	if e.kind == "store.create" {
		a.mu.Lock()
		a.made[e.key] = a.world.now()
		a.mu.Unlock()
	}
	if !strings.HasPrefix(e.kind, "store.") {
		return
	}
	for _, j := range a.jobs {
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
	if rec.Job.Status.Terminal() {
		j.finals = append(j.finals, rec)
		if j.ended == 0 {
			j.ended = g.at
		}
	}
	j.mu.Unlock()
	switch {
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

// judgeParts wants the object of a part to be there as long as its record is.
func (j *jobCase) judgeParts(id string) {
	j.mu.Lock()
	forgot := len(j.forgets) > 0 // it may name what was removed since
	j.mu.Unlock()
	for _, p := range j.parts(id) {
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
	over := rec.Job.Status.Terminal()
	switch {
	case strings.HasPrefix(name, "input/") && !over:
		a.wrong("%s is removed while the job is %s", short(plain(key)), rec.Job.Status)
	case strings.HasPrefix(name, "parts/") && (!over || rec.Job.Status != rowmill.StatusSucceeded && rec.DataRemoved == nil):
		if slices.ContainsFunc(a.parts(id), func(p store.Part) bool { return p.Key == key }) {
			a.wrong("%s is removed while its record is there and the job is %s", short(plain(key)), rec.Job.Status)
		}
	case strings.HasPrefix(name, "results/") && over && rec.DataRemoved == nil:
		for _, artifact := range rec.Artifacts {
			if artifact.Key == key {
				a.wrong("%s is removed, and it is the result", short(plain(key)))
			}
		}
	}
}

// live is the job's client: it submits until it is accepted, and may cancel.
func (j *jobCase) live() {
	time.Sleep(time.Duration(j.At))
	body := map[string]any{"inputs": j.texts, "model": modelName, "job_priority": 1}
	if j.Schema {
		body["json_schema"] = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
	}
	text, _ := json.Marshal(body)
	var answer struct {
		Results string `json:"results"`
	}
	if !j.insist(http.MethodPost, "/v1/batch-inference", text, &answer) {
		return
	}
	j.mu.Lock()
	j.id, j.accepted = answer.Results, j.world.now()
	j.mu.Unlock()
	j.world.tell(-1, "accepted", short(answer.Results), "")
	j.glimpse(answer.Results)
	if j.Cancel <= 0 {
		return
	}
	time.Sleep(time.Duration(j.Cancel) - j.world.now())
	var said struct {
		Cancelled bool `json:"cancelled"`
	}
	if j.insist(http.MethodGet, "/v1/job-cancel/"+answer.Results, nil, &said) && said.Cancelled {
		j.mu.Lock()
		j.cancelled = true
		j.mu.Unlock()
		j.world.tell(-1, "cancelled", short(answer.Results), "")
	}
}

// insist asks one node after the other until one has answered.
func (j *jobCase) insist(method, path string, body []byte, out any) bool {
	header := http.Header{"Idempotency-Key": {fmt.Sprint("job-", j.index)}, "Authorization": {"Key " + adminKey}}
	for n := j.Node; !j.world.over(); n++ {
		code, text := j.world.request(n%len(j.world.Nodes), method, path, header, body)
		switch {
		case code == http.StatusOK:
			if out != nil {
				if err := json.Unmarshal(text, out); err != nil {
					j.wrong("%s %s answers %.200s", method, path, text)
				}
			}
			return true
		case code == http.StatusNotFound && j.lawfullyGone():
			return false
		case code != 0 && code < 500 && code != http.StatusForbidden && code != http.StatusTooManyRequests && code != http.StatusNotFound:
			j.wrong("%s %s: %d %.300s", method, path, code, text)
			return false
		}
		time.Sleep(300 * time.Millisecond)
	}
	return false
}

// lawfullyGone reports whether the submission may be forgotten.
func (j *jobCase) lawfullyGone() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.forgottenAt(j.made[short(j.id)]) {
		j.gone = true
	}
	return j.gone
}

// clientPatience is how long a client waits for an answer.
const clientPatience = 15 * time.Second

// request asks a node; code is 0 where none answers.
func (w *world) request(node int, method, path string, header http.Header, body []byte) (code int, text []byte) {
	p := w.proc(node)
	if p == nil {
		return 0, nil
	}
	handler := p.serves()
	if handler == nil {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), clientPatience)
	defer cancel()
	if left := w.halted(node); left > 0 {
		if pause(ctx, left) != nil {
			return 0, nil
		}
	}
	r := httptest.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	r.Header = header
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, r)
	if p.dead() || ctx.Err() != nil {
		return 0, nil
	}
	return answer.Code, answer.Body.Bytes()
}

// over reports whether all jobs have ended, or may never have been.
func (a *account) over() bool {
	for _, j := range a.jobs {
		a.mu.Lock()
		id, seen := j.id, len(j.history) > 0
		over := seen && j.history[len(j.history)-1].status.Terminal()
		a.mu.Unlock()
		if over {
			continue
		}
		if id == "" || seen {
			return false
		}
		rec, err := a.look(id) // the store has gone back
		switch {
		case errors.Is(err, rowmill.ErrNotFound) && j.lawfullyGone():
		case err != nil, !rec.Job.Status.Terminal():
			return false
		}
	}
	return true
}

// endsWithin is how long a job may take once nothing is broken any more, far
// above what any needs.
const endsWithin = 4 * time.Minute

// await waits until all jobs are over and no fault is to come.
func (a *account) await() {
	var last time.Duration
	for _, f := range a.world.Faults {
		if f.Nth == 0 {
			last = max(last, time.Duration(f.At+f.For))
		}
	}
	for a.world.now() < last {
		time.Sleep(min(time.Second, last-a.world.now()))
	}
	for range 20 { // faults at effects may still come, and nodes come back
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

// settle lets what is left be cleaned up by one node, the others being stopped,
// and reads the results.
func (a *account) settle() {
	w := a.world
	if !a.over() {
		for _, j := range a.jobs {
			id := j.known()
			if id == "" {
				a.wrong("job %d is not accepted by anyone", j.index)
				continue
			}
			if rec, err := a.look(id); err != nil && j.lawfullyGone() {
				continue
			} else if err != nil {
				a.wrong("job %d was accepted and is gone: %v", j.index, err)
			} else if !rec.Job.Status.Terminal() {
				a.wrong("job %d does not end: it is %s, epoch %d, %d of %d rows done: %s", j.index, rec.Job.Status, rec.Epoch, rec.Job.RowsDone, len(j.texts), rec.Job.Message)
			}
		}
		return
	}
	time.Sleep(30 * time.Second) // what was on its way arrives
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
		if j.known() != "" && !j.gone {
			j.judge(keeper)
		}
	}
	a.judgeLedger()
}

// judge settles the account of one job.
func (j *jobCase) judge(node int) {
	rec, err := j.look(j.id)
	if err != nil {
		if !j.lawfullyGone() {
			j.wrong("job %d was accepted and is gone: %v", j.index, err)
		}
		return
	}
	job := rec.Job
	j.judgeReruns()
	j.judgeKept(rec)
	switch job.Status {
	case rowmill.StatusCancelled:
		if j.Cancel <= 0 {
			j.wrong("job %d was cancelled by nobody", j.index)
		}
		return
	case rowmill.StatusSucceeded:
	default:
		j.wrong("job %d is %s: %+v", j.index, job.Status, job.FailureReason)
		return
	}
	if j.cancelled && !slices.ContainsFunc(j.forgets, func(forgetting) bool { return true }) {
		j.wrong("job %d was cancelled, as its client was told, and has succeeded", j.index)
	}
	var input, output int64
	for _, text := range j.texts {
		if !broken(text) {
			a := answerTo(text, j.Schema)
			input, output = input+a.input, output+a.output
		}
	}
	rows := int64(len(j.texts))
	if job.NumRows == nil || *job.NumRows != rows || job.RowsDone != rows || job.FailedRows != int64(j.Broken) ||
		job.InputTokens == nil || *job.InputTokens != input || *job.OutputTokens != output {
		j.wrong("job %d: %d rows done, %d failed, tokens %v and %v, want %d, %d, %d and %d", j.index, job.RowsDone, job.FailedRows,
			value(job.InputTokens), value(job.OutputTokens), rows, j.Broken, input, output)
	}
	if want := (float64(input)*1000 + float64(output)*2000) / 1e6; job.JobCost == nil || math.Abs(*job.JobCost-want) > 1e-9 {
		j.wrong("job %d costs %v, want %v", j.index, job.JobCost, want)
	}
	j.judgeResults(node)
}

func value(p *int64) int64 {
	if p == nil {
		return -1
	}
	return *p
}

// judgeResults wants one output for each row, in order.
func (j *jobCase) judgeResults(node int) {
	code, text := j.world.request(node, http.MethodGet, "/v1/jobs/"+j.id+"/results?include_inputs=true", http.Header{"Authorization": {"Key " + adminKey}}, nil)
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
		if got.Inputs[i] != row || string(got.Outputs[i]) != want {
			j.wrong("row %d of job %d: %s for %q, want %s for %q", i, j.index, got.Outputs[i], got.Inputs[i], want, row)
			return
		}
	}
}

// judgeKept wants store and bucket to hold of a job that is over what they
// should.
func (j *jobCase) judgeKept(rec store.Record) {
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
	resumable := rec.Job.Status != rowmill.StatusSucceeded || rec.Job.FailedRows > 0 // its input stays for that
	for _, info := range j.world.shelf.list(layout.Job(j.id)) {
		if !named[info.Key] && (!resumable || !strings.HasPrefix(info.Key, layout.Input(j.id))) {
			j.wrong("%s is left of job %d, which is %s", short(plain(info.Key)), j.index, rec.Job.Status)
		}
		delete(named, info.Key)
	}
	for key := range named {
		j.wrong("%s of job %d is not there", short(plain(key)), j.index)
	}
	if rec.Reserved != 0 {
		j.wrong("%v are set aside for job %d, which is over", rec.Reserved, j.index)
	}
}

// judgeLedger wants the account charged for what its jobs used.
func (a *account) judgeLedger() {
	var used, charged store.Totals
	for _, j := range a.jobs {
		if id := j.known(); id != "" {
			if rec, err := a.look(id); err == nil {
				used.Rows += rec.Job.RowsDone
				used.Failed += rec.Job.FailedRows
				used.InputTokens += max(0, value(rec.Job.InputTokens))
				used.OutputTokens += max(0, value(rec.Job.OutputTokens))
			}
		}
	}
	days, err := a.world.vault.base.Usage(background, "default", a.world.began.AddDate(0, 0, -1), time.Now().AddDate(0, 0, 1))
	if err != nil {
		a.wrong("the ledger: %v", err)
	}
	for _, d := range days {
		charged = charged.Plus(d.Totals)
	}
	if used.Rows != charged.Rows || used.Failed != charged.Failed || used.InputTokens != charged.InputTokens || used.OutputTokens != charged.OutputTokens {
		a.wrong("the ledger says %+v, the records %+v", charged, used)
	}
}

// judgeReruns counts what was answered twice against what may be.
func (j *jobCase) judgeReruns() {
	t := j.world.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	again := 0
	for _, text := range j.texts {
		again += max(0, t.answered[text]-1)
	}
	j.mu.Lock()
	j.reruns += again
	j.mu.Unlock()
	if bound := j.world.mayRerun(); again > bound {
		j.wrong("%d rows of job %d were answered again, %d may", again, j.index, bound)
	}
}

// judgeAfter looks again once every node has stopped: nothing has changed.
func (a *account) judgeAfter() {
	for _, j := range a.jobs {
		if len(j.finals) == 0 || j.gone {
			continue
		}
		rec, err := a.look(j.id)
		was := j.finals[len(j.finals)-1]
		if err != nil || lasting(rec) != lasting(was) {
			a.wrong("job %d was over and changed: %s, then %s, %v", j.index, lasting(was), lasting(rec), err)
		}
	}
}

// lasting is what must never change of a job that is over.
func lasting(rec store.Record) string {
	job := rec.Job
	return fmt.Sprintf("%s at %v, %+v, %d+%d tokens", job.Status, job.Completed, job.RowCounts, value(job.InputTokens), value(job.OutputTokens))
}

// mayRerun is how many rows of a job may be run again after what struck.
func (w *world) mayRerun() int {
	rate := float64(w.Slots) / time.Duration(w.Pace).Seconds() * 2 // a row takes half of Pace at least
	flight := 2*w.Slots + 4 + int(rate*(2*time.Duration(w.PartInterval)+time.Second).Seconds())
	bound := 0
	for i, f := range w.Faults {
		if !w.struck[i] {
			continue
		}
		switch f.Kind {
		case "drain", "clock", "unacknowledged":
		case "forget":
			bound += len(w.Nodes) * (flight + int(rate*(time.Duration(f.For)+2*time.Second).Seconds()))
		default:
			n := 1
			if f.Node < 0 || f.Kind == "cut" || f.Kind == "messages" {
				n = len(w.Nodes)
			}
			bound += n * flight
		}
	}
	return bound
}

func (a *account) struckFaults() int {
	n := 0
	for _, s := range a.world.struck {
		if s {
			n++
		}
	}
	return n
}
