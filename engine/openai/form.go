package openai

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// formRules says for each kind and rule of structured_outputs as which field of
// the request it is sent. Kinds and rules that are not here cannot be had.
//
// Tried, on a processor: vLLM 0.32, our simulated server, SGLang 0.5.23, llama.cpp
// b11669. Ollama 0.17.4 has no field of any such name.
var formRules = map[string]map[string]string{
	kindVLLM:   {"regex": "regex", "choice": "choice", "grammar": "grammar"},
	kindSim:    {"regex": "regex", "choice": "choice"},
	kindSGLang: {"regex": "regex", "choice": "ebnf", "grammar": "ebnf"},
	kindLlama:  {"choice": "grammar", "grammar": "grammar"},
}

// formSince is the release from which vLLM takes structured_outputs. Older ones
// have fields of other names, and ignore this without an error.
var formSince = release{0, 11, 0}

// formOf names what gives a job's answers a form; empty for nothing.
func formOf(p engine.Params) string {
	switch {
	case len(p.Schema) > 0:
		return "json_schema"
	case p.Sampling["structured_outputs"] != nil:
		return "structured_outputs"
	}
	return ""
}

// formField gives the rule that sampling parameters hold for the form of answers
// as the server takes it.
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
		return param{}, errors.New("sampling parameter structured_outputs and json_schema both say what form answers have: remove one")
	case !ok:
		return param{}, fmt.Errorf("structured_outputs.%s cannot be honoured by a server of kind %s: remove it, use json_schema, or use vLLM", name, t.kind)
	case t.kind == kindVLLM && t.olderThan(formSince):
		return param{}, fmt.Errorf("sampling parameter structured_outputs needs vLLM %v, the server runs %s: remove it, or update the server", formSince, t.version)
	case t.kind == kindLlama && p.Model.Kind == rowmill.KindReasoning:
		return param{}, fmt.Errorf("structured_outputs.%s cannot be honoured by llama.cpp on a model that reasons, whose reasoning it would bind too: use json_schema, or use vLLM", name)
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

// grammarOf is the grammar of a list of choices, in the form of GBNF and of
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

// An asked is what a job's requests ask for beside their prompts, by which a
// refusal tells whether every other row would be refused too.
type asked struct {
	form   string   // what gives answers a form, by formOf
	params []string // sampling parameters, by the server's names
	extras []extra  // what no job has asked for
}

// refusedParam is which parameter of the job's a server says that it refuses;
// empty for none.
func (a asked) refusedParam(f serverFault) string {
	for _, name := range a.params {
		if name == f.param {
			return name
		}
	}
	return ""
}
