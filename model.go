package rowmill

// Kind is the type of a model's answers.
type Kind string

// The kinds of model.
const (
	KindGeneration Kind = "generation" // answers are text
	KindReasoning  Kind = "reasoning"  // answers are {"reasoning_content": …, "content": …}
	KindEmbedding  Kind = "embedding"  // answers are lists of Dimension floats

	// KindRaw marks a job whose rows are request bodies and whose outputs are the
	// servers' replies. No model of the catalog has this kind.
	KindRaw Kind = "raw"
)

// Model is a model that jobs can run on: a catalog entry, or a model of a server. A
// catalog entry may leave out (0 or empty) the values that servers report.
type Model struct {
	ID            string         `json:"id" yaml:"id"`
	Kind          Kind           `json:"kind" yaml:"kind"`
	ContextLength int            `json:"context_length" yaml:"context_length"`           // tokens, prompt and answer together
	Dimension     int            `json:"dimension,omitempty" yaml:"dimension"`           // floats per row, embedding models only
	Tokenizer     string         `json:"tokenizer,omitempty" yaml:"tokenizer"`           // name of the tokenizer
	Template      string         `json:"template,omitempty" yaml:"template"`             // name of the chat template
	EngineNames   []string       `json:"engine_names" yaml:"engine_names"`               // names of the model at inference servers, such as its Hugging Face id
	Sampling      map[string]any `json:"sampling" yaml:"sampling"`                       // defaults; the caller's parameters override them
	RequestExtras map[string]any `json:"request_extras,omitempty" yaml:"request_extras"` // additional fields of every request body
	NoLogprobs    bool           `json:"no_logprobs,omitempty" yaml:"no_logprobs"`       // do not request log probabilities
	InputPrice    float64        `json:"input_price" yaml:"input_price"`                 // USD per million tokens
	OutputPrice   float64        `json:"output_price" yaml:"output_price"`               // USD per million tokens
	NoPrice       bool           `json:"no_price,omitempty" yaml:"-"`                    // the price is unknown; both prices are 0
}
