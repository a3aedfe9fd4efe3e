package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// words are the tokens of answers, in turn.
var words = strings.SplitAfter("The quick answer to this row is always the same few words about mills rivers and grain because nothing is being measured here but the way there and back ", " ")

// newServer builds all answers in advance. They have the fields of the OpenAI reference
// for chat completions, embeddings and models, and the fields that vLLM adds.
func newServer(models []string, context, tokens, dimension int, delay time.Duration, slots int) *server {
	s := &server{delay: delay}
	if slots > 0 {
		s.slots = make(chan struct{}, slots)
	}

	s.models = listOf(models, context)

	var text strings.Builder
	var logprobs []byte
	for i := range tokens {
		word := words[i%len(words)]
		text.WriteString(word)
		if i > 0 {
			logprobs = append(logprobs, ',')
		}
		logprobs = append(logprobs, `{"token":`...)
		logprobs = append(logprobs, marshal(word)...)
		logprobs = append(logprobs, `,"logprob":`...)
		logprobs = strconv.AppendFloat(logprobs, -0.01*float64(i%97)-0.0012345, 'g', -1, 64)
		logprobs = append(logprobs, `,"bytes":[`...)
		for k := range len(word) {
			if k > 0 {
				logprobs = append(logprobs, ',')
			}
			logprobs = strconv.AppendInt(logprobs, int64(word[k]), 10)
		}
		logprobs = append(logprobs, `],"top_logprobs":[]}`...)
	}
	chat := func(logprobs string) []byte {
		return response("application/json", fmt.Appendf(nil,
			`{"id":"chatcmpl-null","object":"chat.completion","created":1700000000,"model":%s,`+
				`"choices":[{"index":0,"message":{"role":"assistant","content":%s,"refusal":null},"logprobs":%s,"finish_reason":"stop"}],`+
				`"usage":{"prompt_tokens":220,"completion_tokens":%d,"total_tokens":%d}}`,
			marshal(models[0]), marshal(text.String()), logprobs, tokens, 220+tokens))
	}
	s.plain = chat("null")
	s.scored = chat(`{"content":[` + string(logprobs) + `],"refusal":null}`)

	s.prepareVectors(dimension)
	return s
}

// listOf returns the answer to /v1/models.
func listOf(models []string, context int) []byte {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
		MaxLen  int    `json:"max_model_len"`
	}
	list := make([]model, 0, len(models))
	for _, name := range models {
		list = append(list, model{ID: name, Object: "model", Created: 1_700_000_000, OwnedBy: "vllm", MaxLen: context})
	}
	return marshal(map[string]any{"object": "list", "data": list})
}

// prepareVectors encodes the embeddings of answers.
func (s *server) prepareVectors(dimension int) {
	for k := range vectors {
		vector := make([]float32, dimension)
		raw := make([]byte, 0, 4*dimension)
		for i := range vector {
			vector[i] = float32(math.Sin(float64(i)+1+float64(k)/vectors) / math.Sqrt(float64(dimension)/2))
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(vector[i]))
		}
		s.floats[k] = marshal(vector)
		s.base64[k] = marshal(base64.StdEncoding.EncodeToString(raw))
	}
}

// vectors is the number of different embeddings, used in turn. It is so large that none
// repeats within Snappy's window of 64 KiB.
const vectors = 32

// marshal encodes a value that always encodes.
func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// response returns a body with the head of a 200 response.
func response(contentType string, body []byte) []byte {
	head := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", contentType, len(body))
	return append(head, body...)
}
