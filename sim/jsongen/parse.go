package jsongen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// object is a JSON object that remembers the order of its members, because a
// model writes them in the order of the schema.
type object struct {
	names  []string
	values map[string]any
}

func (o *object) get(name string) (any, bool) {
	value, ok := o.values[name]
	return value, ok
}

// parse reads one JSON value: nil, bool, json.Number, string, []any or
// *object.
func parse(data []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	value, err := parseValue(decoder)
	if err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text after the value")
	}
	return value, nil
}

func parseValue(decoder *json.Decoder) (any, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		o := &object{values: map[string]any{}}
		for decoder.More() {
			name, err := decoder.Token()
			if err != nil {
				return nil, err
			}
			text, ok := name.(string)
			if !ok {
				return nil, fmt.Errorf("member name %v is no string", name)
			}
			value, err := parseValue(decoder)
			if err != nil {
				return nil, err
			}
			if _, twice := o.values[text]; !twice {
				o.names = append(o.names, text)
			}
			o.values[text] = value
		}
		_, err := decoder.Token()
		return o, err
	case json.Delim('['):
		list := []any{}
		for decoder.More() {
			value, err := parseValue(decoder)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err := decoder.Token()
		return list, err
	}
	return token, nil
}

// appendValue writes a parsed value in the style of the generator: a blank
// after every comma and colon.
func appendValue(dst []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		if v {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	case json.Number:
		return append(dst, v...)
	case string:
		return appendString(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, item := range v {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendValue(dst, item)
		}
		return append(dst, ']')
	case *object:
		dst = append(dst, '{')
		for i, name := range v.names {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendString(dst, name)
			dst = append(dst, ": "...)
			dst = appendValue(dst, v.values[name])
		}
		return append(dst, '}')
	}
	return dst
}

// appendString writes a JSON string.
func appendString(dst []byte, text string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case b == '"' || b == '\\':
			dst = append(dst, '\\', b)
		case b < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
		default:
			dst = append(dst, b)
		}
	}
	return append(dst, '"')
}

// sameValue reports whether two parsed values are equal as JSON.
func sameValue(a, b any) bool {
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		return ok && equalNumbers(x, y)
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !sameValue(x[i], y[i]) {
				return false
			}
		}
		return true
	case *object:
		y, ok := b.(*object)
		if !ok || len(x.values) != len(y.values) {
			return false
		}
		for name, value := range x.values {
			other, ok := y.values[name]
			if !ok || !sameValue(value, other) {
				return false
			}
		}
		return true
	}
	return a == b
}

// unescapePointer turns one step of a JSON pointer into a member name.
func unescapePointer(step string) string {
	return strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
}
