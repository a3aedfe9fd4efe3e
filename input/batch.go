package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// Error codes for the faults in a line of a batch. OpenAI defines all of them except
// invalid_request.
const (
	faultJSON      = "invalid_json_line"
	faultDuplicate = "duplicate_custom_id"
	faultURL       = "url_mismatch"
	faultModel     = "model_mismatch"
	faultEmpty     = "empty_file"
	faultTooMany   = "too_many_tasks"
	faultRequest   = "invalid_request"
)

const (
	// maxLineFaults is the largest number of faults that are reported for a batch.
	maxLineFaults = 20
	// maxCustomID is the longest custom_id, in bytes.
	maxCustomID = 1024
)

// pathResponses is the path of OpenAI's Responses API. Its requests can also ask for an
// answer in the background, or for a stored conversation.
const pathResponses = "/v1/responses"

// LineFault is a fault in a line of a batch. The AdditionalContext of the batch's
// Failure is a JSON list of LineFault.
type LineFault struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
	Line    *int64  `json:"line"` // from 1; nil if the fault is about the whole file
}

// BatchReader reads the lines of a batch in OpenAI's form,
//
//	{"custom_id": "…", "method": "POST", "url": "/v1/…", "body": {"model": "…", …}}
//
// as rows of a rowmill.RawBatch job. After a bad line BatchReader continues, so that the client gets
// the first twenty faults at once. Then reading ends with a Failure whose
// AdditionalContext is a JSON list of LineFault. BatchReader holds one line and a hash of
// each custom_id in memory.
type BatchReader struct {
	lines  *lineReader
	path   string // URL path that all requests must have
	limits Limits

	rows   int64  // number of good requests so far
	model  string // model of the first request
	seen   idSet  // custom_ids of earlier lines, to find duplicates
	faults []LineFault
}

// idSet holds a hash of each custom_id that was read. It finds duplicates.
type idSet struct {
	hashes map[[2]uint64]struct{} // two 64-bit hashes of each ID
	seeds  [2]maphash.Seed        // one seed for each of the two hashes
}

func newIDSet() idSet {
	return idSet{map[[2]uint64]struct{}{}, [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

// addIfNew adds an ID. It returns false if the set already has the ID.
func (s *idSet) addIfNew(id string) bool {
	before := len(s.hashes)
	s.hashes[[2]uint64{maphash.String(s.seeds[0], id), maphash.String(s.seeds[1], id)}] = struct{}{}
	return len(s.hashes) > before
}

// OpenBatch returns a BatchReader that reads src. All requests must have the given URL
// path.
func OpenBatch(src io.Reader, path string, limits Limits) *BatchReader {
	limits = limits.WithDefaults()
	return &BatchReader{
		lines: newLines(src, limits.MaxRowBytes), path: path, limits: limits, seen: newIDSet(),
	}
}

// Model returns the model that all requests name. It is empty until Next has read the
// first request.
func (b *BatchReader) Model() string { return b.model }

// IDType returns the type of custom_ids, which are strings.
func (b *BatchReader) IDType() rowmill.IDType { return rowmill.IDType{IDKind: rowmill.IDString} }

// Close does nothing and returns nil. The caller closes the source.
func (b *BatchReader) Close() error { return nil }

// Next reads the next request into row. After the last line it returns io.EOF, or a
// Failure that lists the faults.
func (b *BatchReader) Next(row *rowmill.Row) error {
	for {
		line, whole, err := b.lines.readLine()
		switch {
		case errors.Is(err, io.EOF):
			return b.finalError()
		case err != nil:
			return fmt.Errorf("read line %d of the batch: %w", b.lines.number, err)
		case !whole:
			b.addFault(faultRequest, "", "has more than %d bytes; shorten it", b.limits.MaxRowBytes)
		case len(bytes.TrimSpace(line)) == 0:
			continue
		case b.rows >= b.limits.MaxRows:
			b.addFault(faultTooMany, "", "is beyond the %d requests that a batch may have; split it", b.limits.MaxRows)
			return b.finalError()
		default:
			b.readRequest(line, row)
		}
		if len(b.faults) == 0 {
			row.Index = b.rows
			b.rows++
			return nil
		}
		if len(b.faults) >= maxLineFaults {
			return b.finalError()
		}
	}
}

func (b *BatchReader) addFault(code, param, format string, args ...any) {
	line := b.lines.number
	f := LineFault{Code: code, Message: fmt.Sprintf("Line %d "+format+".", append([]any{line}, args...)...), Line: &line}
	if param != "" {
		f.Param = &param
	}
	b.faults = append(b.faults, f)
}

// finalError returns the error after the last line: io.EOF if the batch has no faults,
// otherwise a Failure that lists them.
func (b *BatchReader) finalError() error {
	if len(b.faults) == 0 && b.rows > 0 {
		return io.EOF
	}
	if len(b.faults) == 0 {
		b.faults = []LineFault{{Code: faultEmpty, Message: "The file has no requests. Write one request on each line."}}
	}
	list, err := json.Marshal(b.faults)
	if err != nil {
		return fmt.Errorf("encode the faults of the batch: %w", err)
	}
	failure := rowmill.Failf(rowmill.CodeInvalidInputFile, "%s", b.faults[0].Message)
	if more := len(b.faults) - 1; more > 0 {
		failure.Message += fmt.Sprintf(" %d more faults are listed.", more)
	}
	failure.AdditionalContext = string(list)
	return failure
}

// readRequest reads a non-blank line into row. If the line has faults, readRequest adds them to
// b.faults instead.
func (b *BatchReader) readRequest(line []byte, row *rowmill.Row) {
	if !utf8.Valid(line) || !json.Valid(line) || !isObject(line) {
		b.addFault(faultJSON, "", "is not a JSON object in UTF-8")
		return
	}
	var id, method, url, body []byte
	textfmt.VisitMembers(line, func(name string, _, value []byte) {
		switch name { // if a name appears twice, its last value counts
		case "custom_id":
			id = value
		case "method":
			method = value
		case "url":
			url = value
		case "body":
			body = value
		}
	})
	before := len(b.faults)
	customID, isText := textfmt.DecodeString(id)
	if !isText || customID == "" || len(customID) > maxCustomID {
		b.addFault(faultRequest, "custom_id", "needs a custom_id: a text of 1 to %d bytes", maxCustomID)
	}
	if m, _ := textfmt.DecodeString(method); m != "POST" {
		b.addFault(faultRequest, "method", `must have the method "POST"`)
	}
	if u, isText := textfmt.DecodeString(url); u != b.path {
		code := faultURL
		if !isText {
			code = faultRequest
		}
		b.addFault(code, "url", "must have the url %s, the endpoint of the batch", b.path)
	}
	text := b.checkAndStripModel(body)
	if len(b.faults) > before {
		return
	}
	if !b.seen.addIfNew(customID) {
		b.addFault(faultDuplicate, "custom_id", "has the custom_id of an earlier line, %q", textfmt.Shorten(customID, 64))
		return
	}
	*row = rowmill.Row{Text: text, ID: rowmill.ID{Kind: rowmill.IDString, Text: customID}}
}

// checkAndStripModel checks the body of a request and adds faults. It returns the body as JSON
// without the member model.
func (b *BatchReader) checkAndStripModel(body []byte) string {
	if !isObject(body) {
		b.addFault(faultRequest, "body", "needs a body: the JSON object of a request")
		return ""
	}
	var model, stream, background, conversation []byte
	text := make([]byte, 1, len(body))
	text[0] = '{'
	textfmt.VisitMembers(body, func(name string, member, value []byte) {
		switch name {
		case "model":
			model = value
			return
		case "stream":
			stream = value
		case "background":
			background = value
		case "conversation":
			conversation = value
		}
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = append(text, member...)
	})
	name, _ := textfmt.DecodeString(model)
	switch {
	case name == "":
		b.addFault(faultRequest, "body.model", "needs a model in its body")
	case b.model == "":
		b.model = name
	case name != b.model:
		b.addFault(faultModel, "body.model", "is for the model %q, but the first request is for %q; a batch has one model", textfmt.Shorten(name, 64), textfmt.Shorten(b.model, 64))
	}
	if isTruthyJSON(stream) {
		b.addFault(faultRequest, "body.stream", "asks for a stream, but a batch has no streams; leave it out")
	}
	if b.path == pathResponses && isTruthyJSON(background) {
		b.addFault(faultRequest, "body.background", "asks for an answer in the background, but a batch reads only the reply; leave it out")
	}
	if b.path == pathResponses && isTruthyJSON(conversation) {
		b.addFault(faultRequest, "body.conversation", "names a conversation, but no server stores conversations here; put its items into input")
	}
	return string(append(text, '}'))
}

// ReadBatchModel returns the model of a batch: the first model that a line names. found is
// false if no line names a model. err means that reading failed.
func ReadBatchModel(r io.ReaderAt, size int64, path string, limits Limits) (model string, found bool, err error) {
	b := OpenBatch(io.NewSectionReader(r, 0, size), path, limits)
	var row rowmill.Row
	err = b.Next(&row)
	if failure := (*rowmill.Failure)(nil); errors.As(err, &failure) {
		return b.model, b.model != "", nil
	}
	return b.model, b.model != "", err
}

// isTruthyJSON reports whether a JSON value turns a feature on. A missing value, false
// and null do not.
func isTruthyJSON(value []byte) bool {
	s := string(value)
	return s != "" && s != "false" && s != "null"
}

// isObject reports whether a JSON value is an object. It looks only at the first
// character.
func isObject(value []byte) bool {
	value = bytes.TrimLeft(value, " \t\r")
	return len(value) > 0 && value[0] == '{'
}
