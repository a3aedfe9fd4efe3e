package virtual

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"
)

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
