package openai

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A serverFault is the content of an error body. These formats are known:
//
//	{"error": {"message", "type", "code"}}   OpenAI, vLLM, llama.cpp, Ollama
//	{"object": "error", "message", "type", "code"}            SGLang
//	{"error": "text", "error_type": "word"}                   TGI
//	{"detail": "text" or [{"msg", "loc"}]}                    FastAPI itself
//	{"detail": {"msg", "type"}}                               KoboldCpp
//
// Its message must not leave the package unchecked: it may quote a prompt.
type serverFault struct {
	found   bool
	message string
	kind    string // the field type or error_type
	code    string // the field code, if it is a string
	param   string // the request field that the error names; empty if it names none
	status  int    // the field code, if it is a number from 400 to 599 inside a reply with status 200
}

// maxErrorBody limits how much of an error's body is read.
const maxErrorBody = 64 << 10

// parseFault reads the body of an error. It returns an empty fault for an unreadable
// body.
func parseFault(body []byte) serverFault {
	var top struct {
		Error     json.RawMessage `json:"error"`
		ErrorType string          `json:"error_type"`
		Detail    json.RawMessage `json:"detail"`
		faultFields
	}
	// If one field has an unexpected type, the others are still filled.
	_ = json.Unmarshal(body, &top)
	if len(top.Error) > 0 && top.Error[0] == '{' {
		var inner faultFields
		_ = json.Unmarshal(top.Error, &inner)
		return inner.fault()
	}
	f := top.fault()
	if f.message == "" {
		f.message = text(top.Error)
	}
	if f.kind == "" {
		f.kind = top.ErrorType
	}
	if f.message == "" {
		f.message = detail(top.Detail)
	}
	f.found = f.message != "" || f.kind != "" || f.code != ""
	return f
}

type faultFields struct {
	Message json.RawMessage `json:"message"`
	Type    json.RawMessage `json:"type"`
	Code    json.RawMessage `json:"code"`
	Param   json.RawMessage `json:"param"`
}

func (f faultFields) fault() serverFault {
	return serverFault{found: true, message: text(f.Message), kind: text(f.Type), code: text(f.Code), param: field(text(f.Param))}
}

// field returns the first field name in a path of vLLM: "stop", or
// "body.stop.list[str]".
func field(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "body."), ".")
	name, _, _ = strings.Cut(name, "[")
	return name
}

// text returns the string in raw; empty if raw is not a string.
func text(raw json.RawMessage) string {
	var s string
	if len(raw) > 0 && raw[0] == '"' {
		_ = json.Unmarshal(raw, &s)
	}
	return s
}

// detail reads KoboldCpp's text or FastAPI's list of broken rules. It ignores their
// "input", which repeats the request.
func detail(raw json.RawMessage) string {
	if s := text(raw); s != "" {
		return s
	}
	var one struct{ Msg string }
	if json.Unmarshal(raw, &one) == nil && one.Msg != "" {
		return one.Msg
	}
	var rules []struct {
		Msg string `json:"msg"`
		Loc []any  `json:"loc"`
	}
	_ = json.Unmarshal(raw, &rules)
	if len(rules) == 0 {
		return ""
	}
	var where []string
	for _, part := range rules[0].Loc {
		if s, ok := part.(string); ok && safeWord([]byte(s)) != "" {
			where = append(where, s)
		}
	}
	return strings.TrimPrefix(strings.Join(where, ".")+": "+rules[0].Msg, ": ")
}

// word returns the machine-readable word of the fault, or other if it has none.
func (f serverFault) word(other string) string {
	for _, w := range []string{f.code, f.kind} {
		if w = safeWord([]byte(w)); w != "" {
			return w
		}
	}
	return other
}

const (
	// maxMessage limits a server's message in our errors, in bytes.
	maxMessage = 300
	// quoteLength is the length of a passage, in bytes. A message that shares such a
	// passage with a prompt counts as a quotation. The length is too long for a
	// coincidence, and shorter passages reveal nothing.
	quoteLength = 12
)

// shown returns the message on one line, shortened. If the message repeats a passage of
// a text in texts, it returns a notice instead: these texts must not get into logs.
func (f serverFault) shown(texts ...[]byte) string {
	line := strings.Join(strings.Fields(strings.Map(shownRune, f.message)), " ")
	if len(line) > maxMessage {
		line = line[:maxMessage]
		for !utf8.ValidString(line) {
			line = line[:len(line)-1]
		}
		line += "…"
	}
	for _, t := range texts {
		if quotes(line, string(t)) {
			return "its message repeats the prompt and is left out"
		}
	}
	return line
}

// shownRune drops control and format characters, which could control a terminal.
func shownRune(r rune) rune {
	switch {
	case unicode.IsSpace(r):
		return ' '
	case r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
		return -1
	}
	return r
}

// quotes reports whether line and text share a passage of at least 2·quoteLength-1
// bytes, or line contains the whole of a shorter text.
func quotes(line, text string) bool {
	if len(text) == 0 {
		return false
	}
	if len(text) < quoteLength {
		return len(text) > 3 && strings.Contains(line, text)
	}
	for at := 0; at+quoteLength <= len(line); at += quoteLength {
		if strings.Contains(text, line[at:at+quoteLength]) {
			return true
		}
	}
	return false
}
