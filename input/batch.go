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

// These codes name the faults of a line of a batch. All but the last are
// OpenAI's.
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
	// maxLineFaults is how many faults of a batch are reported.
	maxLineFaults = 20
	// maxCustomID is the longest custom_id, in bytes.
	maxCustomID = 1024
)

// pathResponses is the path of requests that can also ask for an answer in the
// background, or for a stored conversation.
const pathResponses = "/v1/responses"

// LineFault is a fault of a line of a batch. The AdditionalContext of a Failure
// is a list of LineFault.
type LineFault struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
	Line    *int64  `json:"line"` // from 1; nil if the fault is about the whole file
}

// Batch reads the lines of a batch in OpenAI's form,
//
//	{"custom_id": "…", "method": "POST", "url": "/v1/…", "body": {"model": "…", …}}
//
// as rows of a rowmill.Raw job. It continues after a bad line, so that the
// client gets the first twenty faults at once: reading ends with a Failure, and
// its AdditionalContext is a list of LineFault. Batch holds in memory one line
// and a hash of each custom_id.
type Batch struct {
	lines  *lines
	path   string // path that all requests must have
	limits Limits

	rows   int64
	model  string
	seen   idSet
	faults []LineFault
}

// idSet holds the hashes of the custom_ids so far.
type idSet struct {
	hashes map[[2]uint64]struct{}
	seeds  [2]maphash.Seed
}

func newIDSet() idSet {
	return idSet{map[[2]uint64]struct{}{}, [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

// add adds an ID. It returns false if the ID was added before.
func (s *idSet) add(id string) bool {
	before := len(s.hashes)
	s.hashes[[2]uint64{maphash.String(s.seeds[0], id), maphash.String(s.seeds[1], id)}] = struct{}{}
	return len(s.hashes) > before
}

// OpenBatch begins to read a batch. All requests must have the given path.
func OpenBatch(src io.Reader, path string, limits Limits) *Batch {
	limits = limits.WithDefaults()
	return &Batch{
		lines: newLines(src, limits.MaxRowBytes), path: path, limits: limits, seen: newIDSet(),
	}
}

// Model returns the model of all requests. It is known after the first request.
func (b *Batch) Model() string { return b.model }

// IDType returns the type of custom_ids.
func (b *Batch) IDType() rowmill.IDType { return rowmill.IDType{IDKind: rowmill.IDString} }

// Close does nothing.
func (b *Batch) Close() error { return nil }

// Next reads the next request.
func (b *Batch) Next(row *rowmill.Row) error {
	for {
		line, whole, err := b.lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return b.end()
		case err != nil:
			return fmt.Errorf("read line %d of the batch: %w", b.lines.number, err)
		case !whole:
			b.fault(faultRequest, "", "has more than %d bytes; shorten it", b.limits.MaxRowBytes)
		case len(bytes.TrimSpace(line)) == 0:
			continue
		case b.rows >= b.limits.MaxRows:
			b.fault(faultTooMany, "", "is beyond the %d requests that a batch may have; split it", b.limits.MaxRows)
			return b.end()
		default:
			b.request(line, row)
		}
		if len(b.faults) == 0 {
			row.Index = b.rows
			b.rows++
			return nil
		}
		if len(b.faults) >= maxLineFaults {
			return b.end()
		}
	}
}

func (b *Batch) fault(code, param, format string, args ...any) {
	line := b.lines.number
	f := LineFault{Code: code, Message: fmt.Sprintf("Line %d "+format+".", append([]any{line}, args...)...), Line: &line}
	if param != "" {
		f.Param = &param
	}
	b.faults = append(b.faults, f)
}

// end returns the error that ends the reading: io.EOF or the faults.
func (b *Batch) end() error {
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

// request reads a line that is not blank into row, or adds faults.
func (b *Batch) request(line []byte, row *rowmill.Row) {
	if !utf8.Valid(line) || !json.Valid(line) || !isObject(line) {
		b.fault(faultJSON, "", "is not a JSON object in UTF-8")
		return
	}
	var id, method, url, body []byte
	eachMember(line, func(name string, _, value []byte) {
		switch name { // the last member of a name counts
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
	customID, isText := textOf(id)
	if !isText || customID == "" || len(customID) > maxCustomID {
		b.fault(faultRequest, "custom_id", "needs a custom_id: a text of 1 to %d bytes", maxCustomID)
	}
	if m, _ := textOf(method); m != "POST" {
		b.fault(faultRequest, "method", `must have the method "POST"`)
	}
	if u, isText := textOf(url); u != b.path {
		code := faultURL
		if !isText {
			code = faultRequest
		}
		b.fault(code, "url", "must have the url %s, the endpoint of the batch", b.path)
	}
	text := b.body(body)
	if len(b.faults) > before {
		return
	}
	if !b.seen.add(customID) {
		b.fault(faultDuplicate, "custom_id", "has the custom_id of an earlier line, %q", textfmt.Shorten(customID, 64))
		return
	}
	*row = rowmill.Row{Text: text, ID: rowmill.ID{Kind: rowmill.IDString, Text: customID}}
}

// body checks the body of a request. It returns the body without the model.
func (b *Batch) body(body []byte) string {
	if !isObject(body) {
		b.fault(faultRequest, "body", "needs a body: the JSON object of a request")
		return ""
	}
	var model, stream, background, conversation []byte
	text := make([]byte, 1, len(body))
	text[0] = '{'
	eachMember(body, func(name string, member, value []byte) {
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
	name, _ := textOf(model)
	switch {
	case name == "":
		b.fault(faultRequest, "body.model", "needs a model in its body")
	case b.model == "":
		b.model = name
	case name != b.model:
		b.fault(faultModel, "body.model", "is for the model %q, but the first request is for %q; a batch has one model", textfmt.Shorten(name, 64), textfmt.Shorten(b.model, 64))
	}
	if isRequested(stream) {
		b.fault(faultRequest, "body.stream", "asks for a stream, but a batch has no streams; leave it out")
	}
	if b.path == pathResponses && isRequested(background) {
		b.fault(faultRequest, "body.background", "asks for an answer in the background, but a batch reads only the reply; leave it out")
	}
	if b.path == pathResponses && isRequested(conversation) {
		b.fault(faultRequest, "body.conversation", "names a conversation, but no server stores conversations here; put its items into input")
	}
	return string(append(text, '}'))
}

// BatchModel returns the model of the first good line of a batch. found is
// false if no line is good.
func BatchModel(r io.ReaderAt, size int64, path string, limits Limits) (model string, found bool, err error) {
	b := OpenBatch(io.NewSectionReader(r, 0, size), path, limits)
	var row rowmill.Row
	err = b.Next(&row)
	if failure := (*rowmill.Failure)(nil); errors.As(err, &failure) {
		return b.model, b.model != "", nil
	}
	return b.model, b.model != "", err
}

// isRequested reports whether the value of a member turns the member's feature
// on.
func isRequested(value []byte) bool {
	s := string(value)
	return s != "" && s != "false" && s != "null"
}

// isObject reports whether a JSON value is an object.
func isObject(value []byte) bool {
	value = bytes.TrimLeft(value, " \t\r")
	return len(value) > 0 && value[0] == '{'
}

// textOf returns the text of a JSON string. is is false for other values.
func textOf(value []byte) (text string, is bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1]), true
	}
	return text, json.Unmarshal(value, &text) == nil
}

// eachMember calls visit for each member of an object, in order. object must be
// valid JSON. member is the whole member without blanks around it.
func eachMember(object []byte, visit func(name string, member, value []byte)) {
	at := skipBlanks(object, 0) + 1 // after the brace
	for {
		if at = skipBlanks(object, at); object[at] == '}' {
			return
		}
		begin, end := at, skipValue(object, at)
		name, _ := textOf(object[begin:end])
		at = skipBlanks(object, end) + 1 // after the colon
		at = skipBlanks(object, at)
		end = skipValue(object, at)
		visit(name, object[begin:end], object[at:end])
		if at = skipBlanks(object, end); object[at] == ',' {
			at++
		}
	}
}

func skipBlanks(text []byte, at int) int {
	for text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || text[at] == '\n' {
		at++
	}
	return at
}

// skipValue returns the end of the value that begins at at.
func skipValue(text []byte, at int) int {
	switch text[at] {
	case '"':
		return skipString(text, at)
	case '{', '[':
		for depth := 0; ; at++ {
			switch text[at] {
			case '"':
				at = skipString(text, at) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return at + 1
				}
			}
		}
	}
	end := bytes.IndexAny(text[at:], ",}] \t\r\n")
	return at + end
}

func skipString(text []byte, at int) int {
	for at++; text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return at + 1
}
