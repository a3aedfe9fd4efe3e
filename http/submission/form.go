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
	"github.com/rowmill/rowmill/internal/spelling"
)

// paramForm is the sampling parameter that constrains the output by a rule other than a
// JSON Schema. json_schema is the other way.
const paramForm = "structured_outputs"

// constraintNames has the names of the same parameter in clients of vLLM before 0.12, and
// the rule that each holds; "" means an object of rules, as in structured_outputs.
var constraintNames = map[string]string{
	paramForm: "", "guided_decoding": "", "guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar",
}

// refusedMembers has other members of the object, and the reason why they are refused if
// set.
var refusedMembers = map[string]string{
	"structural_tag":                "it is for calls of tools, which rows have not; use grammar",
	"whitespace_pattern":            "it is a setting of the server; leave it out",
	"disable_any_whitespace":        "it is a setting of the server; leave it out",
	"disable_additional_properties": "say it in the schema, by additionalProperties",
	"disable_fallback":              "the server chooses the backend; leave it out",
	"backend":                       "the server chooses the backend; leave it out",
}

// anyObject is the JSON Schema that json_object means.
var anyObject = json.RawMessage(`{"type":"object"}`)

// outputConstraint is the output constraint in sampling_params.
type outputConstraint struct {
	field  string          // name of the field in errors; empty: no constraint
	schema json.RawMessage // nil if the constraint is not a JSON Schema; keeps the order of members
}

// takeConstraint normalizes the output constraint. It returns a JSON Schema and removes
// it from given; any other rule stays in given under the name structured_outputs.
func takeConstraint(problems *request.Problems, raw json.RawMessage, given map[string]any) (form outputConstraint) {
	fault := func(field, format string, args ...any) {
		problems.AddCode(catalog.CodeInvalidSampling, rowmill.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	var params map[string]json.RawMessage
	_ = json.Unmarshal(raw, &params) // given was decoded from it
	var rules map[string]json.RawMessage
	for _, name := range slices.Sorted(maps.Keys(constraintNames)) {
		value, there := given[name]
		delete(given, name)
		field := fieldSampling + "." + name
		switch rule := constraintNames[name]; {
		case !there || value == nil:
			continue
		case form.field != "":
			fault(field, "has the same meaning as %s; send one of them", form.field)
			return outputConstraint{}
		case rule != "":
			rules = map[string]json.RawMessage{rule: params[name]}
		default:
			if err := json.Unmarshal(params[name], &rules); err != nil {
				fault(field, "must be an object with one of json, regex, choice and grammar")
				return outputConstraint{}
			}
		}
		form.field = field
	}
	if form.field == "" {
		return form
	}
	kind, err := onlyRule(rules)
	if err != nil {
		fault(form.field, "%s", err)
		return outputConstraint{}
	}
	switch kind {
	case "json":
		form.schema = unquoted(rules[kind])
	case "json_object":
		if form.schema = anyObject; string(rules[kind]) != "true" {
			fault(form.field, "has a json_object that is not true or false")
		}
	default:
		rule, _ := decodeNumbers(rules[kind]) // cannot fail: it is part of decoded JSON
		given[paramForm] = map[string]any{kind: rule}
	}
	return form
}

// onlyRule returns the name of the only rule in an object. Members that are null, and
// switches that are false, do not count.
func onlyRule(rules map[string]json.RawMessage) (kind string, err error) {
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		value := string(rules[name])
		isSwitch := name == "json_object" || strings.HasPrefix(name, "disable_")
		reason, refused := refusedMembers[name]
		switch {
		case value == "null", value == "false" && isSwitch:
		case refused:
			return "", fmt.Errorf("has %s, which is not supported: %s", name, reason)
		case name != "json" && name != "json_object" && name != "regex" && name != "choice" && name != "grammar":
			return "", fmt.Errorf("has %q, which is not known; known are json, regex, choice and grammar", spelling.Shorten(name, 64))
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

// unquoted returns the JSON inside a string, or value itself if it is not a string.
func unquoted(value json.RawMessage) json.RawMessage {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return value
	}
	return bytes.TrimSpace([]byte(text))
}

// checkConstraint adds the problems of the output constraint in merged parameters.
func checkConstraint(problems *request.Problems, params map[string]any) {
	rule, _ := params[paramForm].(map[string]any)
	if rule == nil {
		return
	}
	if _, err := schema.CompileConstraint(rule); err != nil {
		problems.AddCode(catalog.CodeInvalidSampling, rowmill.FieldError{Field: fieldSampling + "." + paramForm, Message: err.Error()})
	}
}
