package openai

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// formRules maps a kind of server and a rule of structured_outputs to the request field
// of the rule. Kinds and rules that are missing here are not supported.
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
var formSince = release{0, 11, 0}

// formOf names the setting that constrains a job's answers; empty for none.
func formOf(p engine.Params) string {
	switch {
	case len(p.Schema) > 0:
		return "json_schema"
	case p.Sampling["structured_outputs"] != nil:
		return "structured_outputs"
	}
	return ""
}

// formField returns the job's rule of structured_outputs as a field of the server's
// request.
func formField(t target, p engine.Params) (field param, err error) {
	rules, _ := p.Sampling["structured_outputs"].(map[string]any)
	if len(rules) != 1 {
		return param{}, errors.New("sampling parameter structured_outputs must have one of regex, choice and grammar")
	}
	var name string
	for name = range rules {
	}
	rule := rules[name]
	as, ok := formRules[t.kind][name]
	switch {
	case len(p.Schema) > 0:
		return param{}, errors.New("sampling parameter structured_outputs and json_schema both constrain the answers: remove one")
	case !ok:
		return param{}, fmt.Errorf("structured_outputs.%s cannot be honoured by a server of kind %s: remove it, use json_schema, or use vLLM", name, t.kind)
	case t.kind == kindVLLM && t.olderThan(formSince):
		return param{}, fmt.Errorf("sampling parameter structured_outputs needs vLLM %v, the server runs %s: remove it, or update the server", formSince, t.version)
	case t.kind == kindLlama && p.Model.Kind == rowmill.KindReasoning:
		return param{}, fmt.Errorf("structured_outputs.%s cannot be honoured by llama.cpp for a reasoning model, because it would constrain the reasoning too: use json_schema, or use vLLM", name)
	}
	if name != as && name == "choice" {
		if rule, err = grammarOf(rule); err != nil {
			return param{}, err
		}
	}
	if t.kind == kindVLLM || t.kind == kindSim {
		return param{"structured_outputs", map[string]any{as: rule}}, nil
	}
	return param{as, rule}, nil
}

// grammarOf returns a grammar for a list of choices, in the common syntax of GBNF and
// XGrammar's EBNF.
func grammarOf(rule any) (string, error) {
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

// An asked lists the settings in a job's requests besides the prompts. A refusal that
// names one of these settings would hit every other row of the job too.
type asked struct {
	form   string   // the setting that constrains answers, from formOf
	params []string // sampling parameters, by the server's names
	extras []extra  // fields that Rowmill added by itself
}

// refusedParam returns the job's sampling parameter that the server refuses; empty for
// none.
func (a asked) refusedParam(f serverFault) string {
	for _, name := range a.params {
		if name == f.param {
			return name
		}
	}
	return ""
}
