package rowmill

// ID is a row's user-provided identifier with the type it had in the source.
// The zero ID is a null.
type ID struct {
	Kind IDKind
	Int  int64   // IDInt; also IDUint (as bits), IDBool (0 or 1)
	Real float64 // IDFloat
	Text string  // IDString; also IDLeafValue: the bytes of the source
}

// IDType is the logical type of an ID column. It is stored, so its members
// keep their names.
type IDType struct {
	IDKind IDKind `json:"id_kind"`
	IDLeaf IDLeaf `json:"id_leaf,omitempty"` // set exactly where the kind is IDLeafValue
}

// IDKind is the kind of an ID, and of the IDs of a column that are not null.
type IDKind uint8

// The kinds of IDs. They are stored, so their numbers never change.
const (
	IDNull IDKind = iota
	IDString
	IDInt       // signed, 64 bits
	IDUint      // unsigned, 64 bits
	IDFloat     // 64 bits
	IDBool      //
	IDLeafValue // any other type of a Parquet file that is no text, which IDLeaf spells out
)

// IDLeaf is a type of a Parquet file: a date, a decimal, a UUID, an integer of
// 8 bits. Package columnar spells it and reads it; nobody else needs to.
type IDLeaf string

// Row is one input row.
type Row struct {
	Index int64  // from 0, in input order
	Text  string // the source text, before any truncation
	ID    ID     // null unless the job has an ID column

	// Fields are the values that a Function's prompt was made of, as a JSON array
	// of strings in the order of the job's field columns. Empty where there are
	// none: the row is of no Function, or was sent as a prompt.
	Fields string
}

// FinishReason is why the engine stopped, as the server says it.
type FinishReason string

// The finish reasons of an accepted answer.
const (
	FinishStop   FinishReason = "stop"
	FinishLength FinishReason = "length"
)

// Output is the outcome of one row: an answer, or an error.
type Output struct {
	Text      string    // the output cell: plain text, or the reasoning object as JSON
	Embedding []float32 // embedding models: the vector; Text is empty
	Score     float64   // cumulative_logprobs: 0 to 100, see Score
	HasScore  bool

	Finish       FinishReason
	InputTokens  int64
	OutputTokens int64
	Engine       string // name of the server that answered
	Attempts     int    // requests sent for this row, the accepted one included
	Tries        *Tries // what became of each, and of those that do not count; nil unless one was not accepted

	Err *RowError // set when the row failed; then there is no answer
}

// Failed reports whether the row has no answer.
func (o *Output) Failed() bool { return o.Err != nil }

// RowError is why a row failed. It is data, not a Go error: the job goes on.
type RowError struct {
	Code    string // machine word, such as "schema_violation"
	Message string
	Raw     string // what the engine returned, if anything, cut to 64 KiB
}

// The codes of a failed row.
const (
	RowRejected        = "engine_rejected"  // the server refused the row for good
	RowSchemaViolation = "schema_violation" // the answer does not conform to json_schema, or structured_outputs
	RowOutputTruncated = "output_truncated" // JSON, or what structured_outputs asks for, cut off by the length limit
	RowAttemptsUsedUp  = "attempts_used_up" // every attempt met a passing fault
	RowRefused         = "refused"          // the model refused to answer
	RowContentFiltered = "content_filter"   // the server withheld the answer for its content
	RowCrashesServer   = "crashes_server"   // the server crashed while the row was alone on it, twice
	RowTooLong         = "row_too_long"     // the prompt exceeds the context
	RowInternal        = "internal_error"   // it made the service's own code panic
	RowNotRun          = "not_run"          // the job ended first; seen in partial results alone

	// RowRepaired is the code of an attempt that was accepted once JSON was taken out
	// of the words around it.
	RowRepaired = "repaired"

	// RowHTTP and a status, such as "http_400", is the code of a row of a Raw job
	// that a server refused; Raw of the error is the body of the refusal.
	RowHTTP = "http_"
)
