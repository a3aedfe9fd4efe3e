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

// paramForm is the sampling parameter that says what form answers have, beside
// json_schema. It holds one rule other than a JSON Schema.
const paramForm = "structured_outputs"

// olderForms are the names under which clients of vLLM before 0.12 ask for the
// same, and the rule that each holds; "" for an object of rules, as today's name
// has it.
var olderForms = map[string]string{
	paramForm: "", "guided_decoding": "", "guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar",
}

// notInForm are further members of such an object, with the reason why they are
// refused where they ask for something.
var notInForm = map[string]string{
	"structural_tag":                "it is for calls of tools, which rows have not; use grammar",
	"whitespace_pattern":            "it is a setting of the server; leave it out",
	"disable_any_whitespace":        "it is a setting of the server; leave it out",
	"disable_additional_properties": "say it in the schema, by additionalProperties",
	"disable_fallback":              "the server chooses what guides it; leave it out",
	"backend":                       "the server chooses what guides it; leave it out",
}

// anyObject is the schema behind json_object.
var anyObject = json.RawMessage(`{"type":"object"}`)

// An asked form is what sampling_params say of the form of answers.
type askedForm struct {
	field  string          // where it stands, for people; empty for nowhere
	schema json.RawMessage // nil where it is no JSON Schema; its members stand in the order they were sent
}

// takeForm gives what the parameters ask for in the form that is kept: a JSON
// Schema is taken out of them, every other rule stands under today's name.
func takeForm(problems *request.Problems, raw json.RawMessage, given map[string]any) (form askedForm) {
	fault := func(field, format string, args ...any) {
		problems.AddCode(catalog.CodeInvalidSampling, rowmill.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	var params map[string]json.RawMessage
	_ = json.Unmarshal(raw, &params) // given was decoded from it
	var rules map[string]json.RawMessage
	for _, name := range slices.Sorted(maps.Keys(olderForms)) {
		value, there := given[name]
		delete(given, name)
		field := fieldSampling + "." + name
		switch rule := olderForms[name]; {
		case !there || value == nil:
			continue
		case form.field != "":
			fault(field, "says what %s says; send one of them", form.field)
			return askedForm{}
		case rule != "":
			rules = map[string]json.RawMessage{rule: params[name]}
		default:
			if err := json.Unmarshal(params[name], &rules); err != nil {
				fault(field, "must be an object with one of json, regex, choice and grammar")
				return askedForm{}
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
		return askedForm{}
	}
	switch kind {
	case "json":
		form.schema = unquoted(rules[kind])
	case "json_object":
		if form.schema = anyObject; string(rules[kind]) != "true" {
			fault(form.field, "has a json_object that is not true or false")
		}
	default:
		rule, _ := decodeNumbers(rules[kind]) // it is part of what was decoded
		given[paramForm] = map[string]any{kind: rule}
	}
	return form
}

// onlyRule is the name of the one rule of an object, in which a null asks for
// nothing, and neither does a switch that is off.
func onlyRule(rules map[string]json.RawMessage) (kind string, err error) {
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		value := string(rules[name])
		isSwitch := name == "json_object" || strings.HasPrefix(name, "disable_")
		reason, refused := notInForm[name]
		switch {
		case value == "null", value == "false" && isSwitch:
		case refused:
			return "", fmt.Errorf("has %s, which is not supported: %s", name, reason)
		case name != "json" && name != "json_object" && name != "regex" && name != "choice" && name != "grammar":
			return "", fmt.Errorf("has %q, which is not known; known are json, regex, choice and grammar", spelling.Shorten(name, 64))
		case kind != "":
			return "", fmt.Errorf("has %s and %s, and an answer has one form; send one", kind, name)
		default:
			kind = name
		}
	}
	if kind == "" {
		return "", errors.New("must have one of json, regex, choice and grammar")
	}
	return kind, nil
}

// unquoted is the JSON that a value holds as text, or the value.
func unquoted(value json.RawMessage) json.RawMessage {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return value
	}
	return bytes.TrimSpace([]byte(text))
}

// checkForm adds what is wrong with the rule among merged parameters.
func checkForm(problems *request.Problems, params map[string]any) {
	rule, _ := params[paramForm].(map[string]any)
	if rule == nil {
		return
	}
	if _, err := schema.CompileConstraint(rule); err != nil {
		problems.AddCode(catalog.CodeInvalidSampling, rowmill.FieldError{Field: fieldSampling + "." + paramForm, Message: err.Error()})
	}
}
