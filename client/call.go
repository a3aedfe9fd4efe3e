package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"time"
)

// runTimeout limits the time of a run of a Function. It is a little longer than the
// service's own limit of 90 s.
const runTimeout = 100 * time.Second

// Answer holds the raw body and the ETag of an answer.
type Answer struct {
	Raw  json.RawMessage // the body, including fields that this client does not know
	ETag string          // version of the returned data, for IfMatch; empty for most calls
}

// call is a request to the API with a small body and a small answer, before it is sent.
// The generated methods create calls.
type call struct {
	operation    string // name of the Client's method, such as GetResultsURL
	method, path string
	query        url.Values
	header       http.Header
	body         any // value to send as JSON; nil for no body
}

// setQuery adds a parameter to the query, unless value is zero.
func (r *call) setQuery(name string, value any) {
	if r.query == nil {
		r.query = url.Values{}
	}
	v := reflect.ValueOf(value)
	if v.Kind() == reflect.Slice {
		for i := range v.Len() {
			r.query.Add(name, fmt.Sprint(v.Index(i)))
		}
	} else if !v.IsZero() {
		r.query.Set(name, fmt.Sprint(value))
	}
}

// setHeader sets a header, unless value is empty.
func (r *call) setHeader(name, value string) {
	if r.header == nil {
		r.header = http.Header{}
	}
	if value != "" {
		r.header.Set(name, value)
	}
}

// escape returns a value as text that is safe as a parameter in a URL path.
func escape(value any) string { return url.PathEscape(fmt.Sprint(value)) }

// send makes a call and decodes the answer into out.
func (c *Client) send(ctx context.Context, r call, out any) (answer Answer, err error) {
	var body io.Reader
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return Answer{}, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(text)
	}
	req, err := c.newRequest(ctx, r.method, r.path, r.query, body)
	if err != nil {
		return Answer{}, err
	}
	maps.Copy(req.Header, r.header)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	header, err := c.sendAndDecode(req, c.timeoutFor(r.operation), &answer.Raw)
	if err != nil {
		return Answer{}, err
	}
	answer.ETag = header.Get("ETag")
	if err := json.Unmarshal(answer.Raw, out); err != nil {
		return Answer{}, &UnreachableError{Server: c.base, Err: fmt.Errorf("the answer to %s %s does not have the form of the API: %w", r.method, r.path, err)}
	}
	return answer, nil
}

// timeoutFor returns the time limit of an operation; 0 means none.
func (c *Client) timeoutFor(operation string) time.Duration {
	switch operation {
	case "BeginUpload", "CompleteUpload", "GetResultsURL": // no limit: the service may have to read or write a large file before it answers
		return 0
	case "RunFunction":
		return max(c.cfg.Timeout, runTimeout)
	}
	return c.cfg.Timeout
}
