package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/llama"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/realserver"
	"github.com/rowmill/rowmill/internal/wait"
)

// A realServer is an inference server with one model, under a name that our catalog
// does not have. Ollama has two models.
type realServer struct {
	url, model string
	other      string // the second model, for embeddings; empty for none
	kill       func()
	again      func(t *testing.T) // starts it again on its port
}

func realLlama(t *testing.T, kind, name string) realServer {
	s := llama.Start(t, kind, llama.Options{Name: name})
	return realServer{s.URL, s.Model, "", s.Kill, func(t *testing.T) { llama.Start(t, kind, llama.Options{Name: name, Port: s.Port}) }}
}

func realOther(server string) func(t *testing.T, kind, name string) realServer {
	return func(t *testing.T, kind, name string) realServer {
		if server == "ollama" && kind == llama.Chat {
			kind, name = kind+","+llama.Embed, name+",nobody-knows-"+llama.Embed
		}
		s := realserver.Start(t, server, kind, realserver.Options{Name: name})
		return realServer{s.URL, s.Model, s.Other, s.Kill, func(t *testing.T) {
			realserver.Start(t, server, kind, realserver.Options{Name: name, Port: s.Port})
		}}
	}
}

// The whole service with real servers, for `make engines`: TestReal/SERVER/MODEL/CHECK.
// The node knows only their addresses.
func TestReal(t *testing.T) {
	realserver.SkipUnlessEnabled(t)
	for _, c := range []struct {
		server, model string
		start         func(t *testing.T, kind, name string) realServer
		is            realTraits
	}{
		{"llama.cpp", llama.Chat, realLlama, realTraits{refuses: true, endless: true}},
		{"llama.cpp", llama.Think, realLlama, realTraits{refuses: true, endless: true}},
		{"llama.cpp", llama.Embed, realLlama, realTraits{refuses: true}},
		{"vLLM", llama.Chat, realOther("vllm"), realTraits{refuses: true, endless: true}},
		{"vLLM", llama.Think, realOther("vllm"), realTraits{refuses: true, endless: true}},
		{"vLLM", llama.Embed, realOther("vllm"), realTraits{refuses: true}},
		{"SGLang", llama.Chat, realOther("sglang"), realTraits{refuses: true, endless: true}},
		{"SGLang", llama.Think, realOther("sglang"), realTraits{refuses: true, endless: true}},
		{"SGLang", llama.Embed, realOther("sglang"), realTraits{refuses: true}},
		{"Ollama", llama.Chat, realOther("ollama"), realTraits{}},
		{"Ollama", llama.Embed, realOther("ollama"), realTraits{}},
		{"transformers", llama.Chat, realOther("transformers"), realTraits{alone: true, unscored: true, chatOnly: true}},
		{"llama-cpp-python", llama.Chat, realOther("llama-cpp-python"), realTraits{refuses: true, alone: true, chatOnly: true}},
		{"infinity", llama.Embed, realOther("infinity"), realTraits{unmetered: true}},
	} {
		t.Run(c.server+"/"+c.model, func(t *testing.T) {
			s := realService{server: c.start(t, c.model, "nobody-knows-"+c.model), begin: c.start, kind: c.model, realTraits: c.is}
			s.node = newNode(t, s.server.url, "jobs: {part_interval: 500ms, shard_rows: 256}\n")
			s.start(t)
			for _, check := range []struct {
				name  string
				check func(*testing.T)
			}{
				{"service: what the model does is found out", s.nature},
				{"service: rows come back in order", s.order},
				{"service: tokens are the server's", s.tokens},
				{"service: a text that is too long is cut", s.cut},
				{"service: what may not be cut fails the job", s.uncut},
				{"service: two models at once", s.twoModels},
				{"service: rows of any length slow no other job", s.longRows},
				{"service: a job that is cancelled leaves the server alone", s.cancelled},
				{"service: a server that is killed and started again", s.killed},
			} {
				if !t.Run(check.name, check.check) && s.node.gone() {
					return
				}
			}
		})
	}
}

// A realService is a node with a real server.
type realService struct {
	*node
	realTraits
	server realServer
	begin  func(t *testing.T, kind, name string) realServer // starts another server of the kind
	kind   string
}

// realTraits are the properties of a kind of server.
type realTraits struct {
	refuses   bool // it refuses prompts that are too long
	endless   bool // it accepts ignore_eos
	alone     bool // it runs one row at a time, so tests use a tenth of the rows
	unscored  bool // it returns no log probabilities
	unmetered bool // its usage does not count tokens
	chatOnly  bool // it has no embeddings
}

// rows makes about n rows.
func (s realService) rows(n int) []string {
	if s.alone {
		n = (n + 9) / 10
	}
	return rowTexts(n)
}

// scored reports whether answers have log probabilities.
func (s realService) scored() bool { return s.kind != llama.Embed && !s.unscored }

func (s realService) sampling(tokens int) map[string]any {
	if s.kind == llama.Embed {
		return nil
	}
	return map[string]any{"max_tokens": tokens, "temperature": 0.8}
}

// nature checks that the model is listed with its kind, soon after the node has found
// the server.
func (s realService) nature(t *testing.T) {
	want := map[string]string{llama.Chat: "generation", llama.Think: "reasoning", llama.Embed: "embedding"}[s.kind]
	wait.For(t, s.server.model+" is listed with its kind", func() bool {
		var list struct {
			Models []struct {
				ID   string  `json:"id"`
				Kind *string `json:"kind"`
			} `json:"data"`
		}
		s.call(t, http.MethodGet, "/v1/models", nil, &list)
		for _, m := range list.Models {
			if m.ID == s.server.model && m.Kind != nil {
				if *m.Kind != want {
					t.Fatalf("it is taken for %s, want %s", *m.Kind, want)
				}
				return true
			}
		}
		return false
	})
}

// succeed runs rows, and checks that each has an answer, in order.
func (s realService) succeed(t *testing.T, rows []string, tokens int) (record, []string) {
	t.Helper()
	id := s.submit(t, submission{Inputs: rows, Model: s.server.model, Sampling: s.sampling(tokens)})
	job := s.finish(t, id)
	if job.Status != "succeeded" || job.RowsDone != int64(len(rows)) || job.FailedRows != 0 {
		t.Fatalf("%+v (%+v)", job, job.FailureReason)
	}
	return job, s.inOrder(t, id, rows)
}

// inOrder returns the outputs of a job, and checks that each row has one.
func (s realService) inOrder(t *testing.T, id string, rows []string) (outputs []string) {
	t.Helper()
	var result struct {
		Outputs []json.RawMessage `json:"outputs"`
		Inputs  []string          `json:"inputs"`
		Scores  []*float64        `json:"cumulative_logprobs"`
	}
	query := "?include_inputs=true"
	if s.scored() {
		query += "&include_cumulative_logprobs=true"
	}
	s.call(t, http.MethodGet, "/v1/jobs/"+id+"/results"+query, nil, &result)
	if len(result.Outputs) != len(rows) || len(result.Inputs) != len(rows) {
		t.Fatalf("%d outputs and %d inputs of %d rows", len(result.Outputs), len(result.Inputs), len(rows))
	}
	for i, output := range result.Outputs {
		if result.Inputs[i] != rows[i] || string(output) == "null" {
			t.Fatalf("row %d: input %.60q, output %.60s", i, result.Inputs[i], output)
		}
		// An answer without text outside its reasoning has no log probability.
		if s.scored() && (len(result.Scores) != len(rows) || result.Scores[i] == nil && answerIn(output) != "") {
			t.Fatalf("row %d has no log probability: %.200s", i, output)
		}
		outputs = append(outputs, string(output))
	}
	return outputs
}

// answerIn returns the text of an output, without its reasoning.
func answerIn(output json.RawMessage) string {
	var text string
	if json.Unmarshal(output, &text) != nil {
		return ""
	}
	var parts struct {
		Content *string `json:"content"`
	}
	if json.Unmarshal([]byte(text), &parts) == nil && parts.Content != nil {
		return *parts.Content
	}
	return text
}

func (s realService) order(t *testing.T) {
	_, outputs := s.succeed(t, s.rows(120), 32)
	thoughts := 0
	for i, output := range outputs {
		switch s.kind {
		case llama.Embed:
			var vector []float64
			if err := json.Unmarshal([]byte(output), &vector); err != nil || len(vector) == 0 {
				t.Fatalf("row %d: output %.60s: %v", i, output, err)
			}
		case llama.Think:
			var answer struct {
				Thought string `json:"reasoning_content"`
			}
			var text string
			if json.Unmarshal([]byte(output), &text) == nil && json.Unmarshal([]byte(text), &answer) == nil && answer.Thought != "" {
				thoughts++
			}
		}
	}
	if s.kind == llama.Think && thoughts < len(outputs)/2 {
		t.Errorf("%d of %d answers have reasoning", thoughts, len(outputs))
	}
}

// tokens checks that a job counts the same prompt tokens as the server reports for the
// same requests.
func (s realService) tokens(t *testing.T) {
	if s.unmetered {
		t.Skip("the server ignores tokens, which it does not count")
	}
	rows, want := rowTexts(10), int64(0)
	for _, row := range rows {
		var usage struct {
			Usage struct {
				Prompt int64 `json:"prompt_tokens"`
			} `json:"usage"`
		}
		path, body := "/v1/chat/completions", map[string]any{
			"model": s.server.model, "messages": []map[string]string{{"role": "user", "content": row}}, "max_tokens": 1,
		}
		if s.kind == llama.Embed {
			path, body = "/v1/embeddings", map[string]any{"model": s.server.model, "input": row}
		}
		s.ask(t, path, body, &usage)
		want += usage.Usage.Prompt
	}
	if job, _ := s.succeed(t, rows, 4); job.InputTokens != want {
		t.Errorf("the job has %d input tokens, the server counts %d", job.InputTokens, want)
	}
}

// ask sends a request directly to the server.
func (s realService) ask(t *testing.T, path string, body, out any) {
	t.Helper()
	doc := must.Get(json.Marshal(body))(t)
	response, err := s.http.Post(s.server.url+path, "application/json", bytes.NewReader(doc))
	must.Succeed(t, err)
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(out); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s answers %d: %v", path, response.StatusCode, err)
	}
}

// tooLong returns rows, some longer than any context here.
func tooLong() []string {
	rows := rowTexts(20)
	rows[3], rows[11], rows[19] = strings.Repeat("word ", 8000), strings.Repeat("x", 9000), strings.Repeat("Häuser ", 5000)
	return rows
}

func (s realService) cut(t *testing.T) { s.succeed(t, tooLong(), 8) }

func (s realService) uncut(t *testing.T) {
	if !s.refuses {
		t.Skip("the server does not report a row that is too long")
	}
	body := map[string]any{"inputs": tooLong(), "model": s.server.model, "sampling_params": s.sampling(8), "truncate_rows": false}
	status, answer, err := s.send(http.MethodPost, "/v1/batch-inference", body)
	must.Succeed(t, err)
	var created struct {
		Results string `json:"results"`
	}
	if err := json.Unmarshal(answer, &created); err != nil || status != http.StatusOK {
		t.Fatalf("%d %.200s", status, answer)
	}
	if job := s.finish(t, created.Results); job.Status != "failed" || job.FailureReason == nil || job.FailureReason.Code != "row_too_long" {
		t.Errorf("%+v (%+v)", job, job.FailureReason)
	}
}

// cancelled checks that a server has time for other jobs soon after a job with long
// answers was cancelled.
func (s realService) cancelled(t *testing.T) {
	if s.kind == llama.Embed {
		t.Skip("embeddings take no time")
	}
	sampling := s.sampling(1500)
	if s.endless {
		sampling["ignore_eos"] = true
	}
	id := s.submit(t, submission{Inputs: s.rows(400), Model: s.server.model, Sampling: sampling, Priority: 1})
	s.until(t, id, "at work", func(record) bool { return s.working(t) > 0 })
	s.call(t, http.MethodGet, "/v1/job-cancel/"+id, nil, nil)
	wait.For(t, "no row is at the server", func() bool { return s.working(t) == 0 })
	s.succeed(t, rowTexts(1), 1)
}

// working returns how many requests the server works on, or the node has in flight.
func (s realService) working(t *testing.T) (n float64) {
	t.Helper()
	for _, page := range []string{s.server.url, s.base} {
		response, err := s.http.Get(page + "/metrics")
		must.Succeed(t, err)
		var text bytes.Buffer
		_, err = text.ReadFrom(response.Body)
		response.Body.Close()
		must.Succeed(t, err)
		for line := range strings.Lines(text.String()) {
			for _, name := range []string{"vllm:num_requests_running", "sglang:num_running_reqs{", "llamacpp:requests_processing", "rowmill_engine_rows_inflight"} {
				var value float64
				if fields := strings.Fields(line); strings.HasPrefix(line, name) && len(fields) == 2 {
					must.Get(fmt.Sscan(fields[1], &value))(t)
					n += value
				}
			}
		}
	}
	return n
}

// killed checks that a job survives the death of its server.
func (s realService) killed(t *testing.T) {
	rows := s.rows(600)
	id := s.submit(t, submission{Inputs: rows, Model: s.server.model, Sampling: s.sampling(48), Priority: 1})
	if s.until(t, id, "begun", func(r record) bool { return r.RowsDone > 0 }).over() {
		t.Skip("the job was over before its server could be killed")
	}
	said := len(s.log(t))
	s.server.kill()
	said = s.says(t, said, "engine is down")
	s.server.again(t)
	s.says(t, said, "engine is up")
	s.succeedsWith(t, id, len(rows))
	s.inOrder(t, id, rows)
}
