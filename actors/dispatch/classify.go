package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/schema"
)

// maxRaw is the number of bytes of a rejected answer that are stored with the row.
const maxRaw = 64 << 10

// A Classifier turns the replies of an engine into outputs. It decides whether an
// answer is accepted, the row is retried, or the row has failed. It does not change
// after NewClassifier, so all rows of a job share it.
type Classifier struct {
	kind          rowmill.Kind
	schema        *schema.Schema     // json_schema of the job; nil if the job has none
	form          *schema.Constraint // structured_outputs of the job; nil if the job has none
	repair        bool               // take JSON out of an answer that has other text around it
	deterministic bool               // another attempt at a row would get the same answer
	maxAttempts   int
}

// NewClassifier returns the Classifier of a job that tries each row at most maxAttempts
// times. The error describes a fault of the schema or of the structured_outputs of the
// job.
func NewClassifier(spec *rowmill.Spec, maxAttempts int) (*Classifier, error) {
	c := &Classifier{kind: spec.Model.Kind, repair: spec.Repair, deterministic: spec.IsDeterministic(), maxAttempts: maxAttempts}
	var err error
	if rule := spec.StructuredOutputs(); rule != nil {
		if c.form, err = schema.CompileConstraint(rule); err != nil {
			return nil, fmt.Errorf("sampling_params.structured_outputs %w", err)
		}
	}
	if len(spec.Schema) == 0 {
		return c, nil
	}
	if c.schema, err = schema.Compile(spec.Schema); err != nil {
		return nil, fmt.Errorf("json_schema %w", err)
	}
	return c, nil
}

// maxRetriesOf500 is the number of retries of a row that the server answers with status
// 500. After two retries the row is probably the cause.
const maxRetriesOf500 = 2

// An Outcome says what happens to a row after an attempt.
type Outcome uint8

// The outcomes of an attempt.
const (
	Final      Outcome = iota // the output is final: an answer, or an error of the row
	Again                     // the row is tried again after a pause
	NotCounted                // the row is tried again, if possible elsewhere; the attempt does not count
)

// classifyReply checks a reply. attempt is the number of the attempt, from 1. If the outcome
// is Again, the output has the reason why the answer was rejected. If classifyReply repairs
// the answer, it sets r.Content to the JSON that it found in the text.
func (c *Classifier) classifyReply(ctx context.Context, r *engine.Reply, attempt int) (rowmill.RowOutput, Outcome) {
	out := rowmill.RowOutput{
		Finish: r.Finish, InputTokens: r.InputTokens, OutputTokens: r.OutputTokens, Attempts: attempt,
	}
	if c.kind == rowmill.KindEmbedding {
		out.Embedding = r.Embedding
		return out, Final
	}
	if c.schema != nil {
		problem := c.schema.Violation(ctx, r.Content)
		if problem != "" && c.repair && r.Finish != rowmill.FinishLength {
			found, ok := schema.FindJSON(r.Content, func(text string) bool { return c.schema.Violation(ctx, text) == "" })
			if ok {
				r.Content, problem = found, ""
			}
		}
		switch {
		case ctx.Err() != nil:
			return rowmill.RowOutput{}, NotCounted
		case problem != "":
			return c.reject(r, attempt, problem)
		}
	}
	if c.form != nil {
		if problem := c.form.Violation(r.Content); problem != "" {
			return c.rejectForm(r, attempt, problem)
		}
	}
	if r.LogprobCount > 0 {
		out.Score, out.HasScore = score(r.LogprobSum, r.LogprobCount), true
	}
	out.Text = r.Content
	if c.kind == rowmill.KindReasoning {
		out.Text = reasoningText(r.Reasoning, r.Content)
	}
	return out, Final
}

// classifyError returns the outcome of an attempt that the server refused with the error e.
// crashes is the number of answers with status 500 to this row, including this answer.
// Queue.handleFault handles lost connections and servers that are down.
func (c *Classifier) classifyError(e *engine.Error, attempt, crashes int) (rowmill.RowOutput, Outcome) {
	switch {
	case c.kind == rowmill.KindRaw && e.Class == engine.RowFault && e.Status >= 400:
		return failedOutput(rowmill.RowHTTP+strconv.Itoa(e.Status), e.Message, e.Raw, attempt), Final
	case e.Class == engine.RowFault && e.TooLong:
		return failedOutput(rowmill.RowTooLong, e.Message, e.Raw, attempt), Final
	case e.Class == engine.RowFault && (e.Code == rowmill.RowRefused || e.Code == rowmill.RowContentFiltered):
		return failedOutput(e.Code, e.Message, e.Raw, attempt), Final
	case e.Class == engine.RowFault:
		return failedOutput(rowmill.RowRejected, e.Message, e.Raw, attempt), Final
	case attempt < c.maxAttempts && (e.Status != 500 || crashes <= maxRetriesOf500):
		return rowmill.RowOutput{}, Again
	case c.kind == rowmill.KindRaw && e.Status >= 400: // the last response is the answer of a raw request
		return failedOutput(rowmill.RowHTTP+strconv.Itoa(e.Status), e.Message, e.Raw, attempt), Final
	default:
		return failedOutput(rowmill.RowAttemptsUsedUp,
			fmt.Sprintf("No answer after %d attempts; the last one: %s", attempt, e.Error()), e.Raw, attempt), Final
	}
}

// reject returns the error for an answer that breaks the JSON Schema. problem describes
// the violation.
func (c *Classifier) reject(r *engine.Reply, attempt int, problem string) (rowmill.RowOutput, Outcome) {
	begins, complete := beginsJSON(r.Content)
	message := "The answer does not match json_schema: " + problem
	var syntax *json.SyntaxError
	switch err := json.Unmarshal([]byte(r.Content), new(json.RawMessage)); {
	case begins && !complete || !errors.As(err, &syntax): // the text ends too early, or is valid JSON
	case !strings.ContainsAny(strings.TrimSpace(r.Content)[:1], `{["`):
		message = "The answer is not JSON from its beginning on; perhaps the server ignores json_schema"
	default:
		character, _ := utf8.DecodeRuneInString(r.Content[syntax.Offset-1:])
		message = fmt.Sprintf("The answer is not JSON: unexpected character %q at byte %d.", character, syntax.Offset)
	}
	if r.Finish == rowmill.FinishLength && begins && !complete {
		return failedOutput(rowmill.RowOutputTruncated,
			"The answer was cut off by the length limit before its JSON was complete. Raise max_tokens or ask for less.", r.Content, attempt), Final
	}
	return failedOutput(rowmill.RowSchemaViolation, message, r.Content, attempt), c.violationOutcome(attempt)
}

// rejectForm returns the error for an answer that breaks structured_outputs. problem
// describes the violation.
func (c *Classifier) rejectForm(r *engine.Reply, attempt int, problem string) (rowmill.RowOutput, Outcome) {
	if r.Finish == rowmill.FinishLength {
		return failedOutput(rowmill.RowOutputTruncated,
			"The answer was cut off by the length limit before it had the form of structured_outputs. Raise max_tokens or ask for less.", r.Content, attempt), Final
	}
	return failedOutput(rowmill.RowSchemaViolation, "The answer does not have the form of structured_outputs: "+problem, r.Content, attempt), c.violationOutcome(attempt)
}

// violationOutcome returns the outcome of an attempt whose answer has the wrong form.
func (c *Classifier) violationOutcome(attempt int) Outcome {
	if attempt < c.maxAttempts && !c.deterministic {
		return Again
	}
	return Final
}

// beginsJSON reports whether text is JSON or the beginning of JSON, and whether the
// JSON is complete.
func beginsJSON(text string) (begins, complete bool) {
	var value json.RawMessage
	err := json.NewDecoder(strings.NewReader(text)).Decode(&value)
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF), err == nil
}

// failedOutput returns the output of a row with an error. It keeps the first maxRaw bytes of
// raw, the server's answer.
func failedOutput(code, message, raw string, attempts int) rowmill.RowOutput {
	return rowmill.RowOutput{
		Attempts: attempts,
		Err:      &rowmill.RowError{Code: code, Message: message, Raw: strings.ToValidUTF8(raw[:min(len(raw), maxRaw)], "\uFFFD")},
	}
}

// score returns the geometric mean of token probabilities in percent: 100·exp(sum/n).
// sum is the sum of the natural logarithms of n probabilities.
func score(sum float64, n int64) float64 {
	return 100 * math.Exp(min(0, sum/float64(n)))
}

// reasoningText returns the reasoning and the answer of a model as one JSON object.
func reasoningText(reasoning, content string) string {
	var b bytes.Buffer
	b.Grow(len(reasoning) + len(content) + 64)
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(struct { // strings always encode
		Reasoning string `json:"reasoning_content"`
		Content   string `json:"content"`
	}{reasoning, content})
	return strings.TrimSuffix(b.String(), "\n")
}

// rowSeed derives the seed of a row from the seed of its job. A retry gets the same
// seed, unless the caller passes a higher attempt after a schema violation. The mixing
// function is SplitMix64 (Steele et al., 2014).
func rowSeed(job, row int64, attempt int) int64 {
	x := uint64(job) + 0x9E3779B97F4A7C15*uint64(row+1) + uint64(attempt)<<48
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return int64((x ^ x>>31) & 0x7FFFFFFF)
}
