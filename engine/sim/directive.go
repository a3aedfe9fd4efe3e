package sim

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// directives are the instructions for tests in a prompt, such as [[sim:fail=503]]; the
// package comment lists them.
type directives struct {
	fault  faultKind
	status int // HTTP status to answer with, if fault is faultStatus
	times  int // how often the fault happens for this prompt; 0 means every time

	tokens      int
	delay       time.Duration
	finish      string
	invalidJSON bool
	violate     bool
}

var directiveMark = []byte("[[sim:")

// maxDirectiveTokens is the largest N in the directive tokens=N.
const maxDirectiveTokens = 1 << 20

// maxDelay is the largest D in the directive delay=D.
const maxDelay = time.Hour

// read finds the directives in a text and stores them in d. Most texts have none.
func (d *directives) read(text []byte) {
	for {
		at := bytes.Index(text, directiveMark)
		if at < 0 {
			return
		}
		text = text[at+len(directiveMark):]
		body, _, closed := bytes.Cut(text, []byte("]]"))
		if !closed {
			return
		}
		for word := range strings.FieldsSeq(string(body)) {
			d.apply(word)
		}
	}
}

func (d *directives) apply(word string) {
	name, value, _ := strings.Cut(word, "=")
	number, err := strconv.Atoi(value)
	isNumber := err == nil && number > 0
	switch name {
	case "fail":
		if isNumber && number >= 400 && number <= 599 {
			d.fault, d.status = faultStatus, number
		}
	case "times":
		if isNumber {
			d.times = number
		}
	case "reject":
		d.fault, d.status = faultStatus, http.StatusBadRequest
	case "hang":
		d.fault = faultHang
	case "reset":
		d.fault = faultReset
	case "truncate":
		d.fault = faultTruncate
	case "malformed":
		d.fault = faultMalformed
	case "empty":
		d.fault = faultEmpty
	case "invalid-json":
		d.invalidJSON = true
	case "violate":
		d.violate = true
	case "tokens":
		if isNumber && number <= maxDirectiveTokens {
			d.tokens = number
		}
	case "delay":
		if delay, err := time.ParseDuration(value); err == nil && delay > 0 && delay <= maxDelay {
			d.delay = delay
		}
	case "finish":
		d.finish = value
	}
}
