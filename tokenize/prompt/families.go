package prompt

// qwenMarkers are the beginnings of the names of tokens that Qwen's vocabulary adds:
// "<|", and the tags of reasoning and tools.
var qwenMarkers = []string{"<|", "<think>", "</think>", "<tool_", "</tool_"}

// renderChatML renders ChatML, in the form that OpenAI published and that most
// models with ChatML use, including the Instruct releases of Qwen3-2507:
//
//	<|im_start|>system\nSYSTEM<|im_end|>\n   if there is a system prompt
//	<|im_start|>user\nTEXT<|im_end|>\n
//	<|im_start|>assistant\n
//
// The line break before TEXT merges with white space at the beginning of TEXT,
// and is counted together with it. Some models add a system prompt of their own
// if there is none (Qwen2.5), or a token at the beginning. This shows as an
// offset.
func renderChatML(j JobPrompt) []promptPiece {
	var pieces []promptPiece
	if j.System != "" {
		pieces = append(pieces, specialPiece("<|im_start|>"), textPiece("system\n"+j.System), specialPiece("<|im_end|>"), textPiece("\n"))
	}
	return append(pieces,
		specialPiece("<|im_start|>"), textPiece("user\n"), rowText, specialPiece("<|im_end|>"), textPiece("\n"),
		specialPiece("<|im_start|>"), textPiece("assistant\n"))
}

// renderQwen renders the template of Qwen3 of 2025-04, published with the models:
// ChatML, and after the last role an empty thought if thinking is off:
//
//	<think>\n\n</think>\n\n
//
// Both tags are single tokens, but not special tokens. The releases of 2507 are
// other models with other templates: Instruct uses chatml (it ignores the
// switch), Thinking uses qwen-3-thinking.
func renderQwen(j JobPrompt) []promptPiece {
	pieces := renderChatML(j)
	if !j.mayThink() {
		pieces = append(pieces, specialPiece("<think>"), textPiece("\n\n"), specialPiece("</think>"), textPiece("\n\n"))
	}
	return pieces
}

// renderQwenThinking renders the template of Qwen3-Thinking-2507, published with
// the models. The template always begins the thought.
func renderQwenThinking(j JobPrompt) []promptPiece {
	return append(renderChatML(j), specialPiece("<think>"), textPiece("\n"))
}

// renderQwenEmbedding renders a text for Qwen3-Embedding: the post-processor of
// its tokenizer adds <|endoftext|> after every text, and pooling uses that token.
func renderQwenEmbedding(JobPrompt) []promptPiece {
	return []promptPiece{rowText, specialPiece("<|endoftext|>")}
}

// renderLlama renders the template of Llama 3.1 Instruct, published with the
// models. The date is part of the template and does not change; Llama 3.2 writes
// the current date, which has the same number of tokens. There is always a system
// message, even without a system prompt. The texts are trimmed, so the line
// breaks before them merge with nothing:
//
//	<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n
//	Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\nSYSTEM<|eot_id|>
//	<|start_header_id|>user<|end_header_id|>\n\nTEXT<|eot_id|>
//	<|start_header_id|>assistant<|end_header_id|>\n\n
func renderLlama(j JobPrompt) []promptPiece {
	header := func(role string) []promptPiece {
		return []promptPiece{specialPiece("<|start_header_id|>"), textPiece(role), specialPiece("<|end_header_id|>"), textPiece("\n\n")}
	}
	pieces := append([]promptPiece{specialPiece("<|begin_of_text|>")}, header("system")...)
	pieces = append(pieces,
		textPiece("Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"+trim(j.System)), specialPiece("<|eot_id|>"))
	pieces = append(pieces, header("user")...)
	pieces = append(pieces, rowText, specialPiece("<|eot_id|>"))
	return append(pieces, header("assistant")...)
}

var gemmaMarkers = []string{"<bos>", "<eos>", "<pad>", "<unk>", "<mask>", "<start_of_", "<end_of_", "<unused", "[multimodal]", "<2mass>", "[@BOS@]"}

// renderGemma renders the template of Gemma 3, published with the models. It has no
// system message: the system prompt, not trimmed, begins the user's turn:
//
//	<bos><start_of_turn>user\nSYSTEM\n\nTEXT<end_of_turn>\n<start_of_turn>model\n
//
// The vocabulary of Gemma is SentencePiece, which has tokens for runs of line
// breaks. The count of line breaks and their neighbours is right only with that
// vocabulary.
func renderGemma(j JobPrompt) []promptPiece {
	opening := "user\n"
	if j.System != "" {
		opening += j.System + "\n\n"
	}
	return []promptPiece{
		specialPiece("<bos>"), specialPiece("<start_of_turn>"), textPiece(opening), rowText, specialPiece("<end_of_turn>"), textPiece("\n"),
		specialPiece("<start_of_turn>"), textPiece("model\n"),
	}
}

// renderHarmony renders the format of gpt-oss, from OpenAI's guide and the template
// published with the models. Our system prompt is its developer message. The
// date is the current date; all dates have the same number of tokens. Only
// special tokens are directly before and after TEXT:
//
//	<|start|>system<|message|>…Current date: 2025-08-05\n\nReasoning: medium\n\n…<|end|>
//	<|start|>developer<|message|># Instructions\n\nSYSTEM\n\n<|end|>   if there is a system prompt
//	<|start|>user<|message|>TEXT<|end|><|start|>assistant
//
// The template adds \n\n after SYSTEM. The guide, and vLLM where it follows the
// guide, does not, which is at most 1 token less. Releases of vLLM before about
// 0.30 sent SYSTEM as a second system message without "# Instructions", at most
// 4 tokens less. Both differences are constant offsets of a job.
func renderHarmony(j JobPrompt) []promptPiece {
	pieces := []promptPiece{
		specialPiece("<|start|>"), textPiece("system"), specialPiece("<|message|>"),
		textPiece("You are ChatGPT, a large language model trained by OpenAI.\n" +
			"Knowledge cutoff: 2024-06\nCurrent date: 2025-08-05\n\n" +
			"Reasoning: " + j.effort() + "\n\n" +
			"# Valid channels: analysis, commentary, final. Channel must be included for every message."),
		specialPiece("<|end|>"),
	}
	if j.System != "" {
		pieces = append(pieces, specialPiece("<|start|>"), textPiece("developer"), specialPiece("<|message|>"),
			textPiece("# Instructions\n\n"+j.System+"\n\n"), specialPiece("<|end|>"))
	}
	return append(pieces,
		specialPiece("<|start|>"), textPiece("user"), specialPiece("<|message|>"), rowText, specialPiece("<|end|>"),
		specialPiece("<|start|>"), textPiece("assistant"))
}
