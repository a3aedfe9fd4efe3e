package textfmt

import (
	"bytes"
	"encoding/json"
)

// DecodeString decodes a JSON string. If value is not a string, it returns false.
func DecodeString(value []byte) (text string, ok bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1]), true
	}
	return text, json.Unmarshal(value, &text) == nil
}

// VisitMembers calls visit for each member of a JSON object, in order. object must be
// valid JSON. member is the text of name, colon and value, without blanks around it.
func VisitMembers(object []byte, visit func(name string, member, value []byte)) {
	at := skipBlanks(object, 0) + 1 // after the brace
	for {
		if at = skipBlanks(object, at); object[at] == '}' {
			return
		}
		begin, end := at, skipValue(object, at)
		name, _ := DecodeString(object[begin:end])
		at = skipBlanks(object, end) + 1 // after the colon
		at = skipBlanks(object, at)
		end = skipValue(object, at)
		visit(name, object[begin:end], object[at:end])
		if at = skipBlanks(object, end); object[at] == ',' {
			at++
		}
	}
}

// VisitElements calls visit for each value of a JSON array, in order. array must be valid JSON
// and begin with its bracket.
func VisitElements(array []byte, visit func(value []byte)) {
	at := skipBlanks(array, 1)
	for array[at] != ']' {
		end := skipValue(array, at)
		visit(array[at:end])
		if at = skipBlanks(array, end); array[at] == ',' {
			at = skipBlanks(array, at+1)
		}
	}
}

// skipBlanks returns the position of the first character from at on that is not blank.
func skipBlanks(text []byte, at int) int {
	for text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || text[at] == '\n' {
		at++
	}
	return at
}

// skipValue returns the position after the JSON value that begins at position at.
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

// skipString returns the position after the JSON string that begins at position at.
func skipString(text []byte, at int) int {
	for at++; text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return at + 1
}
