package rowmill

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// RunType distinguishes full jobs from cost estimates.
type RunType string

// The run types.
const (
	RunFull     RunType = "FULL"
	RunEstimate RunType = "COST_ESTIMATE"
)

// NewJobID returns a new job id: "job-" and a version 7 UUID, so that ids sort by time
// of creation.
func NewJobID() string { return "job-" + uuid.Must(uuid.NewV7()).String() }

// IsJobID reports whether id has the form that NewJobID returns.
func IsJobID(id string) bool {
	text, found := strings.CutPrefix(id, "job-")
	return found && uuid.Validate(text) == nil
}

// Job is the public record of a job, as clients see it in GET /v1/jobs/{id}. Pointers
// are null until their values are known. Only Become changes the status; the stores
// refuse any other change.
type Job struct {
	ID       string   `json:"job_id"`
	Status   Status   `json:"status"`
	RunType  RunType  `json:"run_type"`
	Model    string   `json:"model"` // id of the Spec's model, or name of the Function
	Priority Priority `json:"job_priority"`
	Labels
	Instructions
	JobTimes
	NumRows *int64 `json:"num_rows"` // set once: at creation for rows sent with the job, otherwise after counting
	RowChoice
	Truncate *bool `json:"truncate_rows,omitempty"` // false if a row that is too long fails the job; nil if such rows are cut
	InputColumns
	InputRows *int64 `json:"input_rows,omitempty"` // rows of the whole input, set with NumRows; only with a limit
	JobUsage
	FailureReason *Failure `json:"failure_reason"`

	// The fields from here on are additions of Rowmill: existing clients of the
	// interface do not know them.
	RowCounts
	Warnings []string `json:"warnings"` // ignored or changed settings, in words
	Message  string   `json:"message"`  // text for people: what the job does now, or why it waits

	// ParkedUntil is set while the job is parked: no node runs the job before this time,
	// because the job may crash the nodes that run it.
	ParkedUntil *time.Time `json:"parked_until,omitempty"`

	// Paused means that no node runs the job until a client lets the job continue. The owner
	// stops some time after a client has paused the job.
	Paused bool `json:"paused,omitempty"`

	Lineage
	JobDeadline
	KeyID    *string      `json:"key_id"`   // API key of the submission; null for the configuration's key and in older records
	Estimate *Estimate    `json:"estimate"` // basis of CostEstimate; estimate jobs only
	Function *FunctionRef `json:"function"` // the revision that the job runs; null for a standalone model
}

// Instructions say what a model does with each row of a job.
type Instructions struct {
	System   *string         `json:"system_prompt"`
	Prompt   *string         `json:"prompt"`          // text with {{column}} that makes the prompt of each row; null if rows are prompts, and for a Function
	Schema   json.RawMessage `json:"json_schema"`     // JSON Schema of the answers; null for none
	Sampling map[string]any  `json:"sampling_params"` // effective values: the caller's override the model's defaults
}

// InputColumns names the columns of the input that a job uses.
type InputColumns struct {
	Column   string   `json:"column_name,omitempty"`    // column to run; empty: the first, or a prompt names columns
	IDColumn string   `json:"id_column_name,omitempty"` // column with the IDs of the rows; empty for none
	Keep     []string `json:"keep_columns,omitempty"`   // columns of the input that results can repeat; KeepAll means all
}

// JobDeadline holds the deadline of a job.
type JobDeadline struct {
	Deadline *time.Time `json:"deadline,omitempty"` // time by which the client wants the job to end; nil for none
	Forecast *Forecast  `json:"forecast,omitempty"` // whether the job meets Deadline; nil if no forecast was possible
}

// JobTimes holds the times of a job.
type JobTimes struct {
	Created   time.Time  `json:"datetime_created"`
	Started   *time.Time `json:"datetime_started"`   // when the first row could be sent to an engine
	Completed *time.Time `json:"datetime_completed"` // when the job reached its terminal state
}

// Lineage holds the IDs of the jobs before and after a job.
type Lineage struct {
	Input       string   `json:"input,omitempty"`      // where the rows came from: a URL without its possible secrets, the name of a file, or files of a source; empty for rows in the request
	InputFile   string   `json:"input_file,omitempty"` // id of the uploaded file; empty for other inputs
	InputOf     *string  `json:"input_of"`             // this job reads the stored input of that job
	AnswersOf   *string  `json:"answers_of,omitempty"` // this job reads the answers of that job, too
	Where       string   `json:"where,omitempty"`      // which of these answers, see AnswerChoice
	Output      string   `json:"output,omitempty"`     // folder of a source to which this job writes its results, as NAME:FOLDER/
	Reuse       *Reuse   `json:"reuse,omitempty"`      // this job takes over equal rows of those jobs
	Set         []string `json:"set,omitempty"`        // ids of all jobs that POST /v1/sets created together, in order; empty for other jobs
	Continues   *string  `json:"continues"`            // the ended job from which this job takes over committed rows
	ContinuedBy *string  `json:"continued_by"`         // the newest job that takes over rows from this job
}

// MaxNameRunes is the longest name of a job, in Unicode code points.
const MaxNameRunes = 45

// Labels holds texts for people that a client can give a job.
type Labels struct {
	Name        *string `json:"name"`
	Description *string `json:"description"`
}

// A Label is one of the texts of Labels.
type Label struct {
	Field    string   // name of the field in the API
	Text     **string // points to nil if the client gave no text
	MaxRunes int      // limit of the text, in Unicode code points
}

// ListLabels returns all labels in the order of the API.
func (l *Labels) ListLabels() []Label {
	return []Label{{"name", &l.Name, MaxNameRunes}, {"description", &l.Description, 512}}
}

// RowChoice says which rows of its input a job runs. The zero RowChoice means all rows.
type RowChoice struct {
	Limit  int64  `json:"limit,omitempty"`  // maximum number of rows; 0: all rows
	Sample Sample `json:"sample,omitempty"` // how the rows are chosen; empty without a limit
}

// HasOtherRows reports whether the limit of a job left out rows of its input. It is false
// while the number of rows is not known.
func (j *Job) HasOtherRows() bool {
	return j.InputRows != nil && j.NumRows != nil && *j.InputRows > *j.NumRows
}

// Sample is a way to choose rows of an input.
type Sample string

// The samples. The chosen rows keep the order of the input.
const (
	SampleFirst  Sample = "first"
	SampleRandom Sample = "random" // the seed of the job decides which rows
)

// JobUsage holds the tokens, the cost and the servers of a job.
type JobUsage struct {
	InputTokens  *int64   `json:"input_tokens"`      // input tokens of committed rows; never decreases
	OutputTokens *int64   `json:"output_tokens"`     // output tokens of committed rows; never decreases
	JobCost      *float64 `json:"job_cost"`          // USD
	CostEstimate *float64 `json:"cost_estimate"`     // USD; estimate jobs only
	Servers      []string `json:"servers,omitempty"` // descriptions of the servers that ran rows, see engine.ServerInfo.Describe
}

// RowCounts counts a job's rows by outcome.
type RowCounts struct {
	RowsDone         int64 `json:"rows_done"`         // committed rows, with and without an output
	FailedRows       int64 `json:"failed_rows"`       // committed rows without an output
	TruncatedRows    int64 `json:"truncated_rows"`    // committed rows whose input was cut to fit the context
	TruncatedOutputs int64 `json:"truncated_outputs"` // committed rows whose answer was cut by the length limit
	RowsTakenOver    int64 `json:"rows_taken_over"`   // committed rows that the job in Continues or the jobs in Reuse ran; not in the tokens and cost of this job
	DeduplicatedRows int64 `json:"deduplicated_rows"` // committed rows with the answer of an equal earlier row; they were not run
}

// EstimateMethod is the way in which a cost was estimated.
type EstimateMethod string

// Estimation methods.
const (
	EstimateUnsampled EstimateMethod = "unsampled" // from the input alone; no row was run
	EstimateSampled   EstimateMethod = "sampled"   // from the answers to a sample of the rows
)

// Estimate is the estimated usage of a job, and the basis of the estimate. The
// estimated cost is in Job.CostEstimate.
type Estimate struct {
	Method            EstimateMethod `json:"method"`
	SampleRows        int64          `json:"sample_rows"`         // rows that were run; 0 when unsampled
	SampleInputTokens int64          `json:"sample_input_tokens"` // input tokens of the rows that were run
	Low               float64        `json:"low"`                 // USD; the cost is between Low and High with a probability of 80 % after a sample; ignore both if the model has no price
	High              float64        `json:"high"`                // USD
	InputTokens       int64          `json:"input_tokens"`        // input tokens of all rows
	OutputTokens      int64          `json:"output_tokens"`       // estimated output tokens of all rows

	// The time of a job that starts now. It is between low and high with a probability of
	// 80 %. All are null without a sample, and for embeddings.
	Seconds     *float64 `json:"seconds"`
	SecondsLow  *float64 `json:"seconds_low"`
	SecondsHigh *float64 `json:"seconds_high"`
}

// Become changes the status to next, or returns a *TransitionError. It sets Started
// when the job begins to run, and Completed in a terminal state.
func (j *Job) Become(next Status, now time.Time) error {
	if !j.Status.CanBecome(next) {
		return &TransitionError{From: j.Status, To: next}
	}
	now = now.UTC()
	if next == StatusRunning && j.Started == nil {
		j.Started = &now
	}
	if next.IsTerminal() {
		j.Completed, j.ParkedUntil, j.Paused = &now, nil, false
	}
	j.Status = next
	return nil
}

// ShownStatus returns StatusPaused for a paused job, else its status.
func (j *Job) ShownStatus() Status {
	if j.Paused {
		return StatusPaused
	}
	return j.Status
}

// Spec is a validated submission. It is stored once with the job. Only a new priority changes
// it: Priority, RowQuota and TokenQuota.
type Spec struct {
	Account string `json:"account"`
	Model   Model  `json:"model"` // the model with its settings at the time of submission

	// Exactly one of these six is set.
	URL      string        `json:"url,omitempty"`      // where to download the input; may contain a signature: never log it
	Inline   []string      `json:"inline,omitempty"`   // rows of a small submission (at most 64 KiB in all)
	Spooled  string        `json:"spooled,omitempty"`  // blob key of the rows of a larger submission, one JSON string (or object for Function) per line
	Continue *Continuation `json:"continue,omitempty"` // take the input from another job
	FromJob  string        `json:"from_job,omitempty"` // read the stored input of the job with this id; no rows are taken over
	Source   string        `json:"source,omitempty"`   // files of a source that the operator named, NAME:PATTERN

	AnswerChoice

	// Sink is the folder for the results; nil for none.
	Sink *Sink `json:"sink,omitempty"`

	// Reuse takes over rows of finished jobs; nil for none. Their specifications give the same
	// answers, see AnswerDifference.
	Reuse *Reuse `json:"reuse,omitempty"`

	InputFile

	// Raw is set if rows are request bodies; Model.Kind is then KindRaw. Spooled then
	// holds the client's upload: lines in the format of its dialect, not checked yet.
	Raw *RawBatch `json:"raw,omitempty"`

	// Function makes prompts from the rows of a URL or a File, and from spooled rows
	// that are JSON objects: the prompt of a Function or of the submission. It is nil if
	// all rows are prompts already.
	Function *FunctionPrompt `json:"function,omitempty"`

	ColumnChoice
	RowChoice
	Messages bool `json:"messages,omitempty"` // rows are chats: JSON lists of messages with role and content

	System   string          `json:"system,omitempty"`
	Schema   json.RawMessage `json:"schema,omitempty"`
	Sampling map[string]any  `json:"sampling"` // effective parameters
	Priority Priority        `json:"priority"`
	Estimate bool            `json:"estimate,omitempty"`
	Seeds
	RowRules
	JobQuotas
}

// InputFile describes the file that a job reads: an uploaded file, or the file of a URL.
type InputFile struct {
	// File is the id of an uploaded file that was copied to Spooled; empty for none.
	// Spooled then holds CSV, Parquet or JSON Lines in place of lines of rows, as the
	// input of a URL does.
	File     string `json:"file,omitempty"`
	FileName string `json:"file_name,omitempty"` // name of the File
	Format   string `json:"format,omitempty"`    // format of a URL's input or a File, as input.Format; empty: package input detects it
}

// RowRules are exceptions in how rows run.
type RowRules struct {
	TruncateRows bool `json:"truncate_rows"`    // cut rows that are too long
	Repair       bool `json:"repair,omitempty"` // accept JSON with text around it as an answer to Schema
	Dedup        bool `json:"dedup,omitempty"`  // run only the first of equal rows, the others get its answer; never with SeedPerRow or Raw
}

// AnswerChoice says whether the job also reads the answers of the job FromJob.
type AnswerChoice struct {
	FromAnswers bool   `json:"from_answers,omitempty"` // read the rows that have an answer, and give the answers to the prompt
	Where       string `json:"where,omitempty"`        // read only the rows with a matching answer, see input.ParseCondition; only with FromAnswers
}

// Sink says where a job writes its results, in addition to its own result files.
type Sink struct {
	Folder string `json:"folder"`         // NAME:FOLDER/, see package sources
	Base   string `json:"base,omitempty"` // folder of the input files; their results are at the same paths below it
}

// Reuse says which rows of finished jobs a job takes over.
type Reuse struct {
	From string   `json:"from"` // as the client sent it: the id of a job, which also means the other jobs of its set, or the name of jobs
	By   ReuseBy  `json:"by"`
	Jobs []string `json:"jobs"` // ids of the jobs, newest first, at most MaxReuseJobs
}

// MaxReuseJobs is the largest number of finished jobs from which one job takes over rows. Their ids
// are in the job's record, and each has an open file.
const MaxReuseJobs = 100

// ReuseBy is the part of a row that must be equal in a row to take over.
type ReuseBy string

// The parts of rows.
const (
	ReuseByText ReuseBy = "text" // the prompt, as the model gets it
	ReuseByID   ReuseBy = "id"   // the value of the ID column; the prompt may differ
)

// AnswerDifference returns the field of the API in which two specifications differ, so that equal rows
// can get different answers. It returns an empty text if no field differs.
func (s *Spec) AnswerDifference(other *Spec) (field string) {
	kind := func(s *Spec) any { return []any{s.Model.ID, s.Model.Kind, s.Model.Dimension, s.Model.EngineNames} }
	for _, f := range []struct {
		name string
		of   func(*Spec) any
	}{
		{"model", kind},
		{"system_prompt", func(s *Spec) any { return s.System }},
		{"json_schema", func(s *Spec) any { return s.Schema }},
		{"sampling_params", func(s *Spec) any { return s.Sampling }},
		{"random_seed_per_input", func(s *Spec) any { return s.SeedPerRow }},
		{"messages", func(s *Spec) any { return s.Messages }},
		{"truncate_rows", func(s *Spec) any { return s.TruncateRows }},
		{"repair", func(s *Spec) any { return s.Repair }},
		{"inputs", func(s *Spec) any { return s.Raw != nil }},
	} {
		a, errA := json.Marshal(f.of(s))
		b, errB := json.Marshal(f.of(other))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			return f.name
		}
	}
	return ""
}

// HasOwnColumn reports whether the stored rows of the job have a column with this name that came
// with its input, and not from the answers of another job. In a job that reads the answers of this
// job, the name means the column, even if it is "answer".
func (s *Spec) HasOwnColumn(name string) bool {
	return !s.FromAnswers && s.Function != nil && slices.ContainsFunc(s.Function.Inputs, func(in FunctionInput) bool { return in.Name == name })
}

// ColumnChoice names columns of the input and of the results.
type ColumnChoice struct {
	Column   string   `json:"column,omitempty"`    // column to run, of a URL's input or a File; empty: the first
	Keep     []string `json:"keep,omitempty"`      // columns of the input that results can repeat; KeepAll means all
	IDColumn string   `json:"id_column,omitempty"` // column of a URL's input or a File that is copied to the results
	Output   string   `json:"output,omitempty"`    // name of the output column in the results; empty: the job's ID
}

// JobQuotas holds the account's quotas at the submission of a job. A row or token quota of 0
// means no limit.
type JobQuotas struct {
	RowQuota   int64    `json:"row_quota"`                // rows of this job
	TokenQuota int64    `json:"token_quota"`              // input tokens of this job
	CostQuota  *float64 `json:"cost_quota_usd,omitempty"` // USD per account and calendar month, UTC; nil for no limit
}

// KeepAll is the only element of Spec.Keep if all columns of the input are kept.
const KeepAll = "*"

// KeptColumns returns the names of the columns of the input that results can repeat; nil if
// all of them.
func (s *Spec) KeptColumns() []string {
	if slices.Equal(s.Keep, []string{KeepAll}) {
		return nil
	}
	return s.Keep
}

// Seeds says which seeds the rows of a job run with.
type Seeds struct {
	SeedPerRow bool  `json:"seed_per_row,omitempty"`
	Seed       int64 `json:"seed"` // the job's seed; with SeedPerRow each row derives its seed from it
}

// RawBatch holds the settings of a batch, a job whose rows are request bodies. A row is a
// JSON object with the members of a request body except "model"; its id is the
// custom_id, a string. RowOutput.Text is the body of the server's reply, written as one
// line.
type RawBatch struct {
	Dialect string `json:"dialect"` // DialectOpenAI or DialectAnthropic
	Path    string `json:"path"`    // path of the requests, such as "/v1/chat/completions"

	Requests  int64             `json:"requests,omitempty"`   // number of requests, if known before counting
	InputFile string            `json:"input_file,omitempty"` // id of the batch's input file
	Window    string            `json:"window,omitempty"`     // completion_window, as the client sent it
	Deadline  *time.Time        `json:"deadline,omitempty"`   // end of the window; no rows start after it
	Metadata  map[string]string `json:"metadata,omitempty"`
	// OutputSeconds is how long the output files are kept after their creation; 0: as
	// long as other results.
	OutputSeconds int64 `json:"output_seconds,omitempty"`
}

// Dialects of batches.
const (
	DialectOpenAI    = "openai"
	DialectAnthropic = "anthropic"
)

// A Continuation makes a job use the input of another job, take over its committed
// rows, and run the other rows.
type Continuation struct {
	Job            string `json:"job"`              // id of an ended job of the same account
	Failed         bool   `json:"failed,omitempty"` // run failed rows again too
	Rest           bool   `json:"rest,omitempty"`   // run also the rows of the input that the ended job's limit left out
	AllowDuplicate bool   `json:"again,omitempty"`  // make the job even if another job already continues the ended job
}

// IsDeterministic reports whether a repeated row must get the same answer, because the
// caller set a seed or sampling is greedy. If so, another attempt after a schema
// violation is pointless.
func (s *Spec) IsDeterministic() bool {
	if _, fixed := s.Sampling["seed"]; fixed {
		return true
	}
	t, given := AsFloat(s.Sampling["temperature"])
	return given && t == 0
}

// MaxTokens returns the maximum length of an answer in tokens; 0 if the caller set
// none.
func (s *Spec) MaxTokens() int64 {
	n, _ := AsFloat(s.Sampling["max_tokens"])
	return int64(n)
}

// WantsLogprobs reports whether to request log probabilities. It is false for
// embeddings and raw requests, and if the catalog or the caller disables log
// probabilities.
func (s *Spec) WantsLogprobs() bool {
	return s.Model.Kind != KindEmbedding && s.Model.Kind != KindRaw && !s.Model.NoLogprobs && s.Sampling["logprobs"] != false
}

// StructuredOutputs returns the parameter structured_outputs: a regex, a choice or a grammar that
// constrains answers in place of a JSON Schema, with its name as the key. It returns
// nil if the parameter is not set.
func (s *Spec) StructuredOutputs() map[string]any {
	rule, _ := s.Sampling["structured_outputs"].(map[string]any)
	return rule
}

// PromptLimit returns how many tokens a prompt may have, so that prompt and answer fit
// into a context of this length; at least 1. It returns 0, no limit, if the context
// length is 0 (unknown) or rows are request bodies.
func (s *Spec) PromptLimit(context int) int {
	if context == 0 || s.Raw != nil {
		return 0
	}
	return max(1, context-s.AnswerReserve(context)-1)
}

// AnswerReserve returns how many tokens of a context are reserved for the answer.
// Without max_tokens it reserves maxReserve tokens, but at most a quarter of the
// context.
func (s *Spec) AnswerReserve(context int) int {
	if s.Model.Kind == KindEmbedding {
		return 0
	}
	if n := s.MaxTokens(); n > 0 {
		return int(n)
	}
	if context == 0 { // unknown
		return maxReserve
	}
	return min(maxReserve, context/4)
}

const maxReserve = 4096
