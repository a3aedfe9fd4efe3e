package rowmill

// ID is the identifier that the client gave a row, with the type that it has in the
// input. The zero ID is a null.
type ID struct {
	Kind IDKind
	Int  int64   // value of an IDInt, an IDUint (its bits) or an IDBool (0 or 1)
	Real float64 // value of an IDFloat
	Text string  // value of an IDString, or the source bytes of an IDLeafValue
}

// IDType is the logical type of an ID column. It is stored as JSON, so its JSON names
// never change.
type IDType struct {
	IDKind IDKind        `json:"id_kind"`
	IDLeaf IDParquetType `json:"id_leaf,omitempty"` // set only if the kind is IDLeafValue
}

// IDKind is the kind of an ID, or of all IDs of a column that are not null.
type IDKind uint8

// Kinds of IDs. They are stored, so their numbers never change.
const (
	IDNull IDKind = iota
	IDString
	IDInt       // signed, 64 bits
	IDUint      // unsigned, 64 bits
	IDFloat     // 64 bits
	IDBool      // true or false
	IDLeafValue // any other Parquet type except text; IDParquetType describes the type
)

// IDParquetType describes a Parquet type, such as a date, a decimal, a UUID or an 8-bit integer.
// Only package columnar knows the format of the text.
type IDParquetType string

// Row is one input row.
type Row struct {
	Index int64  // from 0, in input order
	Text  string // the source text, before any truncation
	ID    ID     // null unless the job has an ID column

	// Fields holds the values for a Function's prompt: a JSON array of strings in the
	// order of the job's field columns. Empty if the job has no Function or the row was
	// sent as a prompt.
	Fields string
}

// FinishReason is the reason why the engine stopped generating, as the server names it.
type FinishReason string

// Finish reasons of accepted answers.
const (
	FinishStop   FinishReason = "stop"
	FinishLength FinishReason = "length"
)

// RowOutput is the outcome of one row: an answer, or an error.
type RowOutput struct {
	Text      string    // the output cell: plain text, or the reasoning object as JSON
	Embedding []float32 // embedding models: the vector; Text is empty
	Score     float64   // the column cumulative_logprobs: 0 to 100
	HasScore  bool      // Score is set

	Finish       FinishReason
	InputTokens  int64
	OutputTokens int64
	Engine       string       // name of the server that answered
	Seconds      float64      // time from the request to the answer, in whole milliseconds
	Attempts     int          // requests sent for this row, the accepted one included
	Tries        *RowAttempts // all attempts, also those not counted in Attempts; nil if the first answer was accepted

	Err *RowError // why the row failed; nil if the row has an answer
}

// Failed reports whether the row has no answer.
func (o *RowOutput) Failed() bool { return o.Err != nil }

// RowError is the reason why a row failed. It is part of the results and no Go error:
// the job goes on.
type RowError struct {
	Code    string // error code, such as "schema_violation"
	Message string
	Raw     string // the engine's reply, if any, cut to 64 KiB
}

// Codes of failed rows.
const (
	RowRejected        = "engine_rejected"  // the server refused the row for good
	RowSchemaViolation = "schema_violation" // the answer does not match json_schema, or structured_outputs
	RowOutputTruncated = "output_truncated" // the length limit cut off JSON or the output that structured_outputs requires
	RowAttemptsUsedUp  = "attempts_used_up" // every attempt failed for a temporary reason
	RowRefused         = "refused"          // the model refused to answer
	RowContentFiltered = "content_filter"   // the server withheld the answer for its content
	RowCrashesServer   = "crashes_server"   // the server crashed twice while it ran only this row
	RowTooLong         = "row_too_long"     // the prompt exceeds the context
	RowInternal        = "internal_error"   // the row made the service's own code panic
	RowLost            = "lost"             // object storage lost the answer; only in partial results
	RowNotRun          = "not_run"          // the job ended first; only in partial results

	// RowRepaired is the code of an accepted attempt: its answer was JSON with other text
	// around the JSON, which was removed.
	RowRepaired = "repaired"

	// RowHTTP is the prefix of the code of a row of a Raw job that a server refused.
	// The HTTP status follows, such as "http_400". RowError.Raw is the body of the
	// refusal.
	RowHTTP = "http_"
)
