package submission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/engine/schema"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// paramConstraint is the sampling parameter that constrains the form of the output: an
// object with one rule, such as {"regex": "…"}. A client can also send a JSON Schema in
// the field json_schema.
const paramConstraint = "structured_outputs"

// constraintNames lists all names of the parameter paramConstraint, including the names
// in vLLM before 0.12. For a name whose value is a rule itself, the map has the rule's
// name. "" means that the value is an object with a rule.
var constraintNames = map[string]string{
	paramConstraint: "", "guided_decoding": "", "guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar",
}

// refusedMembers maps each refused member of a structured_outputs object to the reason
// for the refusal.
var refusedMembers = map[string]string{
	"structural_tag":                "it is for calls of tools, which rows cannot have; use grammar",
	"whitespace_pattern":            "it is a setting of the server; leave it out",
	"disable_any_whitespace":        "it is a setting of the server; leave it out",
	"disable_additional_properties": "say it in the schema, by additionalProperties",
	"disable_fallback":              "the server chooses the backend; leave it out",
	"backend":                       "the server chooses the backend; leave it out",
}

// anyObject is the JSON Schema of the rule json_object: any JSON object.
var anyObject = json.RawMessage(`{"type":"object"}`)

// outputConstraint is a constraint on the form of the output that sampling_params
// contains.
type outputConstraint struct {
	field  string          // name of the constraint's field for errors; empty: no constraint
	schema json.RawMessage // the JSON Schema as the client wrote it; nil if the constraint is of another kind
}

// extractConstraint removes the output constraint from given, the decoded sampling_params, and
// returns it. raw is the JSON text of given. If the constraint is not a JSON Schema, the
// rule goes back into given under the name structured_outputs.
func extractConstraint(problems *request.Problems, raw json.RawMessage, given map[string]any) (constraint outputConstraint) {
	fault := func(field, format string, args ...any) {
		problems.AddWithCode(catalog.CodeInvalidSampling, rowmill.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	var params map[string]json.RawMessage
	_ = json.Unmarshal(raw, &params) // cannot fail: given was decoded from raw
	var rules map[string]json.RawMessage
	for _, name := range slices.Sorted(maps.Keys(constraintNames)) {
		value, there := given[name]
		delete(given, name)
		field := fieldSampling + "." + name
		switch rule := constraintNames[name]; {
		case !there || value == nil:
			continue
		case constraint.field != "":
			fault(field, "has the same meaning as %s; send one of them", constraint.field)
			return outputConstraint{}
		case rule != "":
			rules = map[string]json.RawMessage{rule: params[name]}
		default:
			if err := json.Unmarshal(params[name], &rules); err != nil {
				fault(field, "must be an object with one of json, regex, choice and grammar")
				return outputConstraint{}
			}
		}
		constraint.field = field
	}
	if constraint.field == "" {
		return constraint
	}
	kind, err := findOnlyRule(rules)
	if err != nil {
		fault(constraint.field, "%s", err)
		return outputConstraint{}
	}
	switch kind {
	case "json":
		constraint.schema = unquoteJSON(rules[kind])
	case "json_object":
		if constraint.schema = anyObject; string(rules[kind]) != "true" {
			fault(constraint.field, "has a json_object that is not true or false")
		}
	default:
		rule, _ := decodeWithNumbers(rules[kind]) // cannot fail: the rule is part of decoded JSON
		given[paramConstraint] = map[string]any{kind: rule}
	}
	return constraint
}

// findOnlyRule returns the name of the only rule in an object, or an error if the object does
// not have exactly one rule. It ignores members that are null, and switches that are false.
func findOnlyRule(rules map[string]json.RawMessage) (kind string, err error) {
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		value := string(rules[name])
		isSwitch := name == "json_object" || strings.HasPrefix(name, "disable_")
		reason, refused := refusedMembers[name]
		switch {
		case value == "null", value == "false" && isSwitch:
		case refused:
			return "", fmt.Errorf("has %s, which is not supported: %s", name, reason)
		case name != "json" && name != "json_object" && name != "regex" && name != "choice" && name != "grammar":
			return "", fmt.Errorf("has %q, which is unknown; the rules are json, regex, choice and grammar", textfmt.Shorten(name, 64))
		case kind != "":
			return "", fmt.Errorf("has both %s and %s; send only one of them, because an answer can have only one form", kind, name)
		default:
			kind = name
		}
	}
	if kind == "" {
		return "", errors.New("must have one of json, regex, choice and grammar")
	}
	return kind, nil
}

// unquoteJSON returns the JSON text in a JSON string, or value itself if value is not a
// string.
func unquoteJSON(value json.RawMessage) json.RawMessage {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return value
	}
	return bytes.TrimSpace([]byte(text))
}

// checkConstraint adds the problems of the output constraint in params to problems.
// params has the parameters of the client, the Function and the model together.
func checkConstraint(problems *request.Problems, params map[string]any) {
	rule, _ := params[paramConstraint].(map[string]any)
	if rule == nil {
		return
	}
	if _, err := schema.CompileConstraint(rule); err != nil {
		problems.AddWithCode(catalog.CodeInvalidSampling, rowmill.FieldError{Field: fieldSampling + "." + paramConstraint, Message: err.Error()})
	}
}
