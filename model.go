package rowmill

// Kind is what a model returns for a row.
type Kind string

// The kinds of model.
const (
	KindGeneration Kind = "generation" // text
	KindReasoning  Kind = "reasoning"  // {"reasoning_content": …, "content": …}
	KindEmbedding  Kind = "embedding"  // a list of Dimension floats

	// KindRaw is no kind of a model, but of a job's rows: its Spec names the model
	// with it where rows are request bodies, and outputs the servers' replies.
	KindRaw Kind = "raw"
)

// Model is what a job runs on: an entry of the catalog, or what servers serve.
// In the catalog what servers tell may be left out, which is 0 or empty.
type Model struct {
	ID            string         `json:"id" yaml:"id"`
	Kind          Kind           `json:"kind" yaml:"kind"`
	ContextLength int            `json:"context_length" yaml:"context_length"`           // tokens, prompt and answer together
	Dimension     int            `json:"dimension,omitempty" yaml:"dimension"`           // floats per row, embedding models only
	Tokenizer     string         `json:"tokenizer,omitempty" yaml:"tokenizer"`           // how its text becomes tokens
	Template      string         `json:"template,omitempty" yaml:"template"`             // how a row becomes its prompt
	EngineNames   []string       `json:"engine_names" yaml:"engine_names"`               // names servers use for it, such as the Hugging Face id
	Sampling      map[string]any `json:"sampling" yaml:"sampling"`                       // defaults a caller's parameters are merged over
	RequestExtras map[string]any `json:"request_extras,omitempty" yaml:"request_extras"` // further fields of every request body
	NoLogprobs    bool           `json:"no_logprobs,omitempty" yaml:"no_logprobs"`       // do not ask for log probabilities
	InputPrice    float64        `json:"input_price" yaml:"input_price"`                 // USD per million tokens
	OutputPrice   float64        `json:"output_price" yaml:"output_price"`               // USD per million tokens
	NoPrice       bool           `json:"no_price,omitempty" yaml:"-"`                    // nobody has said what it costs; both prices are 0
}
