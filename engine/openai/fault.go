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
// The message may quote a prompt, so other packages must get only the result of the method
// redactedMessage.
type serverFault struct {
	found   bool
	message string
	kind    string // the field type or error_type
	code    string // the field code, if it is a string
	param   string // the request field that the error names; empty if it names none
	status  int    // the HTTP status in the field code, 400 to 599, of an error inside a reply with status 200
}

// maxErrorBody is the maximum number of bytes that are read from the body of an error.
const maxErrorBody = 64 << 10

// parseFault parses the body of an error reply. It returns an empty serverFault if it
// cannot parse the body.
func parseFault(body []byte) serverFault {
	var top struct {
		Error     json.RawMessage `json:"error"`
		ErrorType string          `json:"error_type"`
		Detail    json.RawMessage `json:"detail"`
		faultFields
	}
	// If one field has an unexpected type, Unmarshal still fills the other fields.
	_ = json.Unmarshal(body, &top)
	if len(top.Error) > 0 && top.Error[0] == '{' {
		var inner faultFields
		_ = json.Unmarshal(top.Error, &inner)
		return inner.toServerFault()
	}
	f := top.toServerFault()
	if f.message == "" {
		f.message = decodeString(top.Error)
	}
	if f.kind == "" {
		f.kind = top.ErrorType
	}
	if f.message == "" {
		f.message = parseDetail(top.Detail)
	}
	f.found = f.message != "" || f.kind != "" || f.code != ""
	return f
}

// faultFields are the fields of an error object as raw JSON, because servers differ in
// their types.
type faultFields struct {
	Message json.RawMessage `json:"message"`
	Type    json.RawMessage `json:"type"`
	Code    json.RawMessage `json:"code"`
	Param   json.RawMessage `json:"param"`
}

func (f faultFields) toServerFault() serverFault {
	return serverFault{found: true, message: decodeString(f.Message), kind: decodeString(f.Type), code: decodeString(f.Code), param: topLevelField(decodeString(f.Param))}
}

// topLevelField returns the first field name in a path that vLLM reports: "stop" for
// "body.stop.list[str]".
func topLevelField(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "body."), ".")
	name, _, _ = strings.Cut(name, "[")
	return name
}

// decodeString returns the string that raw encodes, or an empty string if raw encodes no
// string.
func decodeString(raw json.RawMessage) string {
	var s string
	if len(raw) > 0 && raw[0] == '"' {
		_ = json.Unmarshal(raw, &s)
	}
	return s
}

// parseDetail returns the message in the field detail: KoboldCpp's text, or the first entry
// of FastAPI's list of broken rules. It ignores the field "input", which repeats the
// request.
func parseDetail(raw json.RawMessage) string {
	if s := decodeString(raw); s != "" {
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
		if s, ok := part.(string); ok && plainWordOrEmpty([]byte(s)) != "" {
			where = append(where, s)
		}
	}
	return strings.TrimPrefix(strings.Join(where, ".")+": "+rules[0].Msg, ": ")
}

// safeCode returns the code or the kind of the fault, whichever is a safe word first, or
// fallback if neither is.
func (f serverFault) safeCode(fallback string) string {
	for _, w := range []string{f.code, f.kind} {
		if w = plainWordOrEmpty([]byte(w)); w != "" {
			return w
		}
	}
	return fallback
}

const (
	// maxMessage limits the part of a server's message that our errors contain, in
	// bytes.
	maxMessage = 300
	// quoteLength is the length in bytes of a text passage that a message and a prompt
	// must share so that the message counts as a quotation. A passage of this length is
	// no coincidence, and a shorter passage reveals nothing.
	quoteLength = 12
)

// redactedMessage returns the message on one line, shortened. If the message quotes one of
// texts, redactedMessage returns a notice instead, because texts are private and must not
// get into logs.
func (f serverFault) redactedMessage(texts ...[]byte) string {
	line := oneLine(f.message)
	if len(line) > maxMessage {
		line = line[:maxMessage]
		for !utf8.ValidString(line) {
			line = line[:len(line)-1]
		}
		line += "…"
	}
	plain := oneLine(escapedSpace.Replace(line))
	for _, t := range texts {
		if containsQuote(plain, oneLine(string(t))) {
			return "its message repeats the prompt and is left out"
		}
	}
	return line
}

// escapedSpace replaces white space that is escaped as in JSON or Python.
var escapedSpace = strings.NewReplacer(`\n`, " ", `\r`, " ", `\t`, " ")

// oneLine replaces each run of white space by a space, and drops characters that
// dropUnprintable drops.
func oneLine(text string) string {
	return strings.Join(strings.Fields(strings.Map(dropUnprintable, text)), " ")
}

// dropUnprintable drops control and format characters, which could control a terminal.
func dropUnprintable(r rune) rune {
	switch {
	case unicode.IsSpace(r):
		return ' '
	case r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
		return -1
	}
	return r
}

// containsQuote reports whether line quotes text: they share a passage of at least
// 2·quoteLength-1 bytes, or line contains the whole of a shorter text.
func containsQuote(line, text string) bool {
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
