// Package prompt counts the tokens of a whole prompt as the server sees it. A
// row's text is only a part of a prompt: a chat template adds role markers, the
// system prompt and more, and the server's usage.prompt_tokens counts
// everything. The package has the templates of the model families (Template),
// counts with them (Measure), compares our counts with the servers' reports
// (Calibration), combines these for a job's rows (Counter), and finds a model's
// vocabulary (Tokenizers). It knows no jobs and no servers, and makes no
// prompts: servers make them.
//
// # Why the sums are exact
//
// A server renders the template to one string and splits it at the special
// tokens. Each special token is one token, and the text between two such tokens is
// tokenized separately. So nothing merges across a special token, and the
// tokens of a prompt are its special tokens plus the counts of the texts
// between them. Inside such a text everything can merge: many templates put a
// line break before a row's text, and it becomes one token with line breaks at
// the beginning of the text. So the row's text is counted together with its
// neighbours, up to the next special token on each side.
//
// # Where the sums are not exact
//
//   - A row or system prompt contains the name of a special token, such as
//     <|im_end|>. Servers that render a string read it as that token, and so
//     does the encoding that Template.Encoding returns. For harmony it depends
//     on the server: vLLM tokenizes the texts separately, others render a
//     string. There such a name is counted as ordinary text, which is more.
//   - The server uses another template. Calibration shows this as a constant
//     offset.
//   - The vocabulary is missing and another one is used. Calibration learns
//     the ratio.
//
// A JSON Schema is not part of the prompt: llama.cpp and vLLM constrain the
// answer by a grammar and do not show the schema to the model (tested with
// llama.cpp, read in the source of vLLM).
package prompt
