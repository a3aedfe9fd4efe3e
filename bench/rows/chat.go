package rows

import "math"

// Request is the chat request that all contenders send.
type Request struct {
	Model       string    `json:"model"`
	Messages    []Message `json:"messages"`
	Temperature float64   `json:"temperature"`
	MaxTokens   int       `json:"max_tokens"`
	Logprobs    bool      `json:"logprobs"`
}

// Message is one message of a Request or Response.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// NewRequest returns the request for a text. logprobs requests log probabilities.
func NewRequest(model string, text []byte, logprobs bool) Request {
	return Request{
		Model:       model,
		Messages:    []Message{{Role: "user", Content: string(text)}},
		Temperature: 0.7,
		MaxTokens:   4096,
		Logprobs:    logprobs,
	}
}

// Response holds the fields of a chat response that contenders read.
type Response struct {
	Choices []struct {
		Message  Message `json:"message"`
		Logprobs struct {
			Content []struct {
				Logprob float64 `json:"logprob"`
			} `json:"content"`
		} `json:"logprobs"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage struct {
		PromptTokens     int64 `json:"prompt_tokens"`
		CompletionTokens int64 `json:"completion_tokens"`
	} `json:"usage"`
}

// Score returns 100·exp(mean) of a sum of log probabilities.
func Score(sum float64, tokens int) float64 {
	if tokens == 0 {
		return math.NaN()
	}
	return 100 * math.Exp(sum/float64(tokens))
}

// Answer returns the response's only answer; ok is false if there is none.
func (r *Response) Answer() (a Answer, ok bool) {
	if len(r.Choices) != 1 || r.Usage.CompletionTokens == 0 {
		return Answer{}, false
	}
	sum := 0.0
	for _, token := range r.Choices[0].Logprobs.Content {
		sum += token.Logprob
	}
	return Answer{
		Text:  r.Choices[0].Message.Content,
		Score: Score(sum, len(r.Choices[0].Logprobs.Content)),
	}, true
}
