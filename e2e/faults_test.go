package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// faultyRate is the share of requests for each kind of fault, except the kinds with a
// pause: with seven kinds, 35 % of all requests fail. Only 500, malformed, empty and
// schema_violation cost a row an attempt. Of the other requests 20 in 85 cost one, so
// 0.24^5 or 0.1 % of the rows use up their five attempts, and 0.06^3 or 0.02 % get
// status 500 three times. A job survives 5 %.
const faultyRate = 0.05

// pauseRate is the rate of 429 and of 503. Each of them asks for a pause of a second, and
// in this time the server gets no row.
const pauseRate = 0.005

var faultKinds = []string{"429", "500", "503", "reset", "hang", "truncate", "malformed", "empty", "schema_violation"}

// faultySettings limit the time of hangs: a hanging request keeps its slot until the
// node gives it up.
const faultySettings = `
jobs: {row_patience: 1s, part_bytes: 1MiB, part_interval: 1s, shard_rows: 8192}
quotas: [{priority: 1, row_quota: 1000000, token_quota: 1000000000}]
`

// cardSchema is the schema for the answers of the faulty servers. The answers are
// shorter than cardTokens.
const (
	cardSchema = `{
  "type": "object",
  "properties": {
    "plain": {"type": "string", "minLength": 1, "maxLength": 60},
    "topic": {"enum": ["people", "nature", "everyday life"]},
    "level": {"type": "integer", "minimum": 1, "maximum": 5}
  },
  "required": ["plain", "topic", "level"],
  "additionalProperties": false
}`
	cardTokens = 96
)

// Prices of the model in the catalog, USD per token.
const inputPrice, outputPrice = 0.03e-6, 0.06e-6

// A fate holds the witnesses' records of a row.
type fate struct {
	good      []sighting // good answers
	bad       int        // bad answers, which cost an attempt
	malformed int        // answers that are not JSON, which may cost an attempt
}

// TestFaultsOfEveryKind runs a job on three simulated servers that fail in every way,
// and compares the node's figures with the three witness logs.
//
// A good answer is accepted, and its row is not sent again. A good answer is lost only
// if it comes after jobs.row_patience. Then the row has two, and the witnesses do not
// know which was accepted. The witnesses also do not know how the node counts a body
// that is not JSON: a body that ends too soon counts as a broken connection, which
// costs the row no attempt.
func TestFaultsOfEveryKind(t *testing.T) {
	soaks(t)
	// With few slots, answers and timeouts are short. With many, the windows stay large
	// enough for many rows after refusals.
	rows, slots := size(2_000, 4_000, 20_000), size(64, 128, 256)
	rates := make([]string, len(faultKinds))
	for i, kind := range faultKinds {
		rate := faultyRate
		if kind == "429" || kind == "503" {
			rate = pauseRate
		}
		rates[i] = fmt.Sprintf("%s=%v", kind, rate)
	}
	var servers []*simulated
	for seed := range 3 { // different seeds, so that a row does not get the same faults on all servers
		servers = append(servers, startSimulated(t, "--slots", strconv.Itoa(slots), "--ttft", "2ms", "--per-token", "20us",
			"--seed", strconv.Itoa(seed), "--fault", strings.Join(rates, ",")))
	}
	n := on(t, faultySettings, servers...).start(t)
	began := time.Now()
	id := n.submit(t, submission{
		Inputs: serveBytes(t, csvOf(t, rows)), Model: model, Column: "text", Priority: 1,
		Schema: json.RawMessage(cardSchema), Sampling: map[string]any{"max_tokens": cardTokens},
	})
	job := n.finish(t, id)
	took := time.Since(began).Round(time.Millisecond)
	if job.Status != "succeeded" || job.RowsDone != int64(rows) {
		t.Fatalf("after %v: %+v (%+v)", took, job, job.FailureReason)
	}
	retries := int(n.metric(t, "rowmill_row_retries_total"))
	outputs, inputs := n.results(t, id)
	failed := n.failedRows(t, id)
	for _, s := range servers {
		s.stop(t)
	}
	fates := fatesOf(t, rows, servers)
	if lines := n.linesFrom(t, "INFO"); lines > rows/20 {
		t.Errorf("the node logged %d lines for %d rows: something is logged for each", lines, rows)
	} else {
		t.Logf("the node logged %d lines", lines)
	}

	if len(outputs) != rows || len(inputs) != rows {
		t.Fatalf("%d outputs and %d inputs for %d rows", len(outputs), len(inputs), rows)
	}
	var least, most struct{ input, output int64 } // tokens that the witnesses would bill
	lost, bad, malformed := 0, 0, 0
	for i := range rows {
		f := fates[promptHash(rowText(i))]
		bad, malformed = bad+f.bad, malformed+f.malformed
		code, hasFailed := failed[i]
		switch {
		case inputs[i] != rowText(i):
			t.Fatalf("input %d is %q", i, inputs[i])
		case hasFailed != (outputs[i] == nil):
			t.Fatalf("row %d has the output %s and the failure %q", i, show(outputs[i]), code)
		case hasFailed:
			if len(f.good) > 0 {
				t.Errorf("row %d failed with %q, and was answered well: %+v", i, code, f.good)
			}
			continue
		case len(f.good) == 0:
			t.Fatalf("row %d has the output %s, which no server gave", i, show(outputs[i]))
		}
		lost += len(f.good) - 1
		tokens := tokensOf(*outputs[i])
		low, high := f.good[0], f.good[0]
		found := false
		for _, s := range f.good {
			found = found || s.Output == tokens
			low.Input, high.Input = min(low.Input, s.Input), max(high.Input, s.Input)
			low.Output, high.Output = min(low.Output, s.Output), max(high.Output, s.Output)
		}
		if !found {
			t.Errorf("output %d has %d tokens, its answers had %+v: it is another row's", i, tokens, f.good)
		}
		least.input, least.output = least.input+low.Input, least.output+low.Output
		most.input, most.output = most.input+high.Input, most.output+high.Output
	}
	t.Logf("%d rows in %v: %d failed, %d retries, %d requests answered badly, %d without JSON; %d good answers came too late",
		rows, took, len(failed), retries, bad, malformed, lost)
	if lost > rows/100 {
		t.Errorf("%d good answers were not accepted", lost)
	}
	if int(job.FailedRows) != len(failed) || len(failed) > rows/50 {
		t.Errorf("%d failed rows by the job's record, %d by its list, of %d", job.FailedRows, len(failed), rows)
	}
	if job.InputTokens < least.input || job.InputTokens > most.input || job.OutputTokens < least.output || job.OutputTokens > most.output {
		t.Errorf("the job bills %d and %d tokens, the witnesses %+v to %+v", job.InputTokens, job.OutputTokens, least, most)
	}
	if cost := float64(job.InputTokens)*inputPrice + float64(job.OutputTokens)*outputPrice; math.Abs(job.Cost-cost) > 1e-9 {
		t.Errorf("the job costs %v USD, its tokens %v", job.Cost, cost)
	}
	// A bad answer was retried, unless it was the row's last attempt.
	if charged := retries + len(failed); charged < bad || charged > bad+malformed {
		t.Errorf("%d retries and %d failed rows, for %d bad answers and %d that were no JSON", retries, len(failed), bad, malformed)
	}
}

// fatesOf groups the records of the servers by row.
func fatesOf(t *testing.T, rows int, servers []*simulated) map[string]*fate {
	t.Helper()
	fates := make(map[string]*fate, rows)
	for i := range rows {
		fates[promptHash(rowText(i))] = &fate{}
	}
	kinds, pauses := map[string]int{}, 0
	for _, server := range servers {
		for _, s := range server.sightings(t) {
			f := fates[s.Prompt]
			if f == nil {
				t.Fatalf("a server saw a prompt that is none of the job's: %+v", s)
			}
			kinds[s.Fault]++
			switch {
			case s.good():
				f.good = append(f.good, s)
			case s.Fault == "malformed" && s.Status == http.StatusOK:
				f.malformed++
			case s.Status == http.StatusTooManyRequests, s.Status == http.StatusServiceUnavailable:
				pauses++ // this costs no attempt
			case s.Status != 0 && s.Fault != "truncate": // otherwise the connection broke
				f.bad++
			}
		}
	}
	t.Logf("requests by fault: %v; %d asked for a pause", kinds, pauses)
	if pauses < rows/200 {
		t.Errorf("only %d requests asked for a pause", pauses)
	}
	for _, kind := range []string{"status", "reset", "hang", "truncate", "malformed", "empty", "schema_violation"} {
		if kinds[kind] < rows/50 {
			t.Errorf("only %d requests met the fault %q", kinds[kind], kind)
		}
	}
	return fates
}

// tokensOf counts the tokens of an answer like the simulated server, which splits at
// every character except letters and digits.
func tokensOf(text string) int64 {
	return int64(len(simulatedToken.FindAllString(text, -1)))
}

var simulatedToken = regexp.MustCompile(`(?s) ?[a-zA-Z0-9]{1,12}|.`)

// metric returns the sum of a metric over all labels.
func (n *node) metric(t *testing.T, name string) float64 {
	t.Helper()
	status, page, err := n.send(http.MethodGet, "/metrics", nil)
	if err != nil || status != http.StatusOK {
		t.Fatalf("/metrics answers %d: %v", status, err)
	}
	sum, found := 0.0, false
	for line := range strings.Lines(string(page)) {
		rest, ours := strings.CutPrefix(line, name)
		if !ours || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		fields := strings.Fields(line)
		value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			t.Fatalf("/metrics: %q: %v", line, err)
		}
		sum, found = sum+value, true
	}
	if !found {
		t.Fatalf("/metrics does not know %s", name)
	}
	return sum
}

// failedRows lists the failed rows of a job with their codes.
func (n *node) failedRows(t *testing.T, id string) map[int]string {
	t.Helper()
	failed := map[int]string{}
	path := "/v1/jobs/" + id + "/errors?limit=100"
	for next := path; ; {
		var page struct {
			Errors []struct {
				Row  int    `json:"row"`
				Code string `json:"code"`
			} `json:"errors"`
			Next *string `json:"next_cursor"`
		}
		n.call(t, http.MethodGet, next, nil, &page)
		for _, e := range page.Errors {
			if _, twice := failed[e.Row]; twice {
				t.Fatalf("row %d is listed as failed twice", e.Row)
			}
			failed[e.Row] = e.Code
		}
		if page.Next == nil {
			return failed
		}
		next = path + "&cursor=" + *page.Next
	}
}
