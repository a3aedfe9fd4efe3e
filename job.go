package rowmill

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"
)

// RunType tells a full job from an estimate.
type RunType string

// The run types.
const (
	RunFull     RunType = "FULL"
	RunEstimate RunType = "COST_ESTIMATE"
)

// NewJobID returns a fresh job id, "job-" and a version 7 UUID, so that ids
// sort by the time of their creation.
func NewJobID() string { return "job-" + uuid.Must(uuid.NewV7()).String() }

// IsJobID reports whether NewJobID may have made id.
func IsJobID(id string) bool {
	text, found := strings.CutPrefix(id, "job-")
	return found && uuid.Validate(text) == nil
}

// Job is the public record of a job, exactly as clients see it in
// GET /v1/jobs/{id}. Pointers are null until they are known. Its status is
// changed by Become alone; the stores refuse any other change.
type Job struct {
	ID          string          `json:"job_id"`
	Status      Status          `json:"status"`
	RunType     RunType         `json:"run_type"`
	Model       string          `json:"model"` // id of the Spec's, or name of a Function
	Priority    Priority        `json:"job_priority"`
	Name        *string         `json:"name"`
	Description *string         `json:"description"`
	System      *string         `json:"system_prompt"`
	Schema      json.RawMessage `json:"json_schema"`     // null when none
	Sampling    map[string]any  `json:"sampling_params"` // effective: the caller's over the model's

	Created   time.Time  `json:"datetime_created"`
	Started   *time.Time `json:"datetime_started"`   // when the first row could be sent to an engine
	Completed *time.Time `json:"datetime_completed"` // set with the terminal state

	NumRows      *int64 `json:"num_rows"`      // set once: at creation where the rows were sent with the job, else when they are counted
	InputTokens  *int64 `json:"input_tokens"`  // of committed rows; never falls
	OutputTokens *int64 `json:"output_tokens"` // of committed rows; never falls

	JobCost       *float64 `json:"job_cost"`
	CostEstimate  *float64 `json:"cost_estimate"`
	FailureReason *Failure `json:"failure_reason"`

	// Extra fields, beyond the interface.
	RowCounts
	Warnings []string `json:"warnings"` // what was ignored or changed, for a person
	Message  string   `json:"message"`  // what the job is doing or waiting for now

	Continues   *string `json:"continues"`    // the job whose committed rows this one took over
	ContinuedBy *string `json:"continued_by"` // the last job that took over rows of this one

	KeyID    *string      `json:"key_id"`   // the API key that submitted it; null for the configuration's, and where it was not recorded yet
	Estimate *Estimate    `json:"estimate"` // how CostEstimate came about; estimate jobs only
	Function *FunctionRef `json:"function"` // the revision it runs; null for a standalone model
}

// RowCounts say what has become of a job's rows.
type RowCounts struct {
	RowsDone         int64 `json:"rows_done"`         // committed rows, failed ones included
	FailedRows       int64 `json:"failed_rows"`       // committed rows without an output
	TruncatedRows    int64 `json:"truncated_rows"`    // committed rows whose input was cut to fit the context
	TruncatedOutputs int64 `json:"truncated_outputs"` // answers cut by the length limit
	RowsTakenOver    int64 `json:"rows_taken_over"`   // committed rows that the job in Continues had run; no tokens and no cost of this one
	DeduplicatedRows int64 `json:"deduplicated_rows"` // committed rows that were not run: they have the answer of an equal row before them
}

// EstimateMethod is how a cost was estimated.
type EstimateMethod string

// The methods of estimation.
const (
	EstimateUnsampled EstimateMethod = "unsampled" // from the input alone; no row was run
	EstimateSampled   EstimateMethod = "sampled"   // from the outputs of the first rows, which were run
)

// Estimate is what a job would use, and how that is known. What it would cost
// is the job's CostEstimate.
type Estimate struct {
	Method            EstimateMethod `json:"method"`
	SampleRows        int64          `json:"sample_rows"`         // rows that were run; 0 when unsampled
	SampleInputTokens int64          `json:"sample_input_tokens"` // tokens in of those
	Low               float64        `json:"low"`                 // USD; the cost is hardly less. It and High mean nothing without a price
	High              float64        `json:"high"`                // USD; the cost is hardly more
	InputTokens       int64          `json:"input_tokens"`        // of all rows
	OutputTokens      int64          `json:"output_tokens"`       // of all rows, as estimated
}

// Become moves the job to next, or returns a *TransitionError. It stamps
// Started when the job begins to run and Completed with a terminal
// state.
func (j *Job) Become(next Status, now time.Time) error {
	if !j.Status.CanBecome(next) {
		return &TransitionError{From: j.Status, To: next}
	}
	now = now.UTC()
	if next == StatusRunning && j.Started == nil {
		j.Started = &now
	}
	if next.Terminal() {
		j.Completed = &now
	}
	j.Status = next
	return nil
}

// Spec is a submission after validation: what the job must do. It is stored
// once with the job and never changes.
type Spec struct {
	Account string `json:"account"`
	Model   Model  `json:"model"` // pinned at submission

	// Exactly one of the four is set.
	URL      string        `json:"url,omitempty"`      // where to download the input; may hold a signed query: never log it
	Inline   []string      `json:"inline,omitempty"`   // rows of a small submission (at most 64 KiB in all)
	Spooled  string        `json:"spooled,omitempty"`  // blob key of a larger submission's rows, one JSON string (or object for Function) per line
	Continue *Continuation `json:"continue,omitempty"` // the input is that of another job

	// File is the id of the uploaded file that was copied to what is Spooled; empty
	// for none. What is spooled is then not lines of rows but CSV, Parquet or JSON
	// Lines, as a URL's input is.
	File string `json:"file,omitempty"`

	// Raw says that rows are request bodies; the Model's kind is KindRaw exactly
	// where it is set. What is spooled is then what the client uploaded: lines of its
	// dialect, not checked yet.
	Raw *Raw `json:"raw,omitempty"`

	// Function makes prompts of a URL's or a File's rows and of spooled rows that are JSON
	// objects. Nil for a standalone model, and where all rows are prompts
	// already.
	Function *FunctionRun `json:"function,omitempty"`

	Format   string `json:"format,omitempty"`    // of a URL's input or a File, as input.Format; empty: package input finds it out
	FileName string `json:"file_name,omitempty"` // of a File
	Column   string `json:"column,omitempty"`    // of a URL's input or a File: the column to run; empty is the first
	IDColumn string `json:"id_column,omitempty"` // the same: the column carried into results

	System       string          `json:"system,omitempty"`
	Schema       json.RawMessage `json:"schema,omitempty"`
	Sampling     map[string]any  `json:"sampling"` // effective parameters
	Priority     Priority        `json:"priority"`
	Estimate     bool            `json:"estimate,omitempty"`
	SeedPerRow   bool            `json:"seed_per_row,omitempty"`
	Seed         int64           `json:"seed"` // the job's seed: rows derive theirs from it when SeedPerRow
	TruncateRows bool            `json:"truncate_rows"`
	Repair       bool            `json:"repair,omitempty"` // JSON with words around it is an answer to Schema
	Dedup        bool            `json:"dedup,omitempty"`  // of rows with equal texts the first runs, the others get its answer; never with SeedPerRow or Raw

	// The account's quotas at submission. A row or token quota of 0 bounds
	// nothing.
	RowQuota   int64    `json:"row_quota"`                // rows of this job
	TokenQuota int64    `json:"token_quota"`              // tokens in of this job
	CostQuota  *float64 `json:"cost_quota_usd,omitempty"` // USD of the account in a calendar month, UTC; nil for no limit
}

// Raw is what a batch has that no other job has. A row is a JSON object with the
// members of a request's body but for "model"; its id is the custom_id, a string.
// Output.Text is the body of the server's reply, as it came but on one line.
type Raw struct {
	Dialect string `json:"dialect"` // DialectOpenAI or DialectAnthropic: whose batch it is
	Path    string `json:"path"`    // of the requests, such as "/v1/chat/completions"

	Requests  int64             `json:"requests,omitempty"`   // how many there are, where that was known before they were counted
	InputFile string            `json:"input_file,omitempty"` // id of the file that was named
	Window    string            `json:"window,omitempty"`     // completion_window, as it was sent
	Deadline  *time.Time        `json:"deadline,omitempty"`   // end of the window; rows that have not run then do not
	Metadata  map[string]string `json:"metadata,omitempty"`
	// OutputSeconds is how long the files
	// of the outcome are kept after they were made; 0 for as long as any results.
	OutputSeconds int64 `json:"output_seconds,omitempty"`
}

// The dialects of batches.
const (
	DialectOpenAI    = "openai"
	DialectAnthropic = "anthropic"
)

// A Continuation says whose input a job has, and which rows of it it runs: those
// that the other has not committed. It takes over the rest.
type Continuation struct {
	Job    string `json:"job"`              // id of a job of the same account that is over
	Failed bool   `json:"failed,omitempty"` // those that it has committed with an error run too
}

// Deterministic reports whether repeating a row must give the same answer, so
// that a second attempt after a schema violation is pointless: the caller
// fixed a seed, or sampling is greedy.
func (s *Spec) Deterministic() bool {
	if _, fixed := s.Sampling["seed"]; fixed {
		return true
	}
	t, given := number(s.Sampling["temperature"])
	return given && t == 0
}

// MaxTokens returns the longest answer asked for, tokens; 0 when nothing says.
func (s *Spec) MaxTokens() int64 {
	n, _ := number(s.Sampling["max_tokens"])
	return int64(n)
}

// WantsLogprobs reports whether answers come with log probabilities: they do,
// unless the catalog or the caller does without.
func (s *Spec) WantsLogprobs() bool {
	return s.Model.Kind != KindEmbedding && s.Model.Kind != KindRaw && !s.Model.NoLogprobs && s.Sampling["logprobs"] != false
}

// Form is what answers are bound to otherwise than by a JSON Schema: a regex, a
// choice or a grammar, under its name; nil for nothing.
func (s *Spec) Form() map[string]any {
	rule, _ := s.Sampling["structured_outputs"].(map[string]any)
	return rule
}

// PromptLimit is how many tokens a prompt may have in a context of so many, so
// that prompt and answer stay below it; at least 1, and 0 for no limit where the
// context is 0, unknown, and for requests that are sent as they are.
func (s *Spec) PromptLimit(context int) int {
	if context == 0 || s.Raw != nil {
		return 0
	}
	return max(1, context-s.AnswerReserve(context)-1)
}

// AnswerReserve is how many tokens of a context the answer may take. Without
// max_tokens it is mostAnswer, or a quarter of a small context.
func (s *Spec) AnswerReserve(context int) int {
	if s.Model.Kind == KindEmbedding {
		return 0
	}
	if n := s.MaxTokens(); n > 0 {
		return int(n)
	}
	if context == 0 { // nobody says
		return mostAnswer
	}
	return min(mostAnswer, context/4)
}

const mostAnswer = 4096

// number reads a sampling parameter, which is an int64 or float64 before it is
// stored and a json.Number after.
func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	}
	return 0, false
}
