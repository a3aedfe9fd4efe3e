package sim

import (
	"bytes"
	"math"
	"slices"
)

// Bounds of vLLM's parameters.
const (
	maxTopLogprobs = 20
	maxChoices     = 16            // ours: an answer is not to be a bomb
	maxCount       = math.MaxInt32 // of anything counted in tokens
)

// option reads one field of a request other than model and messages, checks
// it as vLLM does, and keeps those that change the answer. Fields it does not
// know are ignored, as vLLM ignores them.
func (r *chatRequest) option(key []byte) {
	s := &r.scan
	switch string(key) {
	case "max_tokens", "max_completion_tokens":
		r.maxTokens = int(r.integer(string(key), 1, maxCount))
	case "min_tokens":
		r.minTokens = int(r.integer("min_tokens", 0, maxCount))
	case "temperature":
		r.temperature = r.real("temperature", 0, math.Inf(1), false)
	case "seed":
		seed := r.integer("seed", math.MinInt64, math.MaxInt64)
		r.seed = &seed
	case "top_p":
		r.real("top_p", 0, 1, true)
	case "min_p":
		r.real("min_p", 0, 1, false)
	case "top_k":
		r.integer("top_k", -1, maxCount)
	case "presence_penalty":
		r.real("presence_penalty", -2, 2, false)
	case "frequency_penalty":
		r.real("frequency_penalty", -2, 2, false)
	case "repetition_penalty":
		r.real("repetition_penalty", 0, math.Inf(1), true)
	case "n":
		r.choices = int(r.integer("n", 1, maxChoices))
	case "stop":
		r.stopStrings()
	case "stop_token_ids":
		r.stopIDs = r.ids("stop_token_ids", r.stopIDs)
	case "allowed_token_ids":
		r.ids("allowed_token_ids", nil)
	case "include_stop_str_in_output":
		r.keepStop = r.boolean("include_stop_str_in_output")
	case "ignore_eos":
		r.ignoreEOS = r.boolean("ignore_eos")
	case "skip_special_tokens", "spaces_between_special_tokens", "parallel_tool_calls":
		r.boolean(string(key))
	case "logprobs":
		r.logprobs = r.boolean("logprobs")
	case "top_logprobs":
		r.topLogprobs = int(r.integer("top_logprobs", 0, maxTopLogprobs))
	case "stream":
		r.stream = r.boolean("stream")
	case "stream_options":
		r.object("stream_options", func(name []byte) {
			if string(name) == "include_usage" {
				r.streamUsage = r.boolean("stream_options.include_usage")
				return
			}
			s.skip()
		})
	case "response_format":
		if s.peek() != '{' {
			r.refuse("response_format", "response_format: Input should be an object")
		}
		r.format = s.skip()
	case "chat_template_kwargs":
		r.object("chat_template_kwargs", func(name []byte) {
			if string(name) == "enable_thinking" || string(name) == "thinking" {
				on := r.boolean("chat_template_kwargs." + string(name))
				r.thinking = &on
				return
			}
			s.skip()
		})
	case "reasoning_effort":
		if string(r.string("reasoning_effort")) == "none" {
			off := false
			r.thinking = &off
		}
	case "logit_bias":
		r.object("logit_bias", func([]byte) { r.real("logit_bias", -100, 100, false) })
	case "bad_words":
		r.list("bad_words", func() { r.string("bad_words") })
	case "priority":
		r.integer("priority", math.MinInt32, maxCount)
	case "tools":
		if r.tools = s.skip(); bytes.Equal(r.tools, []byte("[]")) {
			r.tools = nil
		}
	case "tool_choice":
		r.toolChoice = s.skip()
	case "structured_outputs":
		if s.peek() != '{' {
			r.refuse("structured_outputs", "structured_outputs: Input should be an object")
		}
		r.rule = s.skip()
	default:
		s.skip()
	}
}

// object reads an object member by member.
func (r *chatRequest) object(param string, visit func(name []byte)) {
	if r.scan.peek() != '{' {
		r.refuse(param, "%s: Input should be an object", param)
		r.scan.skip()
		return
	}
	r.scan.members(visit)
}

// list reads a list item by item.
func (r *chatRequest) list(param string, visit func()) {
	if r.scan.peek() != '[' {
		r.refuse(param, "%s: Input should be a valid list", param)
		r.scan.skip()
		return
	}
	r.scan.items(visit)
}

func (r *chatRequest) ids(param string, ids []int) []int {
	r.list(param, func() { ids = append(ids, int(r.integer(param, 0, maxCount))) })
	return ids
}

// stopStrings reads a string or a list of them. Empty ones stop nothing.
func (r *chatRequest) stopStrings() {
	keep := func() {
		if text := r.string("stop"); len(text) > 0 {
			r.stops = append(r.stops, slices.Clip(text))
		}
	}
	if r.scan.peek() == '"' {
		keep()
		return
	}
	r.list("stop", keep)
}
