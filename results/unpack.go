package results

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rowmill/rowmill/internal/columnar"
)

// A property is a property of the answers of a job with a JSON Schema, which results can have as
// a column. Objects, lists and values of several types are JSON texts.
type property struct {
	name string
	kind columnar.TableKind
}

// HasProperties reports whether a JSON Schema describes objects with properties.
func HasProperties(schema json.RawMessage) bool { return len(listProperties(schema)) > 0 }

// listProperties returns the properties of a JSON Schema in their order.
func listProperties(schema json.RawMessage) (all []property) {
	properties := schemaNode{schema, schema}.resolve().members()["properties"]
	in := json.NewDecoder(bytes.NewReader(properties))
	if start, err := in.Token(); err != nil || start != json.Delim('{') {
		return nil
	}
	for in.More() {
		name, _ := in.Token() // a name, because More is true
		var value json.RawMessage
		if in.Decode(&value) != nil {
			return nil
		}
		if text, isText := name.(string); isText {
			all = append(all, property{text, schemaNode{schema, value}.kind()})
		}
	}
	return all
}

// A schemaNode is a schema within a JSON Schema.
type schemaNode struct {
	document json.RawMessage // the whole JSON Schema
	value    json.RawMessage
}

// maxReferences limits a chain of references in a schema, which may be a circle.
const maxReferences = 16

// members returns the members of the schema; nil if it is no object.
func (n schemaNode) members() (members map[string]json.RawMessage) {
	if json.Unmarshal(n.value, &members) != nil {
		return nil
	}
	return members
}

// resolve follows references within the document, and alternatives with null.
func (n schemaNode) resolve() schemaNode {
	for range maxReferences {
		members := n.members()
		var ref string
		var options []json.RawMessage
		for _, name := range []string{"anyOf", "oneOf", "allOf"} {
			if options == nil {
				_ = json.Unmarshal(members[name], &options) // absent, or a schema that was refused at the submission
			}
		}
		options = slices.DeleteFunc(options, func(option json.RawMessage) bool {
			return string(schemaNode{n.document, option}.members()["type"]) == `"null"`
		})
		switch {
		case json.Unmarshal(members["$ref"], &ref) == nil && strings.HasPrefix(ref, "#/"):
			n.value = n.document
			for _, step := range strings.Split(ref[2:], "/") { // a JSON Pointer, RFC 6901
				n.value = n.members()[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
			}
		case len(options) == 1:
			n.value = options[0]
		default:
			return n
		}
	}
	return n
}

// kind returns the kind of a column for values of the schema.
func (n schemaNode) kind() columnar.TableKind {
	text := n.resolve().members()["type"]
	var types []string
	if json.Unmarshal(text, &types) != nil {
		types = make([]string, 1)
		_ = json.Unmarshal(text, &types[0]) // absent: no type
	}
	types = slices.DeleteFunc(types, func(name string) bool { return name == "null" })
	if len(types) == 1 {
		switch types[0] {
		case "integer":
			return columnar.TableInt
		case "number":
			return columnar.TableReal
		case "boolean":
			return columnar.TableBool
		}
	}
	return columnar.TableText
}

// appendProperties appends the properties of an answer to the columns from first on. They are null
// if the answer is not an object, lacks the property, or has a value of another type.
func appendProperties(to *columnar.TableWriter, first int, properties []property, answer string) {
	content := []byte(answer)
	if _, inner, ok := SplitReasoning(content); ok {
		content = inner
	}
	var values map[string]json.RawMessage
	_ = json.Unmarshal(content, &values) // then all properties are null
	for i, p := range properties {
		if value := values[p.name]; !appendProperty(to, first+i, p.kind, value) {
			to.AppendNull(first + i)
		}
	}
}

// appendProperty appends a JSON value to a column. It returns false if the value is null or has
// another type.
func appendProperty(to *columnar.TableWriter, c int, kind columnar.TableKind, value json.RawMessage) bool {
	if len(value) == 0 || string(value) == "null" {
		return false
	}
	switch kind {
	case columnar.TableInt:
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			real, err := strconv.ParseFloat(string(value), 64) // JSON Schema counts 1.0 as an integer
			if err != nil || real != math.Trunc(real) || math.Abs(real) > 1<<53 {
				return false
			}
			n = int64(real)
		}
		to.AppendInt(c, n)
	case columnar.TableReal:
		real, err := strconv.ParseFloat(string(value), 64)
		if err != nil {
			return false
		}
		to.AppendReal(c, real)
	case columnar.TableBool:
		if text := string(value); text != "true" && text != "false" {
			return false
		}
		to.AppendBool(c, value[0] == 't')
	default:
		var text string
		if json.Unmarshal(value, &text) != nil {
			var compact bytes.Buffer
			_ = json.Compact(&compact, value) // part of valid JSON
			text = compact.String()
		}
		to.AppendText(c, text)
	}
	return true
}
