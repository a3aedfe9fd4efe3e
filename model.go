package rowmill

// Kind is what a model returns for a row.
type Kind string

// The kinds of model.
const (
	KindGeneration Kind = "generation" // text
	KindReasoning  Kind = "reasoning"  // {"reasoning_content": …, "content": …}
	KindEmbedding  Kind = "embedding"  // a list of Dimension floats
)

// Model is one entry of the catalog.
type Model struct {
	ID            string         `json:"id" yaml:"id"`
	Kind          Kind           `json:"kind" yaml:"kind"`
	ContextLength int            `json:"context_length" yaml:"context_length"`           // tokens, prompt and answer together
	Dimension     int            `json:"dimension,omitempty" yaml:"dimension"`           // floats per row, embedding models only
	EngineNames   []string       `json:"engine_names" yaml:"engine_names"`               // names servers use for it, such as the Hugging Face id
	Sampling      map[string]any `json:"sampling" yaml:"sampling"`                       // defaults a caller's parameters are merged over
	RequestExtras map[string]any `json:"request_extras,omitempty" yaml:"request_extras"` // further fields of every request body
	NoLogprobs    bool           `json:"no_logprobs,omitempty" yaml:"no_logprobs"`       // do not ask for log probabilities
	InputPrice    float64        `json:"input_price" yaml:"input_price"`                 // USD per million tokens
	OutputPrice   float64        `json:"output_price" yaml:"output_price"`               // USD per million tokens
}

// Cost returns what the tokens of j's completed rows cost on the model, USD.
func (m Model) Cost(j *Job) *float64 {
	var usd float64
	if j.InputTokens != nil {
		usd += float64(*j.InputTokens) * m.InputPrice / 1e6
	}
	if j.OutputTokens != nil {
		usd += float64(*j.OutputTokens) * m.OutputPrice / 1e6
	}
	return &usd
}
