package sim

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

var schemaFormat = map[string]any{"type": "json_schema", "json_schema": map[string]any{
	"name": "o", "schema": json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}`),
}}

func TestDirectives(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	for _, status := range []int{400, 404, 418, 429, 500, 503, 599} {
		r := c.must("POST", chatPath, body("plain", fmt.Sprintf("row [[sim:fail=%d]] text", status)))
		if p := decode[problem](t, r.body); r.status != status || p.Error.Code != status {
			t.Errorf("fail=%d: %d %s", status, r.status, r.body)
		}
		if wait := r.header.Get("Retry-After"); (wait != "") != (status == 429 || status == 503) {
			t.Errorf("fail=%d: Retry-After %q", status, wait)
		}
	}
	if p := c.refused(chatPath, body("plain", "[[sim:reject]]"), 400); !strings.Contains(p.Error.Message, "rejected for good") {
		t.Errorf("reject: %s", p.Error.Message)
	}
	for attempt, want := range []int{503, 503, 200, 200} {
		if r := c.must("POST", chatPath, body("plain", "[[sim:fail=503 times=2]]", "seed", attempt)); r.status != want {
			t.Errorf("attempt %d: %d, want %d", attempt, r.status, want)
		}
	}
	for _, stream := range []bool{false, true} {
		if _, err := c.send(context.Background(), "POST", chatPath, body("plain", "[[sim:reset]]", "stream", stream)); err == nil {
			t.Error("reset: an answer came")
		}
		r, err := c.send(context.Background(), "POST", chatPath, body("plain", "[[sim:truncate]]", "stream", stream))
		if err != nil || r.status != 200 || r.err == nil || len(r.body) == 0 || bytes.Contains(r.body, []byte("[DONE]")) {
			t.Errorf("truncate: %d, %v, %v after %d bytes", r.status, err, r.err, len(r.body))
		}
		malformed := c.must("POST", chatPath, body("plain", "[[sim:malformed]]", "stream", stream))
		if malformed.status != 200 || json.Valid(malformed.body) || stream && !bytes.Contains(malformed.body, []byte("malformed")) {
			t.Errorf("malformed: %d %s", malformed.status, malformed.body)
		}
	}
	empty := decode[completion](t, c.must("POST", chatPath, body("plain", "[[sim:empty]]")).body)
	if len(empty.Choices) != 0 || empty.Usage == nil {
		t.Errorf("empty: %+v", empty)
	}
	chunks, done := events(t, c.must("POST", chatPath, body("plain", "[[sim:empty]]", "stream", true)).body)
	if len(chunks) != 0 || !done {
		t.Errorf("empty stream: %+v", chunks)
	}
	if got := c.complete(body("plain", "[[sim:finish=abort]]")); got.finish() != "abort" {
		t.Errorf("finish: %s", got.finish())
	}
	if got := c.complete(body("plain", "[[sim:invalid-json]]", "response_format", schemaFormat)); json.Valid([]byte(got.content())) {
		t.Errorf("invalid-json: %s", got.content())
	}
	violating := c.complete(body("plain", "[[sim:violate]]", "response_format", schemaFormat)).content()
	if !json.Valid([]byte(violating)) || strings.Contains(violating, `"a"`) {
		t.Errorf("violate: %s", violating)
	}
	for _, n := range []int{1, 2, 3, 4, 500} {
		got := c.complete(body("plain", fmt.Sprintf("[[sim:tokens=%d]]", n)))
		if got.Usage.Completion != n || got.finish() != "stop" || n > 3 && !strings.HasSuffix(got.content(), ".") {
			t.Errorf("tokens=%d: %d tokens, %s, %q", n, got.Usage.Completion, got.finish(), got.content())
		}
	}
	began := time.Now()
	c.complete(body("plain", "[[sim:delay=30ms tokens=5]]"))
	if took := time.Since(began); took < 30*time.Millisecond {
		t.Errorf("delay: answered after %v", took)
	}
	for _, text := range []string{"[[sim:fail=200]]", "[[sim:fail=x]]", "[[sim:unheard]]", "[[sim:fail=500", "[[sim:tokens=-1]]", "[[sim:delay=5]]"} {
		c.complete(body("plain", text))
	}
}

func TestEmbeddingFaults(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	input := func(text string) string {
		return fmt.Sprintf(`{"model":"embedder","input":["fine",%q]}`, text)
	}
	c.refused("/v1/embeddings", input("[[sim:reject]]"), 400)
	c.refused("/v1/embeddings", input("[[sim:fail=500]]"), 500)
	if _, err := c.send(context.Background(), "POST", "/v1/embeddings", input("[[sim:reset]]")); err == nil {
		t.Error("reset: an answer came")
	}
	if r, err := c.send(context.Background(), "POST", "/v1/embeddings", input("[[sim:truncate]]")); err != nil || r.err == nil {
		t.Errorf("truncate: %v, %v", err, r.err)
	}
	if r := c.must("POST", "/v1/embeddings", input("[[sim:malformed]]")); json.Valid(r.body) {
		t.Errorf("malformed: %s", r.body)
	}
	if got := decode[embeddings](t, c.must("POST", "/v1/embeddings", input("[[sim:empty]]")).body); len(got.Data) != 0 {
		t.Errorf("empty: %+v", got)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := c.send(ctx, "POST", "/v1/embeddings", input("[[sim:hang]]"))
		ended <- err
	}()
	eventually(t, "it hangs", func() bool { return c.sim.Load().Running == 1 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("hang: %v", err)
	}
	eventually(t, "the slot is free", func() bool { return c.sim.Load().Running == 0 })
}

// outcomes sends rows until each is answered with 200, and returns the
// statuses met on the way (0 for a broken connection).
func outcomes(c *client, rows int) map[int]int {
	met := map[int]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	work := make(chan int)
	for range 8 {
		wg.Go(func() {
			for row := range work {
				for {
					r, err := c.send(context.Background(), "POST", chatPath, body("plain", fmt.Sprint("row ", row), "max_tokens", 4))
					if err != nil || r.err != nil || r.status == 200 && !json.Valid(r.body) {
						r.status = 0
					}
					mu.Lock()
					met[r.status]++
					mu.Unlock()
					if r.status == 200 {
						break
					}
				}
			}
		})
	}
	for row := range rows {
		work <- row
	}
	close(work)
	wg.Wait()
	return met
}

func TestFaultRatesRepeat(t *testing.T) {
	t.Parallel()
	faults := Faults{Rate429: 0.1, Rate500: 0.05, Rate503: 0.05, Reset: 0.05, Truncate: 0.05, Malformed: 0.05}
	const rows = 400
	first := outcomes(start(t, Config{Seed: 5, Faults: faults}), rows)
	again := outcomes(start(t, Config{Seed: 5, Faults: faults}), rows)
	if fmt.Sprint(first) != fmt.Sprint(again) {
		t.Errorf("the same seed gives %v and %v", first, again)
	}
	if first[200] != rows {
		t.Errorf("%d rows got through", first[200])
	}
	// 35 % of all requests fail: about 400 / 0.65 requests.
	total := 0
	for _, n := range first {
		total += n
	}
	for status, rate := range map[int]float64{429: 0.1, 500: 0.05, 503: 0.05, 0: 0.15} {
		share := float64(first[status]) / float64(total)
		if share < rate/2 || share > rate*2 {
			t.Errorf("status %d has a share of %.3f, want about %.2f", status, share, rate)
		}
	}
	if other := outcomes(start(t, Config{Seed: 6, Faults: faults}), rows); fmt.Sprint(first) == fmt.Sprint(other) {
		t.Errorf("another seed gives the same: %v", other)
	}
}

func TestHitsAreForgotten(t *testing.T) {
	t.Parallel()
	c := start(t, Config{Faults: Faults{Rate500: 0.5}})
	outcomes(c, 100)
	c.sim.faults.mu.Lock()
	defer c.sim.faults.mu.Unlock()
	if n := len(c.sim.faults.faultCounts); n != 0 {
		t.Errorf("%d prompts are remembered after all got through", n)
	}
}

func TestHitsAreBounded(t *testing.T) {
	t.Parallel()
	p := &faultInjector{}
	p.set(Faults{Rate500: 1})
	for prompt := range uint64(maxHits + 1000) {
		if p.chooseFault(prompt, &directives{}).status != 500 {
			t.Fatal("a rate of 1 spared a request")
		}
	}
	if len(p.faultCounts) > maxHits {
		t.Errorf("%d prompts are remembered", len(p.faultCounts))
	}
}

func TestSchemaViolationRate(t *testing.T) {
	t.Parallel()
	c := start(t, Config{Faults: Faults{SchemaViolation: 1}})
	if got := c.complete(body("plain", "x", "response_format", schemaFormat)).content(); strings.Contains(got, `"a"`) || !json.Valid([]byte(got)) {
		t.Errorf("got %s", got)
	}
	if got := c.complete(body("plain", "x")).content(); !strings.HasPrefix(got, "[simulated]") {
		t.Errorf("without a schema: %s", got)
	}
}

func TestFaultsAtRunTime(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	c.complete(body("plain", "x"))
	set := c.must("POST", "/sim/faults", `{"rate_500":1}`)
	if set.status != 200 || decode[Faults](t, set.body) != (Faults{Rate500: 1}) {
		t.Errorf("%d %s", set.status, set.body)
	}
	c.refused(chatPath, body("plain", "x"), 500)
	if got := decode[Faults](t, c.must("GET", "/sim/faults", "").body); got.Rate500 != 1 {
		t.Errorf("got %+v", got)
	}
	c.refused("/sim/faults", `{"rate_999":1}`, 400)
	c.refused("/sim/faults", `{"rate_500":2}`, 400)
	c.refused("/sim/faults", `{"startup_delay":7}`, 400)
	if err := c.sim.SetFaults(Faults{Hang: -1}); err == nil {
		t.Error("a negative rate was taken")
	}
	must.Succeed(t, c.sim.SetFaults(Faults{}))
	c.complete(body("plain", "x"))
	c.must("POST", "/sim/faults", `{"startup_delay":"1h"}`)
	for _, path := range []string{"/health", "/v1/models", "/metrics"} {
		if r := c.must("GET", path, ""); r.status != 503 || r.header.Get("Retry-After") != "3600" {
			t.Errorf("%s while starting: %d, Retry-After %q", path, r.status, r.header.Get("Retry-After"))
		}
	}
	c.must("POST", "/sim/faults", `{}`)
	c.complete(body("plain", "x"))
}

// lockedBuffer is an io.Writer to read while it is written.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

type line struct {
	Time      time.Time `json:"time"`
	Endpoint  string    `json:"endpoint"`
	Model     string    `json:"model"`
	Prompt    string    `json:"prompt"`
	Seed      *int64    `json:"seed"`
	Input     int       `json:"prompt_tokens"`
	Output    int       `json:"completion_tokens"`
	Status    int       `json:"status"`
	Cancelled bool      `json:"cancelled"`
	Fault     string    `json:"fault"`
	Cached    int       `json:"cached_tokens"`
	Preempted int       `json:"preempted"`
	Within    string    `json:"traceparent"`
}

func (b *lockedBuffer) lines(t *testing.T) []line {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines []line
	for scanner := bufio.NewScanner(bytes.NewReader(b.buffer.Bytes())); scanner.Scan(); {
		lines = append(lines, decode[line](t, scanner.Bytes()))
	}
	return lines
}

func TestRequestLog(t *testing.T) {
	t.Parallel()
	log := &lockedBuffer{}
	c := start(t, Config{RequestLog: log})
	usage := c.complete(`{"model":"plain","seed":-7,"messages":[{"role":"system","content":"secret"},{"role":"user","content":"first"},{"role":"user","content":"my row"}]}`).Usage
	c.must("POST", chatPath, body("plain", "my row [[sim:fail=500]]"))
	c.must("POST", chatPath, body("plain", "streamed", "stream", true))
	c.must("POST", "/v1/embeddings", `{"model":"embedder","input":["my row","other"]}`)
	_, _ = c.send(context.Background(), "POST", chatPath, body("plain", "[[sim:reset]]"))
	ctx, cancel := context.WithCancel(context.Background())
	ended := c.background(ctx, body("plain", "[[sim:hang]]"))
	eventually(t, "it hangs", func() bool { return c.sim.Load().Running == 1 })
	eventually(t, "lines are written without Stop", func() bool { return len(log.lines(t)) == 6 })
	cancel()
	<-ended
	eventually(t, "the server notices", func() bool { return c.sim.Load().Running == 0 })
	c.stop()
	lines := log.lines(t)
	if len(lines) != 7 {
		t.Fatalf("%d lines", len(lines))
	}
	for i, l := range lines {
		if l.Within != traceparent {
			t.Errorf("line %d is of the span %q", i, l.Within)
		}
	}
	sum := sha256.Sum256([]byte("my row"))
	hash := hex.EncodeToString(sum[:])[:16]
	first := lines[0]
	if first.Prompt != hash || first.Seed == nil || *first.Seed != -7 || first.Input != usage.Prompt || first.Output != usage.Completion ||
		first.Status != 200 || first.Endpoint != "chat" || first.Model != "plain" || first.Cancelled || first.Time.IsZero() {
		t.Errorf("got %+v", first)
	}
	if l := lines[1]; l.Status != 500 || l.Fault != "status" || l.Output != 0 || l.Seed != nil {
		t.Errorf("failed: %+v", l)
	}
	if l := lines[2]; l.Status != 200 || l.Output == 0 {
		t.Errorf("streamed: %+v", l)
	}
	if l := lines[3]; l.Endpoint != "embeddings" || l.Prompt != hash || l.Input != 2 {
		t.Errorf("embedded: %+v", l)
	}
	if l := lines[5]; l.Status != 0 || l.Fault != "reset" || l.Cancelled {
		t.Errorf("reset: %+v", l)
	}
	if l := lines[6]; l.Status != 0 || l.Fault != "hang" || !l.Cancelled {
		t.Errorf("hung: %+v", l)
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	for _, secret := range []string{"my row", "secret"} {
		if strings.Contains(log.buffer.String(), secret) {
			t.Errorf("the request log tells %q", secret)
		}
	}
}

func TestRequestLogError(t *testing.T) {
	t.Parallel()
	reader, writer := io.Pipe()
	_ = reader.CloseWithError(errors.New("disk full"))
	c := newSim(t, Config{RequestLog: writer})
	c.requests.write(logRecord{Endpoint: "chat"}, nil)
	for range 2 {
		if err := c.Stop(context.Background()); err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("got %v", err)
		}
	}
}

func TestHangEndsWithStop(t *testing.T) {
	t.Parallel()
	log := &lockedBuffer{}
	c := start(t, Config{RequestLog: log, Faults: Faults{Hang: 1}})
	ended := c.background(context.Background(), body("plain", "x"))
	eventually(t, "it hangs", func() bool { return c.sim.Load().Running == 1 })
	c.stop()
	if r := <-ended; r.err == nil {
		t.Error("a hung request was answered")
	}
	if lines := log.lines(t); len(lines) != 1 || lines[0].Cancelled || lines[0].Fault != "hang" {
		t.Errorf("request log: %+v", lines)
	}
}

func TestDisconnectFreesTheSlot(t *testing.T) {
	t.Parallel()
	c := start(t, Config{Profile: LatencyProfile{TimeToFirstToken: time.Hour, Slots: 2}})
	for _, request := range [][2]string{
		{chatPath, body("plain", "x")}, {chatPath, body("plain", "x", "stream", true)}, {"/v1/embeddings", `{"model":"embedder","input":"x"}`},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = c.send(ctx, "POST", request[0], request[1])
		}()
		eventually(t, "it runs", func() bool { return c.sim.Load().Running == 1 })
		cancel()
		<-ended
		eventually(t, "the slot is free", func() bool { return c.sim.Load().Running == 0 })
	}
}
