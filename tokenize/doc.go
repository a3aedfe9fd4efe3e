// Package tokenize turns text into the tokens of a model, counts them and cuts
// text to a number of them. It owns the vocabularies: the rank files that come
// with the program, and those that are read from a model's files. It knows
// nothing of jobs, rows and chat templates.
//
//	text ── valid UTF-8 ── added tokens apart ── NFC ── pieces ── tokens
//	                       added.go, if there    if asked  scan.go,  words.go if a piece is one,
//	                       are any                         split.go  merge.go otherwise
//
// # What is read
//
// Load has o200k_base, o200k_harmony (gpt-oss) and cl100k_base, whose rank files
// are compressed in the program. Open reads the tokenizer.json of Hugging Face
// models with byte-level byte-pair encoding: Llama 3 and 4, Qwen, DeepSeek,
// gpt-oss, GPT-2 and most others. A vocabulary of SentencePiece or another kind
// is an ErrUnsupported that says why.
//
// The tokens are those of the originals, id by id: tests compare them with
// tiktoken-go, and with the original tiktoken and the tokenizers library where
// a Python has them. Characters are of the classes that Unicode 16 gives them,
// as in both; NFC is that of Unicode 9, as in the library. Patterns that have no scanner here go through regexp2, which
// knows Unicode 15. The tokens around a whole prompt (a post-processor's, such
// as a first <|begin_of_text|>) are not added.
//
// # Text that is not as it should be
//
// Each byte that is not part of valid UTF-8 counts as U+FFFD: that is what
// becomes of it on its way to a server in JSON. A name of a special token in a
// text is ordinary text, see WithSpecials; other added tokens, such as
// <think> of Qwen, are always found, as the model's own tokenizer does.
//
// # Costs
//
// The ranks of o200k_base are decoded on first use, in about 0.15 s, and take
// 17 MB (cl100k_base 0.06 s, 9 MB); the tokenizer.json of Llama 3 takes 0.35 s.
// Count, Encode and Truncate do not allocate, unless text has to be normalized
// or a pattern has no scanner. Time grows in proportion to the text, whatever
// the text: pieces of megabytes are merged in windows. An Encoding is safe for
// concurrent use; each call borrows about 70 KB, which are kept for the next.
package tokenize
