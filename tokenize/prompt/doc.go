// Package prompt counts the tokens of a whole prompt as the server sees it. A
// row's text is only a part of that: a chat template puts role markers, the
// system prompt and more around it, and the server's usage.prompt_tokens counts
// everything. The package owns the templates of the model families we offer
// (Template), the counting with them (Measure), the comparison of our counts
// with what servers report (Calibration), the counting of a job's rows by all of
// these (Counter), and the search for a model's vocabulary (Tokenizers). It knows
// no jobs and no servers, and makes no prompts: servers do.
//
// # Why the sums are exact
//
// A server renders the template to one string and cuts it at the special
// tokens. Each special token is one token; the text between two of them is
// tokenized by itself. Nothing can therefore merge across a special token, and a
// prompt is its number of special tokens plus the counts of the texts between
// them. Within such a text everything may merge: the line break that many
// templates put before a row's text becomes one token with line breaks that the
// text begins with. So the text with its neighbours, up to the next special
// token on either side, is counted as one.
//
// # Where they are not
//
//   - A row or system prompt that holds the name of a special token, such as
//     <|im_end|>. Servers that render a string take it for that token, and so
//     does the encoding that Template.Encoding returns. With harmony it depends
//     on the server: vLLM tokenizes the texts by themselves, others render a
//     string. There such a name is counted as ordinary text, which is more.
//   - A template that is not the one the server uses. Calibration shows it as
//     a constant offset.
//   - A missing vocabulary, for which another one stands in. Calibration learns
//     the ratio.
//
// A JSON Schema is no part of the prompt: llama.cpp and vLLM constrain the answer
// by a grammar and tell the model nothing (tried on the one, read in the source
// of the other). Job.Schema is for servers that write it into the prompt.
package prompt
