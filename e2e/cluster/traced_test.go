package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// Headers of a client with a job: a sampled trace of its own, and one that is not sampled.
const (
	clientTrace   = "0af7651916cd43dd8448eb211c80319c"
	clientSpan    = "b7ad6b7169203331"
	otherTrace    = "11111111111111111111111111111111"
	withinSampled = "00-" + clientTrace + "-" + clientSpan + "-01"
	withinOther   = "00-" + otherTrace + "-" + clientSpan + "-00"
)

// run runs a job to its end and returns its id and rows. The submission has a traceparent
// unless it is empty.
func (c *Cluster) run(t *testing.T, rows int, traceparent string) (job string, inputs []string) {
	t.Helper()
	for i := range rows {
		inputs = append(inputs, fmt.Sprintf("row %d of %q, %d", i, traceparent, time.Now().UnixNano()))
	}
	var header http.Header
	if traceparent != "" {
		header = http.Header{"Traceparent": {traceparent}}
	}
	var created struct {
		Results string `json:"results"`
	}
	body := map[string]any{"inputs": inputs, "model": model, "job_priority": 1, "sampling_params": map[string]any{"max_tokens": maxTokens}}
	must.Succeed(t, c.call(t.Context(), http.MethodPost, "/v1/batch-inference", header, body, &created))
	must.Succeed(t, await(t.Context(), "the job is over", jobWithin, func(ctx context.Context) error {
		r, err := c.record(ctx, created.Results)
		if err == nil && r.over() && (r.Status != "succeeded" || r.RowsDone != int64(rows)) {
			err = final{fmt.Errorf("it is %+v", r)}
		} else if err == nil && !r.over() {
			err = errors.New(r.Status)
		}
		return err
	}))
	return created.Results, inputs
}

// witnessed returns the rows that servers received since the last call, by their
// traceparent.
func (c *Cluster) witnessed(t *testing.T) map[string]string {
	t.Helper()
	seen := make(map[string]string)
	for _, n := range c.nodes() {
		all := must.Get(n.sim.sightings())(t)
		for _, s := range all {
			seen[s.Prompt] = s.Within
		}
	}
	return seen
}

// restart restarts all nodes, which send their spans at their end.
func (c *Cluster) restart(t *testing.T) {
	t.Helper()
	for _, n := range c.nodes() {
		if code, err := n.terminate(drainWithin + 10*time.Second); err != nil || code != 0 {
			t.Fatalf("%s ended with %d: %v", n.Name, code, err)
		}
	}
	must.Succeed(t, c.Repair(t.Context()))
}

// A tree holds the spans of a trace.
type tree struct {
	t    *testing.T
	all  []*span
	byID map[string]*span
}

// treeOf returns all spans of a trace, and checks that each has a parent, except the
// children of outside.
func treeOf(t *testing.T, all []*span, trace, outside string) tree {
	t.Helper()
	tr := tree{t, nil, make(map[string]*span)}
	for _, s := range all {
		if s.Trace == trace {
			tr.all = append(tr.all, s)
			tr.byID[s.ID] = s
		}
	}
	for _, s := range tr.all {
		switch parent := tr.byID[s.Parent]; {
		case s.Parent == outside:
		case parent == nil:
			t.Errorf("span %q of %s has no parent", s.Name, s.node)
		case s.begin.Before(parent.begin) && parent.Kind != kindServer:
			t.Errorf("span %q begins %v before %q", s.Name, parent.begin.Sub(s.begin), parent.Name)
		}
	}
	return tr
}

func (tr tree) named(name string) (found []*span) {
	for _, s := range tr.all {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// only returns the only span with a name.
func (tr tree) only(name string) *span {
	tr.t.Helper()
	found := tr.named(name)
	if len(found) != 1 {
		tr.t.Fatalf("%d spans are called %q", len(found), name)
	}
	return found[0]
}

// below checks that all spans with a name are children of spans with another name.
func (tr tree) below(name, parent string) []*span {
	tr.t.Helper()
	found := tr.named(name)
	if len(found) == 0 {
		tr.t.Errorf("no span is called %q", name)
	}
	for _, s := range found {
		if above := tr.byID[s.Parent]; above == nil || above.Name != parent {
			tr.t.Errorf("span %q does not stand below %q", name, parent)
		}
	}
	return found
}

var (
	exemplar   = regexp.MustCompile(`^(rowmill_\w+)_bucket\{.*\} \d+ # \{(.*)\} `)
	exemplarOf = regexp.MustCompile(`(trace|span)_id="([0-9a-f]+)"`)
)

// exemplars returns the exemplars of a node by metric: trace and span.
func (c *Cluster) exemplars(t *testing.T, n *Node) map[string][][2]string {
	t.Helper()
	text := must.Get(c.client.send(t.Context(), http.MethodGet, n.API+"/metrics", http.Header{"Accept": {"application/openmetrics-text;version=1.0.0"}}, nil))(t)
	found := make(map[string][][2]string)
	for line := range strings.Lines(string(text)) {
		m := exemplar.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		ids := make(map[string]string)
		for _, id := range exemplarOf.FindAllStringSubmatch(m[2], -1) {
			ids[id[1]] = id[2]
		}
		found[m[1]] = append(found[m[1]], [2]string{ids["trace"], ids["span"]})
	}
	return found
}

// logged returns the log messages of a node about a job, and their traces.
func logged(t *testing.T, n *Node, job string) map[string]string {
	t.Helper()
	text := must.Get(os.ReadFile(n.log))(t)
	messages := make(map[string]string)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var line struct {
			Msg   string `json:"msg"`
			Job   string `json:"job"`
			Trace string `json:"trace_id"`
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Job == job {
			messages[line.Msg] = line.Trace
		}
	}
	return messages
}

// TestTraced sends the spans of two nodes to a real collector. It checks the tree of a job, the
// headers to servers, exemplars and logs, sampling, and a collector that fails during jobs.
func TestTraced(t *testing.T) {
	soaks(t)
	config := Config{Dir: folder(t), Roles: []string{"both", "both"}, Slots: 64}
	col := startCollector(t, &Cluster{dir: config.Dir, client: newClient()})
	config.Settings = []string{"tracing.endpoint=" + col.url, "tracing.rows=0.01"}
	c := startHere(t, config)

	const rows = 3000
	job, inputs := c.run(t, rows, "")
	seen := c.witnessed(t)
	within, _ := c.run(t, 10, withinSampled)
	without, _ := c.run(t, 10, withinOther)
	exemplars := make(map[string][][2]string)
	for _, n := range c.nodes() {
		for metric, found := range c.exemplars(t, n) {
			exemplars[metric] = append(exemplars[metric], found...)
		}
	}
	told := c.witnessed(t)
	c.config.Settings = []string{"tracing.endpoint=" + col.url, "tracing.sample=0", "tracing.rows=1"}
	c.restart(t)
	all := col.spans(t)

	trace := strings.ReplaceAll(strings.TrimPrefix(job, "job-"), "-", "")
	t.Run("the tree of a job", func(t *testing.T) { c.judgeTree(t, treeOf(t, all, trace, ""), job, inputs, seen) })

	t.Run("within the trace of a client", func(t *testing.T) {
		tr := treeOf(t, all, clientTrace, clientSpan)
		served, whole := tr.only("POST /v1/batch-inference"), tr.only("job")
		if served.Kind != kindServer || served.Parent != clientSpan || whole.Parent != served.ID || whole.text("rowmill.job") != within {
			t.Errorf("the request is %+v, the job %+v", served, whole)
		}
		if requests := tr.below("chat "+model, "rows"); len(requests) != 1 || requests[0].number("rowmill.row") != 0 {
			t.Errorf("%d requests of 10 rows are traced", len(requests))
		}
	})

	t.Run("a trace that is not sampled", func(t *testing.T) {
		for _, s := range all {
			if s.Trace == otherTrace || s.text("rowmill.job") == without {
				t.Errorf("there is a span %q", s.Name)
			}
		}
		for prompt, traceparent := range told {
			if strings.Contains(traceparent, otherTrace) {
				t.Errorf("a server was told of %s with %s", traceparent, prompt)
			}
		}
	})

	t.Run("exemplars", func(t *testing.T) {
		known := make(map[[2]string]bool)
		for _, s := range all {
			known[[2]string{s.Trace, s.ID}] = true
		}
		for _, metric := range []string{"rowmill_engine_request_seconds", "rowmill_finalise_seconds", "rowmill_http_request_duration_seconds"} {
			if len(exemplars[metric]) == 0 {
				t.Errorf("%s has no exemplar", metric)
			}
		}
		for metric, found := range exemplars {
			for _, of := range found {
				if !known[of] {
					t.Errorf("an exemplar of %s is of span %s of trace %s, which there is not", metric, of[1], of[0])
				}
			}
		}
	})

	t.Run("logs", func(t *testing.T) {
		messages := make(map[string]string)
		for _, n := range c.nodes() {
			for message, named := range logged(t, n, job) {
				messages[message] = named
			}
			for message, named := range logged(t, n, without) {
				if named != "" {
					t.Errorf("%q of a job that is not traced names trace %s", message, named)
				}
			}
		}
		for _, message := range []string{"job claimed", "job ended"} {
			if messages[message] != trace {
				t.Errorf("%q names the trace %q", message, messages[message])
			}
		}
	})

	t.Run("sample 0", func(t *testing.T) {
		none, _ := c.run(t, 10, "")
		asked, _ := c.run(t, 10, withinSampled)
		before := len(all)
		c.restart(t)
		jobs := make(map[string]bool)
		for _, s := range col.spans(t)[before:] {
			if s.Trace != clientTrace {
				t.Errorf("there is a span %q of another trace", s.Name)
			}
			jobs[s.text("rowmill.job")] = true
		}
		if jobs[none] || !jobs[asked] {
			t.Errorf("jobs %v are traced", jobs)
		}
	})

	t.Run("a collector that goes away", func(t *testing.T) {
		col.kill()
		c.run(t, 500, withinSampled)
		c.restart(t) // nodes must not wait long for the collector
		said := 0
		for _, n := range c.nodes() {
			text := must.Get(os.ReadFile(n.log))(t)
			one := bytes.Count(text, []byte("sending spans to the collector failed"))
			if one > 1 {
				t.Errorf("%s says %d times that the collector is away", n.Name, one)
			}
			said += one
		}
		if said == 0 {
			t.Error("no log line says that the collector is down")
		}
	})
}

// judgeTree checks the trace of a job, with the rows that servers received.
func (c *Cluster) judgeTree(t *testing.T, tr tree, job string, inputs []string, seen map[string]string) {
	whole := tr.only("job")
	if whole.ID != whole.Trace[16:] || whole.text("rowmill.job") != job || whole.text("rowmill.status") != "succeeded" || whole.number("rowmill.rows") != len(inputs) || whole.Status.Code != 0 {
		t.Errorf("the job is %+v", whole)
	}
	for _, name := range []string{"read the input", "wait for an engine", "commit parts", "merge parts", "record the result"} {
		for _, s := range tr.below(name, "job") {
			if s.end.After(whole.end.Add(time.Second)) { // both nodes have the same clock; times in the record are rounded
				t.Errorf("%q ends %v after the job", name, s.end.Sub(whole.end))
			}
		}
	}
	shards, nodes := make(map[int]bool), make(map[string]bool)
	for _, s := range tr.below("shard", "job") {
		shards[s.number("rowmill.shard")], nodes[s.node] = true, true
	}
	if len(shards) != (len(inputs)+shardRows-1)/shardRows || len(nodes) != 2 {
		t.Errorf("spans are of shards %v on nodes %v", shards, nodes)
	}
	tr.below("write a part", "shard")
	rows := 0
	for _, s := range tr.below("rows", "shard") {
		rows += s.number("rowmill.rows")
	}
	if rows < len(inputs) { // some rows may have moved to another node
		t.Errorf("%d rows were loaded", rows)
	}

	var traced []int
	for _, s := range tr.below("chat "+model, "rows") {
		row := s.number("rowmill.row")
		traced = append(traced, row)
		if row < 0 || row >= len(inputs) {
			t.Fatalf("there is a request of row %d", row)
		}
		if told := seen[promptHash(inputs[row])]; told != "00-"+s.Trace+"-"+s.ID+"-01" {
			t.Errorf("the server of row %d was told of %q, its span is %s", row, told, s.ID)
		}
		if batch := tr.byID[s.Parent]; s.Kind != kindClient || s.node != batch.node || s.end.After(batch.end) {
			t.Errorf("the request is %+v, of rows that are %+v", s, batch)
		}
		if s.number("gen_ai.usage.output_tokens") < 1 || s.number("rowmill.attempt") != 1 {
			t.Errorf("the request has %+v", s.Attributes)
		}
	}
	slices.Sort(traced)
	var want []int
	for row := 0; row < len(inputs); row += 100 {
		want = append(want, row)
	}
	if !slices.Equal(traced, want) {
		t.Errorf("at 1 %% the requests of rows %v are traced", traced)
	}
	for _, s := range tr.all {
		if s.Status.Code != 0 {
			t.Errorf("%q has failed: %s", s.Name, s.Status.Message)
		}
	}
	told := 0
	for _, traceparent := range seen {
		if traceparent != "" {
			told++
		}
	}
	if told != len(want) {
		t.Errorf("servers were told of %d spans", told)
	}
}
