package dispatch

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
)

func testClassifier(t *testing.T, spec rowmill.Spec) *Classifier {
	t.Helper()
	if spec.Model.Kind == "" {
		spec.Model.Kind = rowmill.KindGeneration
	}
	j := must.Get(NewClassifier(&spec, 3))(t)
	return j
}

const objectSchema = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`

func TestClassifierValidatesStructuredOutput(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(objectSchema)
	choice := map[string]any{"structured_outputs": map[string]any{"choice": []any{"yes", "no"}}}
	decided := map[string]any{"structured_outputs": choice["structured_outputs"], "seed": int64(7)}
	for _, c := range []struct {
		name    string
		spec    rowmill.Spec
		reply   engine.Reply
		attempt int
		outcome Outcome
		code    string
	}{
		{"conforming", rowmill.Spec{Schema: schema}, engine.Reply{Content: ` {"n": 1} `, Finish: "stop"}, 1, Final, ""},
		{"conforming though cut", rowmill.Spec{Schema: schema}, engine.Reply{Content: `{"n": 1}`, Finish: "length"}, 1, Final, ""},
		{"wrong type, tried again", rowmill.Spec{Schema: schema}, engine.Reply{Content: `{"n": "1"}`, Finish: "stop"}, 1, Again, rowmill.RowSchemaViolation},
		{"wrong type, last attempt", rowmill.Spec{Schema: schema}, engine.Reply{Content: `{"n": "1"}`, Finish: "stop"}, 3, Final, rowmill.RowSchemaViolation},
		{"wrong type, deterministic by temperature", rowmill.Spec{Schema: schema, Sampling: map[string]any{"temperature": 0.0}}, engine.Reply{Content: `{}`, Finish: "stop"}, 1, Final, rowmill.RowSchemaViolation},
		{"wrong type, deterministic by seed", rowmill.Spec{Schema: schema, Sampling: map[string]any{"seed": int64(7)}}, engine.Reply{Content: `{}`, Finish: "stop"}, 1, Final, rowmill.RowSchemaViolation},
		{"cut off", rowmill.Spec{Schema: schema}, engine.Reply{Content: `{"n": `, Finish: "length"}, 1, Final, rowmill.RowOutputTruncated},
		{"cut off before it began", rowmill.Spec{Schema: schema}, engine.Reply{Content: " ", Finish: "length"}, 1, Final, rowmill.RowOutputTruncated},
		{"cut off in white space", rowmill.Spec{Schema: schema}, engine.Reply{Content: `{"n" ` + strings.Repeat(" \n", 100), Finish: "length"}, 1, Final, rowmill.RowOutputTruncated},
		{"a server without schemas, cut off", rowmill.Spec{Schema: schema}, engine.Reply{Content: "Well, the number is", Finish: "length"}, 1, Again, rowmill.RowSchemaViolation},
		{"a server without schemas, last attempt", rowmill.Spec{Schema: schema}, engine.Reply{Content: "Well, the number is", Finish: "length"}, 3, Final, rowmill.RowSchemaViolation},
		{"another value, cut off", rowmill.Spec{Schema: schema}, engine.Reply{Content: `{"m": 1}`, Finish: "length"}, 3, Final, rowmill.RowSchemaViolation},
		{"no schema", rowmill.Spec{}, engine.Reply{Content: `{"n": `, Finish: "length"}, 1, Final, ""},
		{"a choice", rowmill.Spec{Sampling: choice}, engine.Reply{Content: "no", Finish: "stop"}, 1, Final, ""},
		{"no choice, tried again", rowmill.Spec{Sampling: choice}, engine.Reply{Content: "maybe", Finish: "stop"}, 1, Again, rowmill.RowSchemaViolation},
		{"no choice, last attempt", rowmill.Spec{Sampling: choice}, engine.Reply{Content: "maybe", Finish: "stop"}, 3, Final, rowmill.RowSchemaViolation},
		{"no choice, deterministic", rowmill.Spec{Sampling: decided}, engine.Reply{Content: "maybe", Finish: "stop"}, 1, Final, rowmill.RowSchemaViolation},
		{"a choice, cut off", rowmill.Spec{Sampling: choice}, engine.Reply{Content: "ye", Finish: "length"}, 1, Final, rowmill.RowOutputTruncated},
		{"a choice, reasoned", rowmill.Spec{Sampling: choice, Model: rowmill.Model{Kind: rowmill.KindReasoning}}, engine.Reply{Reasoning: "yes?", Content: "no", Finish: "stop"}, 1, Final, ""},
		{"reasoning: only the content counts", rowmill.Spec{Schema: schema, Model: rowmill.Model{Kind: rowmill.KindReasoning}}, engine.Reply{Reasoning: "hm", Content: `{"n": 2}`, Finish: "stop"}, 1, Final, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, v := testClassifier(t, c.spec).classifyReply(t.Context(), &c.reply, c.attempt)
			if v != c.outcome {
				t.Fatalf("outcome = %v, want %v", v, c.outcome)
			}
			if c.code == "" && out.Failed() || c.code != "" && (out.Err == nil || out.Err.Code != c.code) {
				t.Errorf("error = %+v, want code %q", out.Err, c.code)
			}
			if out.Failed() && out.Err.Raw != c.reply.Content {
				t.Errorf("raw output = %q, want the answer that was refused", out.Err.Raw)
			}
		})
	}
}

// The message says where an answer stops being JSON, so that NaN and the like do not
// look like a server without schemas. The first row is the case json-nan-message.
func TestClassifierSaysWhereAnAnswerIsNoJSON(t *testing.T) {
	t.Parallel()
	spec := rowmill.Spec{Schema: json.RawMessage(objectSchema)}
	for answer, says := range map[string]string{
		`{"n":NaN}`:                 "not JSON: unexpected character 'N' at byte 6.",
		`{"n":[1,Infinity]}`:        "not JSON: unexpected character 'I' at byte 9.", // sgl-project/sglang 5984
		`{"n":1} That is all.`:      "not JSON: unexpected character 'T' at byte 9.", // nanobrowser/nanobrowser 325
		`{'n': 1}`:                  "not JSON: unexpected character '\\'' at byte 2.",
		"```json\n{\"n\":1}\n```":   "from its beginning on",      // vectorize-io/hindsight 1986
		`Sure, here is it: {"n":1}`: "from its beginning on",      // vectorize-io/hindsight 1986
		`<think>one</think>{"n":1}`: "from its beginning on",      // admonstrator/zettelrobbe 74
		`{"n":1,"m":"<think>"`:      "does not match json_schema", // truncated: probelabs/probe 439
	} {
		out, _ := testClassifier(t, spec).classifyReply(t.Context(), &engine.Reply{Content: answer, Finish: rowmill.FinishStop}, 3)
		if out.Err == nil || !strings.Contains(out.Err.Message, says) {
			t.Errorf("%s: %+v, want %q", answer, out.Err, says)
		}
	}
}

func TestClassifierClassesOfError(t *testing.T) {
	t.Parallel()
	j := testClassifier(t, rowmill.Spec{})
	j.maxAttempts = 5
	for _, c := range []struct {
		err     engine.Error
		attempt int
		crashes int // number of attempts with status 500
		outcome Outcome
		code    string
	}{
		{engine.Error{Class: engine.RowFault}, 1, 0, Final, rowmill.RowRejected},
		{engine.Error{Class: engine.RowFault, TooLong: true}, 1, 0, Final, rowmill.RowTooLong},
		{engine.Error{Class: engine.Transient}, 1, 0, Again, ""},
		{engine.Error{Class: engine.Transient}, 5, 0, Final, rowmill.RowAttemptsUsedUp},
		{engine.Error{Class: engine.Transient, Status: 500}, 2, 2, Again, ""},
		{engine.Error{Class: engine.Transient, Status: 500}, 3, 3, Final, rowmill.RowAttemptsUsedUp},
		{engine.Error{Class: engine.Transient, Status: 500}, 3, 1, Again, ""},
	} {
		out, v := j.classifyError(&c.err, c.attempt, c.crashes)
		if v != c.outcome || (c.code != "") != out.Failed() || out.Failed() && out.Err.Code != c.code {
			t.Errorf("%+v on attempt %d: %v %+v, want %v %q", c.err, c.attempt, v, out.Err, c.outcome, c.code)
		}
	}
}

func TestReasoningOutputIsOneJSONObject(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		reasoning, content := rapid.String().Draw(t, "reasoning"), rapid.String().Draw(t, "content")
		var got map[string]string
		text := reasoningText(reasoning, content)
		must.Succeed(t, json.Unmarshal([]byte(text), &got))
		if len(got) != 2 || got["reasoning_content"] != strings.ToValidUTF8(reasoning, "\uFFFD") || got["content"] != strings.ToValidUTF8(content, "\uFFFD") {
			t.Fatalf("%q → %v", text, got)
		}
	})
}

func TestScoreIsTheGeometricMeanInPercent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sum  float64
		n    int64
		want float64
	}{{0, 1, 100}, {math.Log(0.5), 1, 50}, {3 * math.Log(0.25), 3, 25}, {-9999, 1, 0}, {1e-9, 1, 100}} {
		if got := score(c.sum, c.n); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("score(%g, %d) = %g, want %g", c.sum, c.n, got, c.want)
		}
	}
}

func TestRowSeedsRepeatAndDiffer(t *testing.T) {
	t.Parallel()
	seen := make(map[int64]bool)
	for row := range int64(10_000) {
		s := rowSeed(42, row, 0)
		if s < 0 || s > math.MaxInt32 {
			t.Fatalf("seed %d is out of range", s)
		}
		seen[s] = true
	}
	if len(seen) < 9_990 {
		t.Errorf("%d different seeds of 10,000 rows", len(seen))
	}
	if again := rowSeed(42, 7, 0); again != rowSeed(42, 7, 0) || rowSeed(42, 7, 0) == rowSeed(42, 7, 1) || rowSeed(42, 7, 0) == rowSeed(43, 7, 0) {
		t.Error("a seed must depend on job, row and attempt, and on nothing else")
	}
}

// Answers with text around their JSON are repaired if the job asks for this, and the
// attempt log says so.
func TestQueue_RepairsAnswers(t *testing.T) {
	t.Parallel()
	const fenced = "Sure!\n```json\n{\"a\": 1}\n```"
	for name, test := range map[string]struct {
		repair bool
		answer string
		finish rowmill.FinishReason
		want   string // empty: the row fails
		marked bool
	}{
		"asked for":       {true, fenced, rowmill.FinishStop, `{"a": 1}`, true},
		"not asked for":   {false, fenced, rowmill.FinishStop, "", false},
		"nothing to do":   {true, `{"a":1}`, rowmill.FinishStop, `{"a":1}`, false},
		"cut off":         {true, fenced, rowmill.FinishLength, "", false},
		"no JSON inside":  {true, "Sure!", rowmill.FinishStop, "", false},
		"of another form": {true, `Sure! {"a":"x"}`, rowmill.FinishStop, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, &scripted{answer: func(context.Context, engine.Row) (engine.Reply, error) {
					return engine.Reply{Content: test.answer, Finish: test.finish}, nil
				}}, func(j *Job) {
					j.Spec.Schema, j.Spec.Repair = json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}`), test.repair
					j.Spec.Sampling = map[string]any{"temperature": 0.0}
				})
				row := b.once(tasks(1, 1)[0])
				if row.Out.Text != test.want || row.Out.Failed() != (test.want == "") {
					t.Errorf("output %q, error %+v; want %q", row.Out.Text, row.Out.Err, test.want)
				}
				if row.Out.Failed() && row.Out.Err.Raw != test.answer {
					t.Errorf("the raw output is %q", row.Out.Err.Raw)
				}
				marked := row.Out.Tries != nil && row.Out.Tries.Attempts[0].Code == rowmill.RowRepaired
				warned := slices.ContainsFunc(b.queue.Warnings(), func(w string) bool { return strings.HasPrefix(w, "repair: ") })
				if marked != test.marked || warned != test.marked {
					t.Errorf("the row is marked: %v, the job is warned: %v, want %v", marked, warned, test.marked)
				}
			})
		})
	}
}
