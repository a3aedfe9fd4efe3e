package prompt

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/rowmill/rowmill/tokenize"
)

// None is the template of models whose prompts we cannot render: a row's text
// and the system prompt are counted, nothing else.
const None = "none"

// A Template is how the servers of a model family turn a row into a prompt. The
// zero Template is None.
type Template struct {
	name   string
	family family
}

// A family renders prompts.
type family struct {
	// render lists what a prompt of the job is made of, in order.
	render func(Job) []piece

	// trims says that white space around the row's text is dropped.
	trims bool

	// apart says that some servers tokenize texts by themselves, so that names of
	// special tokens in them mean nothing.
	apart bool

	// markers are beginnings of the names of special tokens. A text without
	// them holds none.
	markers []string
}

// A piece is a part of a prompt: a special token, an ordinary text, or the place
// of the row's text.
type piece struct {
	special string
	text    string
	row     bool
}

// Job is what all rows of a job have in common.
type Job struct {
	System string // system prompt; empty for none

	// Schema is the text of the JSON Schema, only where the server writes it
	// into the prompt. No kind of server that engine/openai knows does. Only
	// the harmony format says how; other templates count it as a part of the
	// system prompt.
	Schema string

	// Extras are the fields that a model adds to every request
	// (rowmill.Model.RequestExtras). Templates look at
	// chat_template_kwargs.enable_thinking and at reasoning_effort.
	Extras map[string]any
}

// Find returns the template with the name; the empty name is None.
func Find(name string) (Template, error) {
	if name == "" {
		name = None
	}
	found, ok := families[name]
	if !ok {
		return Template{}, fmt.Errorf("template %q is not known: use one of %s", name, strings.Join(Names(), ", "))
	}
	return Template{name: name, family: found}, nil
}

// Names lists the templates, sorted.
func Names() []string { return slices.Sorted(maps.Keys(families)) }

// Name is what Find knows the template by.
func (t Template) Name() string {
	if t.name == "" {
		return None
	}
	return t.name
}

// Encoding returns the encoding to count the template's prompts with: servers
// that render the prompt to a string find special tokens in rows, too.
func (t Template) Encoding(e *tokenize.Encoding) *tokenize.Encoding {
	if t.family.apart || t.family.render == nil {
		return e
	}
	return e.WithSpecials()
}

// families are the templates by name. What is called published is the
// chat_template of the model's tokenizer_config.json, which vLLM, SGLang and
// llama.cpp run with messages, without tools, and with add_generation_prompt.
var families = map[string]family{
	None:               {render: renderNone, apart: true},
	"embedding":        {render: renderEmbedding},
	"qwen-3-embedding": {render: renderQwenEmbedding, markers: qwenMarkers},
	"chatml":           {render: renderChatML, markers: []string{"<|im_"}},
	"qwen-3":           {render: renderQwen, markers: qwenMarkers},
	"qwen-3-thinking":  {render: renderQwenThinking, markers: qwenMarkers},
	"llama-3":          {render: renderLlama, trims: true, markers: []string{"<|"}},
	"gemma":            {render: renderGemma, trims: true, markers: gemmaMarkers},
	"harmony":          {render: renderHarmony, apart: true, markers: []string{"<|"}},
}

func special(name string) piece { return piece{special: name} }
func plain(s string) piece      { return piece{text: s} }

var rowText = piece{row: true}

// trim drops white space as Jinja's trim filter does, which is Python's strip:
// Unicode's white space and the separators 1C to 1F.
func trim(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f })
}

// system is the job's system prompt with the schema, for templates that have no
// place of its own for that.
func (j Job) system() string {
	if j.Schema != "" && j.System != "" {
		return j.System + "\n\n" + j.Schema
	}
	return j.System + j.Schema
}

// thinks reports whether the model may think: neither enable_thinking is false
// nor reasoning_effort "none", which vLLM, SGLang and llama.cpp turn into that.
func (j Job) thinks() bool {
	kwargs, _ := j.Extras["chat_template_kwargs"].(map[string]any)
	return kwargs["enable_thinking"] != false && j.Extras["reasoning_effort"] != "none"
}

// effort is the reasoning effort that the request asks for, else the default of
// the published template of gpt-oss.
func (j Job) effort() string {
	kwargs, _ := j.Extras["chat_template_kwargs"].(map[string]any)
	for _, given := range []any{kwargs["reasoning_effort"], j.Extras["reasoning_effort"]} {
		if effort, ok := given.(string); ok && effort != "" {
			return effort
		}
	}
	return "medium"
}

// renderNone counts what is known: the texts. They stand apart, as they do with
// any role marker between them.
func renderNone(j Job) []piece {
	if j.system() == "" {
		return []piece{rowText}
	}
	return []piece{plain(j.system()), border, rowText}
}

// border separates two texts and counts nothing.
var border = piece{}

// renderEmbedding is a text as it is. Vocabularies that add tokens around every
// text show as an offset of the calibration: 2 for BERT's [CLS] and [SEP].
func renderEmbedding(Job) []piece { return []piece{rowText} }
