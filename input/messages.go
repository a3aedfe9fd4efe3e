package input

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/textfmt"
)

const (
	// maxMessageID is the longest custom_id of a request, in characters.
	maxMessageID = 64
	// readAhead is the largest number of bytes per read. A request can exceed its size
	// limit by this many bytes before it is rejected.
	readAhead = 64 << 10
)

// ErrNoObject means that a request body is not one JSON object, or that it ends too
// early.
var ErrNoObject = errors.New("the body must be one JSON object and nothing else")

// ConvertMessages reads the body of a Message Batch in Anthropic's form,
//
//	{"requests": [{"custom_id": "…", "params": {"model": "…", …}}, …]}
//
// and writes its requests to w as lines that OpenBatch reads, with the given URL path.
// It returns the model and the number of the requests. After a bad request
// ConvertMessages continues, so that the client gets the first twenty faults at once, in a
// *rowmill.InvalidError. If the body is not JSON, the error is ErrNoObject. Errors of
// src are returned unchanged. ConvertMessages holds one request and a hash of each custom_id
// in memory.
func ConvertMessages(src io.Reader, w io.Writer, path string, limits Limits) (model string, requests int64, err error) {
	m := &messagesConverter{
		src: &budgetReader{src: src}, out: bufio.NewWriterSize(w, 64<<10), limits: limits.WithDefaults(),
		seen: newIDSet(),
		head: `,"method":"POST","url":` + string(textfmt.AppendString(nil, []byte(path))) + `,"body":`,
	}
	m.body = json.NewDecoder(m.src)
	if err := m.convertBody(); err != nil {
		return "", 0, err
	}
	return m.model, m.count, m.out.Flush()
}

// messagesConverter is the state of one call of ConvertMessages.
type messagesConverter struct {
	src    *budgetReader
	body   *json.Decoder
	out    *bufio.Writer
	limits Limits
	head   string // text of each line between the values of custom_id and body

	model  string
	count  int64
	seen   idSet
	faults []rowmill.FieldError
	line   bytes.Buffer
}

// convertBody reads the whole body.
func (m *messagesConverter) convertBody() error {
	if err := m.expect(json.Delim('{')); err != nil {
		return err
	}
	found := false
	for m.hasMore() {
		name, err := m.token()
		if err != nil {
			return err
		}
		if name != "requests" {
			var skipped json.RawMessage
			if err := m.decodeValue(fmt.Sprint(name), &skipped); err != nil {
				return err
			}
			continue
		}
		if found {
			m.addFault("requests", "appears twice; send it once")
		}
		found = true
		if err := m.readRequests(); err != nil {
			return err
		}
	}
	if err := m.expect(json.Delim('}')); err != nil {
		return err
	}
	if _, err := m.body.Token(); err == nil {
		return ErrNoObject
	} else if !errors.Is(err, io.EOF) {
		return m.bodyError(err)
	}
	if m.count == 0 {
		m.addFault("requests", "must be a list of at least one request")
	}
	return m.faultsError()
}

// readRequests reads the list of requests.
func (m *messagesConverter) readRequests() error {
	first, err := m.token()
	switch {
	case err != nil:
		return err
	case first != json.Delim('['):
		m.addFault("requests", "must be a list of requests")
		return m.faultsError()
	}
	for m.hasMore() {
		if m.count++; m.count > m.limits.MaxRows {
			m.addFault("requests", "has more than %d requests; split the batch", m.limits.MaxRows)
		}
		if len(m.faults) >= maxLineFaults || m.count > m.limits.MaxRows {
			return m.faultsError()
		}
		var request json.RawMessage
		if err := m.decodeValue(m.requestField(), &request); err != nil {
			return err
		}
		if err := m.writeRequest(request); err != nil {
			return err
		}
	}
	return m.expect(json.Delim(']'))
}

// writeRequest writes one request as a line of m.out. If the request has faults, it adds
// them to m.faults instead.
func (m *messagesConverter) writeRequest(request []byte) error {
	field := m.requestField()
	if !isObject(request) || !utf8.Valid(request) {
		m.addFault(field, "must be a JSON object in UTF-8 with custom_id and params")
		return nil
	}
	var id, params []byte
	textfmt.VisitMembers(request, func(name string, _, value []byte) {
		switch name { // if a name appears twice, its last value counts
		case "custom_id":
			id = value
		case "params":
			params = value
		}
	})
	before := len(m.faults)
	m.checkCustomID(field+".custom_id", id)
	m.checkParams(field+".params", params)
	if len(m.faults) > 0 {
		if len(m.faults) == before && int64(len(request)) > m.limits.MaxRowBytes {
			m.addTooLongFault(field)
		}
		return nil
	}
	m.line.Reset()
	m.line.WriteString(`{"custom_id":`)
	m.line.Write(id)
	m.line.WriteString(m.head)
	if err := json.Compact(&m.line, params); err != nil { // a request must be one line
		return fmt.Errorf("write request %d: %w", m.count-1, err)
	}
	if m.line.WriteByte('}'); int64(m.line.Len()) > m.limits.MaxRowBytes {
		m.addTooLongFault(field)
		return nil
	}
	m.line.WriteByte('\n')
	_, err := m.out.Write(m.line.Bytes())
	return err
}

func (m *messagesConverter) checkCustomID(field string, value []byte) {
	id, isText := textfmt.DecodeString(value)
	switch {
	case !isText || id == "":
		m.addFault(field, "must be a text of 1 to %d characters", maxMessageID)
	case utf8.RuneCountInString(id) > maxMessageID:
		m.addFault(field, "String should have at most %d characters", maxMessageID)
	default:
		if !m.seen.addIfNew(id) {
			m.addFault(field, "is the custom_id of an earlier request, %q; it must be unique", id)
		}
	}
}

func (m *messagesConverter) checkParams(field string, params []byte) {
	if !isObject(params) {
		m.addFault(field, "must be the JSON object of a request for messages")
		return
	}
	var name, stream []byte
	textfmt.VisitMembers(params, func(member string, _, value []byte) {
		switch member {
		case "model":
			name = value
		case "stream":
			stream = value
		}
	})
	model, _ := textfmt.DecodeString(name)
	switch {
	case model == "":
		m.addFault(field+".model", "is missing; name a model")
	case m.model == "":
		m.model = model
	case model != m.model:
		m.addFault(field+".model", "is %q, but the first request has %q; a batch has one model here, so send one batch for each model", textfmt.Shorten(model, 64), textfmt.Shorten(m.model, 64))
	}
	if isTruthyJSON(stream) {
		m.addFault(field+".stream", "asks for a stream, but a batch has no streams; leave it out")
	}
}

func (m *messagesConverter) addFault(field, format string, args ...any) {
	m.faults = append(m.faults, rowmill.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (m *messagesConverter) addTooLongFault(field string) {
	m.addFault(field, "has more than %d bytes; shorten it", m.limits.MaxRowBytes)
}

// faultsError returns an error that lists all faults, or nil if there are none.
func (m *messagesConverter) faultsError() error {
	if len(m.faults) == 0 {
		return nil
	}
	return &rowmill.InvalidError{Code: "invalid_request", Fields: m.faults}
}

// hasMore reports whether the current array or object has more elements.
func (m *messagesConverter) hasMore() bool {
	m.src.budget = m.limits.MaxRowBytes
	return m.body.More()
}

func (m *messagesConverter) token() (json.Token, error) {
	token, err := m.body.Token()
	return token, m.bodyError(err)
}

func (m *messagesConverter) expect(delim json.Delim) error {
	m.src.budget = m.limits.MaxRowBytes
	token, err := m.token()
	if err == nil && token != delim {
		err = ErrNoObject
	}
	return err
}

// requestField returns the name of the current request in a fault.
func (m *messagesConverter) requestField() string {
	return "requests." + strconv.FormatInt(m.count-1, 10)
}

// decodeValue decodes the JSON value of a field. The value can be as long as a row, MaxRowBytes.
func (m *messagesConverter) decodeValue(field string, into *json.RawMessage) error {
	m.src.budget = m.limits.MaxRowBytes
	err := m.body.Decode(into)
	if errors.Is(err, errElementTooLong) {
		m.addTooLongFault(field)
		return m.faultsError()
	}
	return m.bodyError(err)
}

// bodyError converts an error of the JSON decoder. It returns the error of src if a
// read failed, and otherwise ErrNoObject.
func (m *messagesConverter) bodyError(err error) error {
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case m.src.err != nil && !errors.Is(m.src.err, io.EOF):
		return m.src.err
	case errors.As(err, &syntax):
		return fmt.Errorf("%w: %w at byte %d", ErrNoObject, err, syntax.Offset)
	}
	return ErrNoObject
}

// errElementTooLong means that a JSON value in the body is longer than its limit.
var errElementTooLong = errors.New("the JSON value is too long")

// budgetReader limits how many bytes a JSON decoder reads for one value. Without this
// limit, the decoder would read a value of any length into memory.
type budgetReader struct {
	src    io.Reader
	budget int64 // bytes that may still be read; the last read may exceed this number
	err    error // last error of src
}

// Read reads from src until the budget is used up.
func (r *budgetReader) Read(p []byte) (int, error) {
	if r.budget < 0 {
		return 0, errElementTooLong
	}
	n, err := r.src.Read(p[:min(len(p), readAhead)])
	r.budget -= int64(n)
	r.err = err
	return n, err
}
