package prompt

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/rowmill/rowmill/tokenize"
)

// None is the template of models whose prompts we cannot render. Only a row's
// text and the system prompt are counted.
const None = "none"

// Template is how the servers of a model family turn a row into a prompt. The zero
// Template is None.
type Template struct {
	name   string
	family templateSpec
}

// templateSpec is the definition of a template.
type templateSpec struct {
	// render returns the pieces of the prompts of a job, in order.
	render func(JobPrompt) []promptPiece

	// trims is true if the template removes white space around the row's text.
	trims bool

	// separateTexts is true if some servers tokenize texts separately, so that names of
	// special tokens in texts are ordinary text.
	separateTexts bool

	// markers are beginnings of the names of special tokens. A text that contains no
	// marker contains no name of a special token.
	markers []string
}

// promptPiece is a part of a prompt: a special token, an ordinary text, or the
// position of the row's text.
type promptPiece struct {
	special string
	text    string
	row     bool
}

// JobPrompt has the fields that all rows of a job have in common.
type JobPrompt struct {
	System string // system prompt; empty for none

	// Extras are the fields that a model adds to every request
	// (rowmill.Model.RequestExtras). Templates use
	// chat_template_kwargs.enable_thinking and reasoning_effort.
	Extras map[string]any
}

// FindTemplate returns the template with this name. The empty name means None.
func FindTemplate(name string) (Template, error) {
	if name == "" {
		name = None
	}
	found, ok := families[name]
	if !ok {
		return Template{}, fmt.Errorf("template %q is not known: use one of %s", name, strings.Join(Names(), ", "))
	}
	return Template{name: name, family: found}, nil
}

// Names returns the names of the templates, sorted.
func Names() []string { return slices.Sorted(maps.Keys(families)) }

// Name returns the name of the template, as Find accepts it.
func (t Template) Name() string {
	if t.name == "" {
		return None
	}
	return t.name
}

// Encoding returns the encoding for counting the template's prompts. A server that
// renders the prompt to one string reads a text in a row such as <|end|> as a special
// token, and so does the returned encoding.
func (t Template) Encoding(e *tokenize.Encoding) *tokenize.Encoding {
	if t.family.separateTexts || t.family.render == nil {
		return e
	}
	return e.WithSpecials()
}

// families has the templates by name. "Published" means the chat_template in the
// model's tokenizer_config.json. vLLM, SGLang and llama.cpp run this template with
// messages, without tools, and with add_generation_prompt.
var families = map[string]templateSpec{
	None:               {render: renderNone, separateTexts: true},
	"embedding":        {render: renderEmbedding},
	"qwen-3-embedding": {render: renderQwenEmbedding, markers: qwenMarkers},
	"chatml":           {render: renderChatML, markers: []string{"<|im_"}},
	"qwen-3":           {render: renderQwen, markers: qwenMarkers},
	"qwen-3-thinking":  {render: renderQwenThinking, markers: qwenMarkers},
	"llama-3":          {render: renderLlama, trims: true, markers: []string{"<|"}},
	"gemma":            {render: renderGemma, trims: true, markers: gemmaMarkers},
	"harmony":          {render: renderHarmony, separateTexts: true, markers: []string{"<|"}},
}

func specialPiece(name string) promptPiece { return promptPiece{special: name} }
func textPiece(s string) promptPiece       { return promptPiece{text: s} }

var rowText = promptPiece{row: true}

// trim removes white space at both ends like Jinja's trim filter, which is Python's
// strip: Unicode's white space and the separators U+001C to U+001F.
func trim(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f })
}

// mayThink reports whether the model may think: enable_thinking is not false, and
// reasoning_effort is not "none", which vLLM, SGLang and llama.cpp turn into
// enable_thinking false.
func (j JobPrompt) mayThink() bool {
	kwargs, _ := j.Extras["chat_template_kwargs"].(map[string]any)
	return kwargs["enable_thinking"] != false && j.Extras["reasoning_effort"] != "none"
}

// effort returns the reasoning effort of the request, or the default of the
// published template of gpt-oss.
func (j JobPrompt) effort() string {
	kwargs, _ := j.Extras["chat_template_kwargs"].(map[string]any)
	for _, given := range []any{kwargs["reasoning_effort"], j.Extras["reasoning_effort"]} {
		if effort, ok := given.(string); ok && effort != "" {
			return effort
		}
	}
	return "medium"
}

// renderNone returns the texts of a job for a model without a known template. The texts
// are separate, as if a role marker were between them.
func renderNone(j JobPrompt) []promptPiece {
	if j.System == "" {
		return []promptPiece{rowText}
	}
	return []promptPiece{textPiece(j.System), separator, rowText}
}

// separator is a piece that separates two texts and has no tokens.
var separator = promptPiece{}

// renderEmbedding returns the text alone. If a vocabulary adds tokens around
// every text, the calibration learns their number as its offset: 2 for BERT's
// [CLS] and [SEP].
func renderEmbedding(JobPrompt) []promptPiece { return []promptPiece{rowText} }
