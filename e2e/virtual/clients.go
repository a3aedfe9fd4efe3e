package virtual

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/deterministic"
)

// live runs the client of a job: it submits until a node accepts the job, and may cancel it
// and remove its data.
func (j *jobCase) live() {
	var text []byte
	began, path := time.Duration(0), "/v1/batch-inference"
	if j.reuses != nil {
		if text, began = j.reuseSubmission(); text == nil {
			j.nothing()
			return
		}
	} else if j.of == nil {
		time.Sleep(time.Duration(j.At))
		if j.reads == nil {
			text = j.submission(nil)
		} else if text = j.readSubmission(); text == nil {
			j.nothing()
			return
		}
	} else {
		var old string
		if old, began = j.of.awaitEnd(); old == "" {
			j.nothing()
			return
		}
		time.Sleep(time.Duration(j.At))
		path = "/v1/jobs/" + old + "/resume"
		body := map[string]any{}
		if j.Rest {
			body["rows"] = "rest"
		}
		if slices.ContainsFunc(j.jobs, func(other *jobCase) bool { return other != j && other.of == j.of }) {
			body["again"] = true
		}
		text, _ = json.Marshal(body)
	}
	var answer struct {
		Results string `json:"results"`
	}
	if !j.insist(http.MethodPost, path, text, &answer) {
		return
	}
	j.mu.Lock()
	j.id, j.accepted = answer.Results, j.world.now()
	j.mu.Unlock()
	j.world.tell(-1, "accepted", short(answer.Results), "")
	j.glimpse(answer.Results)
	j.meddle()
	if j.Pause > 0 {
		j.pause(began)
	}
	if j.Cancel > 0 {
		j.cancel(began)
	}
	if j.Remove > 0 {
		j.removeData()
	}
}

// cancel cancels the job, as its client.
func (j *jobCase) cancel(began time.Duration) {
	id := j.known()
	time.Sleep(began + time.Duration(j.Cancel) - j.world.now())
	var said struct {
		Cancelled bool `json:"cancelled"`
	}
	if j.insist(http.MethodGet, "/v1/job-cancel/"+id, nil, &said) && said.Cancelled {
		j.mu.Lock()
		j.cancelled = true
		j.mu.Unlock()
		j.world.tell(-1, "cancelled", short(id), "")
	}
}

// submission returns the body of the client's request, with more fields.
func (j *jobCase) submission(more map[string]any) []byte {
	var inputs any = j.input
	if j.From != "" {
		inputs = fmt.Sprintf("https://%s/%d", sourceHost, j.index)
	}
	body := map[string]any{"inputs": inputs, "model": modelName, "job_priority": j.priority()}
	if j.Limit > 0 {
		body["limit"] = j.Limit
	}
	if j.Estimate {
		body["cost_estimate"] = true
	}
	if j.Equal > 0 {
		body["dedup"] = true
	}
	if j.Schema {
		body["json_schema"] = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
	}
	maps.Copy(body, more)
	text, _ := json.Marshal(body)
	return text
}

// awaitEnd waits for the end of a job and returns its id and the time, or an empty id if no
// job was created.
func (j *jobCase) awaitEnd() (id string, at time.Duration) {
	for ; !j.world.over(); time.Sleep(100 * time.Millisecond) {
		j.mu.Lock()
		id, none := j.id, j.never
		n := len(j.history)
		over := n > 0 && j.history[n-1].status.IsTerminal()
		j.mu.Unlock()
		switch {
		case none:
			return "", 0
		case over:
			return id, j.world.now()
		case id != "" && n == 0: // the store forgot the job
			if _, err := j.look(id); errors.Is(err, rowmill.ErrNotFound) && j.lawfullyGone() {
				return "", 0
			}
			j.glimpse(id)
		}
	}
	return "", 0
}

// nothing notes that there is no job to continue.
func (j *jobCase) nothing() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.never = true
}

// refused reports whether a node refused to continue a job, and checks the reason.
func (j *jobCase) refused(node int, text []byte) bool {
	var said struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal(text, &said) // another text is not one of these refusals
	if said.Code != "nothing_to_run" && said.Code != "input_removed" && said.Code != "estimate_job" {
		return false
	}
	rec, err := j.world.vault.side(node).get(j.of.known())
	if err != nil || !rec.Job.Status.IsTerminal() {
		return true // the store forgot the job; judge checks later that it comes back
	}
	if said.Code == "estimate_job" {
		if !j.of.Estimate || rec.Job.Status == rowmill.StatusSucceeded {
			j.wrong("job %d is %s, and its input cannot run: %s", j.of.index, rec.Job.Status, text)
		}
		return true
	}
	if said.Code == "input_removed" {
		if rec.InputRemoved == nil && (j.of.From == "" || rec.DownloadFinished != nil) {
			j.wrong("the input of job %d was never removed, and it cannot be continued: %s", j.of.index, text)
		}
		return true
	}
	if job := rec.Job; job.NumRows == nil || job.RowsDone < *job.NumRows || job.Status == rowmill.StatusSucceeded && job.FailedRows > 0 || j.Rest && job.HasOtherRows() {
		j.wrong("job %d has rows left, and cannot be continued: %s", j.of.index, text)
	}
	return true
}

// early reports whether a node does not know the end of a job yet, because the store forgot
// it.
func (j *jobCase) early(text []byte) bool { return bytes.Contains(text, []byte(`"job_not_over"`)) }

// insist sends a request to one node after the other until one answers.
func (j *jobCase) insist(method, path string, body []byte, out any) bool {
	header := http.Header{"Idempotency-Key": {fmt.Sprint("job-", j.number())}, "Authorization": {"Key " + keyOf(j.owner())}}
	for n := j.Node; !j.world.over(); n++ {
		teller := j.world.proc(n % len(j.world.Nodes))
		code, text := j.world.request(n%len(j.world.Nodes), method, path, header, body)
		switch {
		case code == http.StatusOK:
			j.acknowledged(method, teller)
			if out != nil {
				if err := json.Unmarshal(text, out); err != nil {
					j.wrong("%s %s answers %.200s", method, path, text)
				}
			}
			return true
		case code == http.StatusNotFound && j.id == "" && j.of != nil && j.of.lawfullyGone():
			j.nothing()
			return false
		case code == http.StatusNotFound && j.lawfullyGone() && j.missing():
			return false
		case code == http.StatusConflict && j.of != nil && j.refused(n%len(j.world.Nodes), text):
			j.nothing()
			return false
		case code == http.StatusGone && j.of != nil && j.bereft():
			j.nothing()
			return false
		case code == http.StatusConflict && method == http.MethodPatch && bytes.Contains(text, []byte(`"job_over"`)):
			return false
		case code == http.StatusConflict && j.early(text):
		case code == http.StatusBadRequest && (j.reads != nil || j.reuses != nil):
			refused, again := j.cannotRead(code, text)
			if j.reuses != nil {
				refused, again = j.cannotReuse(text)
			}
			if !refused {
				j.wrong("%s %s: %d %.300s", method, path, code, text)
			}
			if !again {
				j.nothing()
				return false
			}
		case code != 0 && code < 500 && code != http.StatusForbidden && code != http.StatusTooManyRequests && code != http.StatusNotFound:
			j.wrong("%s %s: %d %.300s", method, path, code, text)
			return false
		}
		time.Sleep(300 * time.Millisecond)
	}
	return false
}

// acknowledged notes the process that accepted the job or removed its data.
func (j *jobCase) acknowledged(method string, by *proc) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch method {
	case http.MethodPost:
		j.teller = by
	case http.MethodDelete:
		j.remover = by
	}
}

// lawfullyGone reports whether a fault made the store forget the submission.
func (j *jobCase) lawfullyGone() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.forgottenAt(j.made[short(j.id)])
}

// missing reports whether the store does not have the job. The losers of a split may not have it.
func (j *jobCase) missing() bool {
	_, err := j.look(j.known())
	return errors.Is(err, rowmill.ErrNotFound)
}

// lost reports whether a missing job may stay missing: the store forgot its submission, and
// the process that accepted it has crashed or kept the submission no longer.
func (j *jobCase) lost() bool {
	if !j.lawfullyGone() {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.orphaned || j.pastRecall(j.made[short(j.id)])
}

// clientPatience is the timeout of a client's request.
const clientPatience = 15 * time.Second

// request sends a request to a node. code is 0 without an answer.
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
	asker := method + path + string(body)
	ctx = withAsker(ctx, asker)
	if pause(ctx, max(w.halted(node), 0)+w.latency(node, "request", asker)) != nil {
		return 0, nil
	}
	r := httptest.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	r.Header = header
	answer := httptest.NewRecorder()
	deterministic.RunNamed(asker, func() { handler.ServeHTTP(answer, r) })
	if p.dead() || ctx.Err() != nil {
		return 0, nil
	}
	return answer.Code, answer.Body.Bytes()
}
