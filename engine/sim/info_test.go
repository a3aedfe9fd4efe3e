package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine/sim/batching"
	"github.com/rowmill/rowmill/internal/must"
)

func TestModels(t *testing.T) {
	t.Parallel()
	c := start(t, Config{Profile: LatencyProfile{Slots: 7}})
	list := decode[struct {
		Simulated bool
		Slots     int
		Data      []struct {
			ID          string
			OwnedBy     string `json:"owned_by"`
			MaxModelLen int    `json:"max_model_len"`
			Simulated   bool
			Dimension   int
		}
	}](t, c.must("GET", "/v1/models", "").body)
	if !list.Simulated || list.Slots != 7 {
		t.Errorf("got %+v", list)
	}
	var names []string
	for _, m := range list.Data {
		names = append(names, m.ID)
		if m.OwnedBy != "rowmill-sim" || !m.Simulated {
			t.Errorf("got %+v", m)
		}
		embeds := m.ID == "embedder"
		if embeds != (m.Dimension == 64) || embeds != (m.MaxModelLen == 512) {
			t.Errorf("got %+v", m)
		}
	}
	if got := strings.Join(names, " "); got != "plain org/Plain-8B thinker embedder" {
		t.Errorf("served: %s", got)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	done := c.complete(body("plain", "x")).Usage
	cut := c.complete(body("plain", "x", "max_tokens", 3)).Usage
	c.must("POST", chatPath, body("plain", "[[sim:fail=500]]"))
	r := c.must("GET", "/metrics", "")
	if !strings.HasPrefix(r.header.Get("Content-Type"), "text/plain") {
		t.Errorf("content type %q", r.header.Get("Content-Type"))
	}
	const labels = `{engine="0",model_name="rowmill-sim"}`
	for _, line := range []string{
		"vllm:num_requests_running" + labels + " 0",
		"vllm:num_requests_waiting" + labels + " 0",
		"vllm:kv_cache_usage_perc" + labels + " 0",
		"vllm:num_preemptions_total" + labels + " 0",
		fmt.Sprintf("vllm:prompt_tokens_total%s %d", labels, done.Prompt+cut.Prompt),
		fmt.Sprintf("vllm:generation_tokens_total%s %d", labels, done.Completion+cut.Completion),
		`vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="65536"} 1`,
		`vllm:request_success_total{engine="0",finished_reason="stop",model_name="rowmill-sim"} 1`,
		`vllm:request_success_total{engine="0",finished_reason="length",model_name="rowmill-sim"} 1`,
		`rowmill_sim_slots 256`,
		`rowmill_sim_responses_total{status="500"} 1`,
		`rowmill_sim_faults_total{kind="status"} 1`,
	} {
		if !bytes.Contains(r.body, []byte(line+"\n")) {
			t.Errorf("no line %q in\n%s", line, r.body)
		}
	}
}

func TestGaugesWhileRunning(t *testing.T) {
	t.Parallel()
	c := start(t, Config{Profile: LatencyProfile{Slots: 1}, MaxContext: 1024})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	hung := body("plain", "[[sim:hang]]")
	ended := []<-chan reply{c.background(ctx, hung), c.background(ctx, hung)}
	eventually(t, "one runs, one waits", func() bool {
		load := c.sim.Load()
		return load.Running == 1 && load.Waiting == 1 && load.KVUse > 0 && load.KVUse <= 1
	})
	page := string(c.must("GET", "/metrics", "").body)
	for _, metric := range []string{"running", "waiting"} {
		if line := "vllm:num_requests_" + metric + `{engine="0",model_name="rowmill-sim"} 1`; !strings.Contains(page, line) {
			t.Errorf("no line %q", line)
		}
	}
	cancel()
	for _, one := range ended {
		if r := <-one; !errors.Is(r.err, context.Canceled) {
			t.Errorf("the request ended with %v", r.err)
		}
	}
	eventually(t, "slot and queue are free", func() bool { l := c.sim.Load(); return l.Running == 0 && l.Waiting == 0 && l.KVUse == 0 })
	eventually(t, "both are counted as disconnected", func() bool {
		return strings.Contains(string(c.must("GET", "/metrics", "").body), "rowmill_sim_disconnects_total 2\n")
	})
}

func TestSmallEndpoints(t *testing.T) {
	t.Parallel()
	c := start(t, Config{MaxBody: 1 << 10})
	if r := c.must("GET", "/health", ""); r.status != 200 {
		t.Errorf("health: %d", r.status)
	}
	if v := decode[map[string]any](t, c.must("GET", "/version", "").body); v["simulated"] != true || v["version"] == "" {
		t.Errorf("version: %v", v)
	}
	for path, status := range map[string]int{"/nowhere": 404, "/v1/audio": 404, "/health": 405} {
		c.refused(path, "", status)
	}
	r := c.must("GET", chatPath, "")
	if r.status != 405 {
		t.Errorf("GET of completions: %d", r.status)
	}
	big := c.must("POST", chatPath, body("plain", strings.Repeat("x", 2000)))
	if p := decode[problem](t, big.body); big.status != 413 || p.Error.Code != 413 || big.header.Get("X-Simulated") != "true" {
		t.Errorf("a large body: %d %s", big.status, big.body)
	}
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	good := testModels()
	for reason, c := range map[string]Config{
		"Models is empty":   {},
		"has no id":         {Models: []rowmill.Model{{Kind: rowmill.KindGeneration}}},
		"unknown kind":      {Models: []rowmill.Model{{ID: "x"}}},
		"needs a dimension": {Models: []rowmill.Model{{ID: "x", Kind: rowmill.KindEmbedding}}},
		"is negative":       {Models: []rowmill.Model{{ID: "x", Kind: rowmill.KindGeneration, ContextLength: -1}}},
		"MaxContext":        {Models: good, MaxContext: 3},
		"MaxBody":           {Models: good, MaxBody: -1},
		"TimeToFirstToken":  {Models: good, Profile: LatencyProfile{TimeToFirstToken: -1}},
		"TimePerToken":      {Models: good, Profile: LatencyProfile{TimePerToken: -1}},
		"Slots":             {Models: good, Profile: LatencyProfile{Slots: -1}},
		"QueueLimit":        {Models: good, Profile: LatencyProfile{QueueLimit: -1}},
		"AnswerTokens":      {Models: good, Profile: LatencyProfile{AnswerTokens: -1}},
		"ReasoningTokens":   {Models: good, Profile: LatencyProfile{ReasoningTokens: -1}},
		"rate of 500":       {Models: good, Faults: Faults{Rate500: 1.5}},
		"add up":            {Models: good, Faults: Faults{Rate500: 0.6, Reset: 0.6}},
		"startup_delay":     {Models: good, Faults: Faults{StartupDelay: -1}},
		"die_after":         {Models: good, Faults: Faults{DieAfter: -1}},
		"needs die_after":   {Models: good, Faults: Faults{ReviveAfter: 1}},
		"MaxSeqs is -1":     {Models: good, GPU: &batching.Config{MaxSeqs: -1}},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("error %v does not say %q", err, reason)
		}
	}
	if c := (Config{Models: good}).WithDefaults(); c.Profile != DefaultProfile() || c.Profile.TimeToFirstToken == 0 {
		t.Errorf("default profile %+v", c.Profile)
	}
}

func TestStartAndStop(t *testing.T) {
	t.Parallel()
	s := newSim(t, Config{Logger: slog.New(slog.DiscardHandler)})
	ctx := context.Background()
	if s.Addr() != nil || s.URL() != "" {
		t.Error("an address before Start")
	}
	must.Succeed(t, s.Start(ctx, "127.0.0.1:0"))
	if err := s.Start(ctx, "127.0.0.1:0"); err == nil {
		t.Error("started twice")
	}
	addr := s.Addr().String()
	other := newSim(t, Config{})
	if err := other.Start(ctx, addr); err == nil || !strings.Contains(err.Error(), addr) {
		t.Errorf("a taken address: %v", err)
	}
	for range 2 {
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		_ = conn.Close()
		t.Error("a stopped server accepts")
	}
	if err := s.Start(ctx, "127.0.0.1:0"); err == nil {
		t.Error("started after Stop")
	}
}

func TestStopFinishesRunningRequests(t *testing.T) {
	t.Parallel()
	c := start(t, Config{Profile: LatencyProfile{TimeToFirstToken: 200 * time.Millisecond}})
	var ended []<-chan reply
	for _, stream := range []bool{false, true} {
		ended = append(ended, c.background(context.Background(), body("plain", "x", "stream", stream)))
	}
	eventually(t, "both run", func() bool { return c.sim.Load().Running == 2 })
	c.stop()
	for _, one := range ended {
		if r := <-one; r.err != nil || r.status != 200 || !bytes.Contains(r.body, []byte("simulated")) {
			t.Errorf("got %d, %v", r.status, r.err)
		}
	}
}

func TestStopCutsOffAtItsDeadline(t *testing.T) {
	t.Parallel()
	c := start(t, Config{Profile: LatencyProfile{TimeToFirstToken: time.Hour, Slots: 1}})
	var ended []<-chan reply
	for _, prompt := range []string{"runs", "waits", "[[sim:delay=1h]]"} {
		ended = append(ended, c.background(context.Background(), body("plain", prompt)))
	}
	eventually(t, "two are in the engine", func() bool { l := c.sim.Load(); return l.Running+l.Waiting == 2 })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := c.sim.Stop(ctx); err != nil {
		t.Error(err)
	}
	for _, one := range ended {
		if r := <-one; r.err == nil {
			t.Error("a request of an hour was answered")
		}
	}
}

func TestQueueLimit(t *testing.T) {
	t.Parallel()
	c := start(t, Config{Profile: LatencyProfile{Slots: 1, QueueLimit: 1}})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	hung := body("plain", "[[sim:hang]]")
	first, second := c.background(ctx, hung), c.background(ctx, hung)
	eventually(t, "one runs, one waits", func() bool { l := c.sim.Load(); return l.Running == 1 && l.Waiting == 1 })
	for _, request := range [][2]string{
		{chatPath, body("plain", "x")}, {chatPath, body("plain", "x", "stream", true)}, {"/v1/embeddings", `{"model":"embedder","input":"x"}`},
	} {
		r := c.must("POST", request[0], request[1])
		if r.status != 503 || r.header.Get("Retry-After") != "1" {
			t.Errorf("a full queue: %d, Retry-After %q", r.status, r.header.Get("Retry-After"))
		}
	}
	cancel()
	<-first
	<-second
	eventually(t, "the server works again", func() bool { return c.must("POST", chatPath, body("plain", "x")).status == 200 })
}

// A loaded adapter is a model with a parent.
func TestAdapters(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	c.refused(chatPath, body("sql", "x"), 404)
	c.refused("/v1/load_lora_adapter", `{"lora_name":"sql"}`, 400)
	c.must("POST", "/v1/load_lora_adapter", `{"lora_name":"sql","lora_path":"/adapters/sql"}`)
	c.refused("/v1/load_lora_adapter", `{"lora_name":"sql","lora_path":"/adapters/sql"}`, 400)
	c.complete(body("sql", "x"))
	if list := string(c.must("GET", "/v1/models", "").body); !strings.Contains(list, `"id":"sql"`) || !strings.Contains(list, `"parent":"plain"`) {
		t.Errorf("models: %s", list)
	}
}

// A sleeping server answers probes, and refuses rows until it wakes up.
func TestSleepMode(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	for _, asleep := range []bool{true, false} {
		path, status := "/wake_up", 200
		if asleep {
			path, status = "/sleep?level=1", 503
		}
		c.must("POST", path, "")
		if got, err := c.send(t.Context(), "POST", chatPath, body("plain", "x")); err != nil || got.status != status {
			t.Errorf("after %s a row gets HTTP %d, error %v", path, got.status, err)
		}
		if got := string(c.must("GET", "/is_sleeping", "").body); !strings.Contains(got, fmt.Sprintf(`"is_sleeping":%v`, asleep)) {
			t.Errorf("after %s: %s", path, got)
		}
		c.must("GET", "/v1/models", "")
	}
}
