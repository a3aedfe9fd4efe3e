package virtual

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// Some jobs read the stored input of another job, with a system prompt of their own. The other job
// may not have read its input yet.

// readings has one to three jobs read the input of another job, sometimes with a fault while the other
// job reads it. Sometimes the other job downloads its input, and cannot store it for a while, so that
// the jobs wait and are parked.
func (g *generator) readings() {
	i := g.IntN(len(g.Jobs))
	j := &g.Jobs[i]
	if j.Continues > 0 || j.Poison != "" || j.Equal > 0 || j.Broken > 0 || j.Estimate || j.Limit > 0 || j.Schema || g.IntN(2) > 0 {
		return
	}
	if g.IntN(2) == 0 {
		j.Rows = max(j.Rows, 20+g.IntN(60))
	}
	for range 1 + g.IntN(3) {
		reader := Job{At: j.At + g.upTo(time.Second), Node: g.IntN(len(g.Nodes)), Reads: i + 1}
		if g.IntN(4) == 0 {
			reader.Cancel = reader.At + g.upTo(15*time.Second)
		}
		g.Jobs = append(g.Jobs, reader)
	}
	if g.IntN(2) == 0 {
		j.From, j.Spooled = g.one(sendsWhole, sendsUnsized), false
		g.Faults = append(g.Faults, Fault{Kind: "away", How: "blob", Node: -1, At: j.At + g.upTo(300*time.Millisecond), For: Duration(5*time.Second) + g.upTo(40*time.Second)})
	}
	if g.IntN(2) == 0 {
		g.faultAt(g.IntN(len(g.Nodes)), g.one("blob.put", "blob.open", "store.update", "store.claim", "store.park"))
		g.Faults[len(g.Faults)-1].Nth += g.IntN(6)
	}
}

// readMark is the system prompt of a job that reads another job's input. The engine's answer depends
// on it, so that each job has its own rows.
func readMark(job int) string { return fmt.Sprintf(" for job %d", job) }

// readInputOf takes over the input of the other job.
func (j *jobCase) readInputOf(other *jobCase) {
	j.reads, j.input, j.Account, j.Rows = other, other.input, other.Account, len(other.input)
	for _, text := range other.input {
		j.texts = append(j.texts, text+readMark(j.index))
	}
}

// rawText returns the text of a row without the system prompt.
func (j *jobCase) rawText(row string) string {
	if j.reads == nil {
		return row
	}
	return strings.TrimSuffix(row, readMark(j.index))
}

// readSubmission returns the body of the request to read the other job's input, once that job is
// accepted; nil if the other job never is.
func (j *jobCase) readSubmission() []byte {
	for ; !j.world.over(); time.Sleep(100 * time.Millisecond) {
		j.mu.Lock()
		id, never := j.reads.id, j.reads.never
		j.mu.Unlock()
		if never {
			return nil
		}
		if id != "" {
			text, _ := json.Marshal(map[string]any{"inputs": "job:" + id, "model": modelName, "job_priority": j.priority(), "system_prompt": readMark(j.index)})
			return text
		}
	}
	return nil
}

// cannotRead reports whether a node refused to read the other job's input, and checks the reason.
func (j *jobCase) cannotRead(code int, text []byte) (refused, again bool) {
	if code != http.StatusBadRequest || j.reads == nil {
		return false, false
	}
	unknown := strings.Contains(string(text), "does not exist")
	if !unknown && !strings.Contains(string(text), "its input was") {
		return false, false
	}
	switch {
	case unknown && j.reads.lawfullyGone():
		return true, false
	case unknown: // the losers of a split, or a store that forgot it, may not have it yet
		return len(j.forgets) > 0, true
	}
	rec, err := j.look(j.reads.known())
	return j.mayMissInput(rec, err), false
}

// mayMissInput reports whether the other job may have no stored input: the store forgot the job, its
// data or input was removed, or it ended before its input was read.
func (j *jobCase) mayMissInput(other store.Record, err error) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return err != nil || len(j.forgets) > 0 || j.reads.dataGone || j.reads.inputGone ||
		slices.ContainsFunc(j.reads.finals, func(r store.Record) bool { return r.Job.Status != rowmill.StatusSucceeded }) ||
		other.Job.Status.IsTerminal() && other.Job.Status != rowmill.StatusSucceeded
}

// waitsForInput reports whether a record is parked until the other job has read its input.
func (j *jobCase) waitsForInput(rec store.Record) bool {
	return j.reads != nil && strings.HasPrefix(rec.Job.Message, "Waiting for the input of ")
}
