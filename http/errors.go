package http

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	nethttp "net/http"
	"strconv"
	"syscall"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/schema"
	"github.com/rowmill/rowmill/store"
)

// codeInvalid is the code of a request that breaks a rule without a code of
// its own.
const codeInvalid = "invalid_request"

// apiError is an error with all that its answer says.
type apiError struct {
	status  int
	code    string // machine word
	message string // for a person: what is wrong and the remedy
	fields  []rowmill.FieldError
	extra   gin.H // further fields of the body
	header  map[string]string
}

func (e *apiError) Error() string { return e.message }

func errorf(status int, code, format string, args ...any) *apiError {
	return &apiError{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

// with adds a field to the error's body.
func (e *apiError) with(name string, value any) *apiError {
	if e.extra == nil {
		e.extra = gin.H{}
	}
	e.extra[name] = value
	return e
}

// codeUnknown is the code of a write that was sent to the storage and not
// answered.
const codeUnknown = "outcome_unknown"

// retryAfter is what clients are asked to wait while the storage is away, in
// seconds: about what a restart or a failover takes.
const retryAfter = "5"

// notNow is an error that is likely to be gone in a while.
func notNow(code, format string, args ...any) *apiError {
	e := errorf(nethttp.StatusServiceUnavailable, code, format, args...)
	e.header = map[string]string{"Retry-After": retryAfter}
	return e
}

// statusClientGone is what logs and metrics show for a request whose client
// left before the answer; nobody receives it.
const statusClientGone = 499

// describe maps any error to an answer. It is the only place that does.
func describe(err error) *apiError {
	var (
		ready    *apiError
		invalid  *rowmill.InvalidError
		tooLarge *nethttp.MaxBytesError
	)
	switch {
	case errors.As(err, &ready):
		return ready
	case errors.As(err, &invalid):
		e := errorf(nethttp.StatusBadRequest, invalid.Code, "%s", invalid.Error())
		e.fields = invalid.Fields
		return e
	case errors.As(err, &tooLarge):
		e := errorf(nethttp.StatusRequestEntityTooLarge, "body_too_large",
			"the request body is larger than %d bytes; put the rows into a CSV or Parquet file and send its URL as inputs", tooLarge.Limit)
		e.header = map[string]string{"Connection": "close"}
		return e
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return errorf(nethttp.StatusInsufficientStorage, "storage_full",
			"the service's disk is full, so nothing can be stored; free space or shorten the retention, then try again")
	case errors.Is(err, context.Canceled):
		return errorf(statusClientGone, "client_gone", "the client closed the request")
	case errors.Is(err, store.ErrOutcomeUnknown):
		return notNow(codeUnknown, "the service's storage did not answer, so your request may have taken effect or not; look whether it has before you repeat it")
	case errors.Is(err, rowmill.ErrUnavailable):
		return notNow("unavailable", "the service's storage cannot be reached or written now; nothing is known to be wrong with your request, so try again in a few seconds")
	case errors.Is(err, context.DeadlineExceeded):
		return notNow("timeout", "the store did not answer in time; look whether your request took effect before you repeat it")
	case errors.Is(err, rowmill.ErrNotFound):
		return errorf(nethttp.StatusNotFound, "not_found", "not found")
	case errors.Is(err, rowmill.ErrExpired):
		return errorf(nethttp.StatusGone, "expired", "retention has removed what you asked for")
	case errors.Is(err, rowmill.ErrTerminal), errors.Is(err, rowmill.ErrConflict):
		return errorf(nethttp.StatusConflict, "conflict", "another request changed this first; look again and repeat yours if it still makes sense")
	}
	return errorf(nethttp.StatusInternalServerError, "internal_error", "internal error; the server's log holds the reason under this request_id")
}

// fail answers with err and stops the chain. Only errors of the service itself
// are logged: all others are the client's to read.
func (s *Server) fail(c *gin.Context, err error) {
	e := describe(err)
	switch {
	case e.status == nethttp.StatusInternalServerError || e.status == nethttp.StatusInsufficientStorage:
		s.Logger.Error("request failed", keyRequest, requestID(c), keyRoute, c.FullPath(), keyErr, err)
	case errors.Is(err, rowmill.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown):
		s.Logger.Warn("request failed for now", keyRequest, requestID(c), keyRoute, c.FullPath(), keyErr, err)
	}
	body := gin.H{}
	for name, value := range e.extra {
		body[name] = value
	}
	body["message"], body["detail"] = e.message, e.message
	body["code"], body["request_id"] = e.code, requestID(c)
	if len(e.fields) > 0 {
		body["errors"] = e.fields
	}
	for name, value := range e.header {
		c.Header(name, value)
	}
	answer(c, e.status, body)
	c.Abort()
}

const jsonType = "application/json; charset=utf-8"

// answer writes v as JSON with its length.
func answer(c *gin.Context, status int, v any) {
	text, err := encode(v)
	if err != nil {
		panic(fmt.Sprintf("encode an answer: %v", err)) // all our types encode
	}
	c.Header("Content-Length", strconv.Itoa(len(text)))
	c.Header("Content-Type", jsonType) // gin would keep what was set before an error
	c.Header("Cache-Control", "no-store")
	c.Data(status, jsonType, text)
}

// problems collects the broken rules of a request.
type problems struct {
	code   string // of all of them; codeInvalid where they differ
	fields []rowmill.FieldError
}

func (p *problems) add(field, format string, args ...any) {
	p.addCode(codeInvalid, rowmill.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (p *problems) addCode(code string, fields ...rowmill.FieldError) {
	if len(fields) == 0 {
		return
	}
	if len(p.fields) == 0 {
		p.code = code
	} else if p.code != code {
		p.code = codeInvalid
	}
	p.fields = append(p.fields, fields...)
}

// compile adds what is wrong with a schema, unless something else is wrong
// already: a request that is refused anyway costs no more than reading it.
func (p *problems) compile(field string, text json.RawMessage) {
	if len(p.fields) > 0 || text == nil {
		return
	}
	if _, err := schema.Compile(text); err != nil {
		p.add(field, "%s", err)
	}
}

// err returns nil where nothing is wrong.
func (p *problems) err() error {
	if len(p.fields) == 0 {
		return nil
	}
	return &rowmill.InvalidError{Code: p.code, Fields: p.fields}
}
