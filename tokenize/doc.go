// Package tokenize turns text into the tokens of a model, counts tokens, and
// cuts text to a number of tokens. It has the vocabularies: rank files that are
// built into the program, and files of a model. It knows nothing of jobs, rows
// and chat templates.
//
//	text ── valid UTF-8 ── added tokens apart ── NFC ── pieces ── tokens
//	                       added.go, if there    if asked  scan.go,  words.go if a piece is one,
//	                       are any                         split.go  merge.go otherwise
//
// # Supported vocabularies
//
// Load has o200k_base, o200k_harmony (gpt-oss) and cl100k_base. Their rank
// files are compressed in the program. Open reads the tokenizer.json of Hugging
// Face models with byte-level byte-pair encoding: Llama 3 and 4, Qwen,
// DeepSeek, gpt-oss, GPT-2 and most others. For a SentencePiece vocabulary or
// another kind, the error is an ErrUnsupported that gives the reason.
//
// The tokens have the same IDs as in the original programs. Tests compare them
// with tiktoken-go, and with the original tiktoken and the tokenizers library
// if both are installed in Python. Character classes follow Unicode 16, as in both
// programs. NFC follows Unicode 9, as in the library. Patterns without a
// scanner here use regexp2, which follows Unicode 15. The tokens that a
// post-processor adds around a whole prompt, such as a first <|begin_of_text|>,
// are not added.
//
// # Unusual text
//
// Each byte that is not part of valid UTF-8 counts as U+FFFD, because JSON
// turns it into U+FFFD on the way to a server. The name of a special token in a
// text is ordinary text, see WithSpecials. Other added tokens, such as <think>
// of Qwen, are always found, as in the model's own tokenizer.
//
// # Costs
//
// The ranks of o200k_base are decoded on first use, in about 0.15 s, and take
// 17 MB (cl100k_base 0.06 s, 9 MB). The tokenizer.json of Llama 3 takes 0.35 s.
// Count, Encode and Truncate do not allocate, unless text must be normalized or
// a pattern has no scanner. The time is proportional to the length of any text:
// pieces of megabytes are merged in windows. An Encoding is safe for concurrent
// use. Each call borrows about 70 KB of memory from a pool.
package tokenize
