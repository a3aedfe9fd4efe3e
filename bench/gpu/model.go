package gpu

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Shape holds the dimensions of a Llama model.
type Shape struct {
	Name    string
	Width   int // size of the hidden state
	Inner   int // size of the feed-forward layer
	Layers  int
	Heads   int
	KVHeads int
	Head    int // width of a head
	Words   int // size of the vocabulary
}

// Llama8B has the dimensions of Llama-3.1-8B. Tiny is small enough to compute in
// milliseconds on a processor.
var (
	Llama8B = Shape{Name: "llama-3.1-8b", Width: 4096, Inner: 14336, Layers: 32, Heads: 32, KVHeads: 8, Head: 128, Words: 128256}
	Tiny    = Shape{Name: "tiny", Width: 128, Inner: 256, Layers: 2, Heads: 4, KVHeads: 2, Head: 32, Words: 2048}
)

// Write writes all files of a model except the weights. Each word of the vocabulary is
// one token, so that prompts have an exact length. Random weights draw all tokens with
// about equal probability. The number of tokens that end an answer is chosen so that
// lengths are geometric and answer tokens long on average.
func (s Shape) Write(dir string, context, answer int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create model directory: %w", err)
	}
	ends := make([]int, max(s.Words/answer, 1))
	for i := range ends {
		ends[i] = s.Words - 1 - i
	}
	// Tokenizers find special tokens inside words too, so no word may start with one.
	const unknown, begin, end = "<unk>", "<s>", "</s>"
	vocabulary := map[string]int{unknown: 0, begin: 1, end: ends[0]}
	for i, word := range common {
		vocabulary[word] = firstCommon + i
	}
	for i := firstCommon + len(common); i < ends[0]; i++ {
		vocabulary["w"+strconv.Itoa(i)] = i
	}
	for name, content := range map[string]any{
		"config.json": map[string]any{
			"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "hidden_size": s.Width,
			"intermediate_size": s.Inner, "num_hidden_layers": s.Layers, "num_attention_heads": s.Heads,
			"num_key_value_heads": s.KVHeads, "head_dim": s.Head, "hidden_act": "silu", "rms_norm_eps": 1e-5,
			"rope_theta": 500000.0, "vocab_size": s.Words, "max_position_embeddings": context, "tie_word_embeddings": false,
			"attention_bias": false, "mlp_bias": false, "bos_token_id": 1, "eos_token_id": ends[0],
			"torch_dtype": "bfloat16", "initializer_range": 0.02,
		},
		"generation_config.json": map[string]any{"bos_token_id": 1, "eos_token_id": ends, "do_sample": true},
		"tokenizer.json": map[string]any{
			"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": []any{}, "normalizer": nil,
			"pre_tokenizer": map[string]string{"type": "WhitespaceSplit"}, "post_processor": nil, "decoder": nil,
			"model": map[string]any{"type": "WordLevel", "vocab": vocabulary, "unk_token": unknown},
		},
		"tokenizer_config.json": map[string]any{
			"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": unknown, "bos_token": begin, "eos_token": end,
			"model_max_length": context, "clean_up_tokenization_spaces": false,
			"chat_template": "{% for message in messages %}{{ message['content'] }}{% if not loop.last %} {% endif %}{% endfor %}",
		},
	} {
		data, err := json.Marshal(content)
		if err != nil {
			return fmt.Errorf("encode %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return fmt.Errorf("write model: %w", err)
		}
	}
	return nil
}

// common are the words of prompts. Each is one token in any English vocabulary, so that
// a client with an estimate is about right.
var common = strings.Fields(`the of and to in is you that it he was for on are as with his they at be
	this have from or one had by word but not what all were we when your can said there use an each which
	she do how their if will up other about out many then them these so some her would make like him into
	time has look two more write go see number no way could people my than first water been call who its
	now find long down day did get come made may part`)

const firstCommon = 2 // after two special tokens

// AppendPrompt appends a text of a number of random tokens. Texts differ, so that no
// server finds one in its prefix cache.
func (s Shape) AppendPrompt(text []byte, random *rand.Rand, tokens int) []byte {
	for i := range tokens {
		if i > 0 {
			text = append(text, ' ')
		}
		text = append(text, common[random.IntN(len(common))]...)
	}
	return text
}
