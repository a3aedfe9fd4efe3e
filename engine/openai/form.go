package openai

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// formRules maps a kind of server and a rule of structured_outputs to the name of the
// request field for the rule. A server does not support a kind or a rule that is missing
// here.
//
// Tested on a CPU: vLLM 0.32, Rowmill's simulated server, SGLang 0.5.23, llama.cpp
// b11669. Ollama 0.17.4 has no such field.
var formRules = map[string]map[string]string{
	kindVLLM:   {"regex": "regex", "choice": "choice", "grammar": "grammar"},
	kindSim:    {"regex": "regex", "choice": "choice"},
	kindSGLang: {"regex": "regex", "choice": "ebnf", "grammar": "ebnf"},
	kindLlama:  {"choice": "grammar", "grammar": "grammar"},
}

// formSince is the first vLLM release with the field structured_outputs. Older releases
// use other field names and ignore structured_outputs without an error.
var formSince = releaseVersion{0, 11, 0}

// constraintSettingName returns the name of the setting that constrains the form of a job's answers;
// empty if there is none.
func constraintSettingName(p engine.JobParams) string {
	switch {
	case len(p.Schema) > 0:
		return "json_schema"
	case p.Sampling["structured_outputs"] != nil:
		return "structured_outputs"
	}
	return ""
}

// constraintField returns the request field that sends the job's rule of structured_outputs
// to the server t. It returns an error if the server does not support the rule.
func constraintField(t modelTarget, p engine.JobParams) (field requestField, err error) {
	rules, _ := p.Sampling["structured_outputs"].(map[string]any)
	if len(rules) != 1 {
		return requestField{}, errors.New("sampling parameter structured_outputs must have one of regex, choice and grammar")
	}
	var name string
	for name = range rules {
	}
	rule := rules[name]
	as, ok := formRules[t.kind][name]
	switch {
	case len(p.Schema) > 0:
		return requestField{}, errors.New("sampling parameter structured_outputs and json_schema both constrain the answers: remove one")
	case !ok:
		return requestField{}, fmt.Errorf("structured_outputs.%s cannot be honoured by a server of kind %s: remove it, use json_schema, or use vLLM", name, t.kind)
	case t.kind == kindVLLM && t.isOlderThan(formSince):
		return requestField{}, fmt.Errorf("sampling parameter structured_outputs needs vLLM %v, the server runs %s: remove it, or update the server", formSince, t.version)
	case t.kind == kindLlama && p.Model.Kind == rowmill.KindReasoning:
		return requestField{}, fmt.Errorf("structured_outputs.%s cannot be honoured by llama.cpp for a reasoning model, because it would constrain the reasoning too: use json_schema, or use vLLM", name)
	}
	if name != as && name == "choice" {
		if rule, err = choiceGrammar(rule); err != nil {
			return requestField{}, err
		}
	}
	if t.kind == kindVLLM || t.kind == kindSim {
		return requestField{"structured_outputs", map[string]any{as: rule}}, nil
	}
	return requestField{as, rule}, nil
}

// choiceGrammar returns a grammar that allows exactly the strings in the list rule. The
// grammar is valid in GBNF and in XGrammar's EBNF.
func choiceGrammar(rule any) (string, error) {
	list, _ := rule.([]any)
	var b strings.Builder
	for _, entry := range list {
		text, is := entry.(string)
		if !is {
			return "", errors.New("structured_outputs.choice must be a list of strings")
		}
		if b.Len() > 0 {
			b.WriteString(" | ")
		}
		b.WriteByte('"')
		for _, c := range text {
			switch {
			case c == '"' || c == '\\':
				b.WriteString(`\` + string(c))
			case c < ' ' || c == 0x7f:
				fmt.Fprintf(&b, `\u%04x`, c)
			default:
				b.WriteRune(c)
			}
		}
		b.WriteByte('"')
	}
	if b.Len() == 0 {
		return "", errors.New("structured_outputs.choice must be a list of strings")
	}
	return "root ::= " + b.String(), nil
}

// A requestSettings lists the settings in a job's requests, without the prompts. If the server
// refuses one of these settings, it refuses every row of the job.
type requestSettings struct {
	form   string       // name of the setting that constrains the answers (see constraintSettingName)
	params []string     // sampling parameters, by the names that the server uses
	extras []extraField // fields that Rowmill added by itself
}

// refusedParam returns the name of the job's sampling parameter that the fault names;
// empty if the fault names none of them.
func (a requestSettings) refusedParam(f serverFault) string {
	for _, name := range a.params {
		if name == f.param {
			return name
		}
	}
	return ""
}
