package sim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of vLLM's parameters.
const (
	maxTopLogprobs = 20
	maxChoices     = 16            // our own limit, not vLLM's: the number of answers for one request
	maxCount       = math.MaxInt32 // largest number of tokens in any parameter
)

// chatBody is the body of a chat completion. It has the members that change the answer,
// and the members that are checked as vLLM does. Other members are ignored. null means
// the same as a missing member.
type chatBody struct {
	Model    *string   `json:"model"`
	Messages []message `json:"messages"`
	Stream   bool      `json:"stream"`
	Options  struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
	lengthParams
	samplingParams
	formatParams
}

// lengthParams are the members that say where an answer ends.
type lengthParams struct {
	MaxTokens           *jsonInt  `json:"max_tokens"`
	MaxCompletionTokens *jsonInt  `json:"max_completion_tokens"` // the newer name of max_tokens
	MinTokens           jsonInt   `json:"min_tokens"`
	Stop                any       `json:"stop"` // a text or a list of texts
	StopIDs             []jsonInt `json:"stop_token_ids"`
	KeepStop            bool      `json:"include_stop_str_in_output"`
	IgnoreEOS           bool      `json:"ignore_eos"`
}

// samplingParams has the members that say how tokens are chosen. Only Temperature and Seed
// change an answer.
type samplingParams struct {
	Temperature       float64            `json:"temperature"`
	Seed              *jsonInt           `json:"seed"`
	TopP              float64            `json:"top_p"`
	MinP              float64            `json:"min_p"`
	TopK              jsonInt            `json:"top_k"`
	PresencePenalty   float64            `json:"presence_penalty"`
	FrequencyPenalty  float64            `json:"frequency_penalty"`
	RepetitionPenalty float64            `json:"repetition_penalty"`
	LogitBias         map[string]float64 `json:"logit_bias"`
	BadWords          []string           `json:"bad_words"`
	AllowedIDs        []jsonInt          `json:"allowed_token_ids"`
	Priority          jsonInt            `json:"priority"`
	SkipSpecial       bool               `json:"skip_special_tokens"`
	SpacesBetween     bool               `json:"spaces_between_special_tokens"`
	ParallelCalls     bool               `json:"parallel_tool_calls"`
}

// formatParams has the members that set the form of an answer.
type formatParams struct {
	Choices     jsonInt         `json:"n"` // number of answers; all answers are the same
	Logprobs    bool            `json:"logprobs"`
	TopLogprobs jsonInt         `json:"top_logprobs"`
	Format      *responseFormat `json:"response_format"`
	Rule        *outputRule     `json:"structured_outputs"`
	Tools       json.RawMessage `json:"tools"`
	ToolChoice  json.RawMessage `json:"tool_choice"`
	Effort      string          `json:"reasoning_effort"`
	Template    struct {
		EnableThinking *bool `json:"enable_thinking"`
		Thinking       *bool `json:"thinking"`
	} `json:"chat_template_kwargs"`
}

// newChatBody returns a body with vLLM's defaults.
func newChatBody() chatBody {
	return chatBody{samplingParams: samplingParams{Temperature: 1, TopP: 1, RepetitionPenalty: 1}, formatParams: formatParams{Choices: 1}}
}

// check returns an error that names the first member that is out of its bounds.
func (b *chatBody) check() error {
	_, isText := parseStringList(b.Stop)
	err := cmp.Or(
		checkBounds("max_tokens", b.MaxTokens.valueOr(1), 1, maxCount),
		checkBounds("max_completion_tokens", b.MaxCompletionTokens.valueOr(1), 1, maxCount),
		checkBounds("min_tokens", int64(b.MinTokens), 0, maxCount),
		checkBounds("top_k", int64(b.TopK), -1, maxCount),
		checkBounds("priority", int64(b.Priority), math.MinInt32, maxCount),
		checkBounds("n", int64(b.Choices), 1, maxChoices),
		checkBounds("top_logprobs", int64(b.TopLogprobs), 0, maxTopLogprobs),
		checkBounds("temperature", b.Temperature, 0, math.Inf(1)),
		checkBounds("top_p", b.TopP, math.SmallestNonzeroFloat64, 1),
		checkBounds("min_p", b.MinP, 0, 1),
		checkBounds("presence_penalty", b.PresencePenalty, -2, 2),
		checkBounds("frequency_penalty", b.FrequencyPenalty, -2, 2),
		checkBounds("repetition_penalty", b.RepetitionPenalty, math.SmallestNonzeroFloat64, math.Inf(1)),
	)
	for _, id := range slices.Concat(b.StopIDs, b.AllowedIDs) {
		err = cmp.Or(err, checkBounds("stop_token_ids and allowed_token_ids", int64(id), 0, maxCount))
	}
	for _, bias := range b.LogitBias {
		err = cmp.Or(err, checkBounds("logit_bias", bias, -100, 100))
	}
	switch limit := b.maxTokens(); {
	case err != nil:
		return err
	case !isText:
		return badRequest("stop", "stop: Input should be a valid string or a list of strings")
	case b.TopLogprobs > 0 && !b.Logprobs:
		return badRequest("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true")
	case limit > 0 && int(b.MinTokens) > limit:
		return badRequest("min_tokens", "min_tokens must be less than or equal to max_tokens=%d, got %d", limit, b.MinTokens)
	}
	return nil
}

// checkBounds returns an apiError if the value of a member is below low or above high.
func checkBounds[T int64 | float64](name string, value, low, high T) *apiError {
	if value >= low && value <= high {
		return nil
	}
	bounds := fmt.Sprintf("between %v and %v", low, high)
	switch {
	case float64(low) == math.SmallestNonzeroFloat64 && math.IsInf(float64(high), 1):
		bounds = "above 0"
	case float64(low) == math.SmallestNonzeroFloat64:
		bounds = fmt.Sprintf("above 0 and at most %v", high)
	case math.IsInf(float64(high), 1):
		bounds = fmt.Sprintf("at least %v", low)
	}
	return badRequest(name, "%s must be %s, got %v", name, bounds, value)
}

// maxTokens returns the largest length of the answer that the request allows, in
// tokens; 0 if the request sets none.
func (b *chatBody) maxTokens() int {
	return int(b.MaxCompletionTokens.valueOr(b.MaxTokens.valueOr(0)))
}

// wantsThinking reports whether the model should reason; nil if the request does not say.
func (b *chatBody) wantsThinking() *bool {
	switch off := false; {
	case b.Effort == "none":
		return &off
	case b.Template.EnableThinking != nil:
		return b.Template.EnableThinking
	}
	return b.Template.Thinking
}

// jsonInt is an integer, which JSON may write as 2e0.
type jsonInt int64

// valueOr returns the integer, or other if w is nil.
func (w *jsonInt) valueOr(other int64) int64 {
	if w == nil {
		return other
	}
	return int64(*w)
}

// UnmarshalJSON reads the integer.
func (w *jsonInt) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	value, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		real, err := strconv.ParseFloat(string(text), 64)
		if err != nil || real != math.Trunc(real) || math.Abs(real) > 1<<62 {
			return &json.UnmarshalTypeError{Value: string(text), Type: reflect.TypeFor[int64]()}
		}
		value = int64(real)
	}
	*w = jsonInt(value)
	return nil
}

// parseStringList returns the texts of a value that is a text or a list of texts. ok is false for
// any other value.
func parseStringList(value any) (list []string, ok bool) {
	switch v := value.(type) {
	case nil:
		return nil, true
	case string:
		return []string{v}, true
	case []any:
		for _, item := range v {
			text, isText := item.(string)
			if !isText {
				return nil, false
			}
			list = append(list, text)
		}
		return list, true
	}
	return nil, false
}

// embedded removes the names of chatBody's embedded structs from the path of a member.
// encoding/json writes these names into the path.
var embedded = strings.NewReplacer("lengthParams.", "", "samplingParams.", "", "formatParams.", "")

// decodeBody decodes the JSON body of a request. The error is an *apiError.
func decodeBody(body []byte, into any) error {
	if !utf8.Valid(body) {
		return badRequest("", "the body is not UTF-8")
	}
	err := json.Unmarshal(body, into)
	var syntax *json.SyntaxError
	var ill *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		return badRequest("", "invalid JSON at byte %d: %v", syntax.Offset, syntax)
	case errors.As(err, &ill):
		field := embedded.Replace(ill.Field)
		return badRequest(field, "%s: Input should be %s", field, typeName(ill.Type))
	}
	return badRequest("", "%v", err)
}

// typeName returns vLLM's name for the type of a member.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "a valid boolean"
	case reflect.Int64:
		return "a valid integer"
	case reflect.Float64:
		return "a valid number"
	case reflect.String:
		return "a valid string"
	case reflect.Slice:
		return "a valid list"
	default:
		return "an object"
	}
}

// nilIfNull returns the text of a member of any type; nil if it is absent or null.
func nilIfNull(raw json.RawMessage) []byte {
	if bytes.Equal(raw, []byte("null")) {
		return nil
	}
	return raw
}
