package hostile

import (
	"encoding/json"
	"fmt"
	"strings"
)

// inJSON lists the paths with JSON answers. Kinds for these paths send a body that is
// not a valid answer.
var inJSON = []string{Chat, Embeddings, Models, Tokenize, "/props", "/server_info", "/get_server_info", "/model_info", "/api/ps", "/api/tags", "/api/show", "/version"}

// badBodyKinds returns the kinds that send a bad body instead of JSON: other formats,
// malformed or deep JSON, JSON without end.
func badBodyKinds() []AnswerKind {
	body := func(name, text string) AnswerKind { return pageKind(name, Breaks, inJSON, text) }
	bulky := func(name, start, piece string) AnswerKind { return endlessKind(name, Breaks, inJSON, start, piece) }
	kinds := []AnswerKind{
		body("a page of HTML", "<!DOCTYPE html><html><body>502 Bad Gateway</body></html>"),
		body("a text", `"simulated"`),
		body("a number", "1e-99999999"),
		body("a byte order mark", "\xef\xbb\xbf{}"),
		body("invalid UTF-8", "{\"\xff\xfe\":\"\xc3\x28\", \"choices"),
		body("a NUL", "{\"choices\":[\x00]}"),
		body("deep lists", `{"choices":`+strings.Repeat("[", 100_000)),
		body("deep objects", strings.Repeat(`{"data":`, 100_000)),
		body("lone surrogates", `{"choices":["\ud800\udbff`),
		bulky("endless space", "{", " \n\t"),
		bulky("endless text", `{"x":"`, "simulated "),
		bulky("endless list", `{"x":[0`, ",0"),
		bulky("endless keys", `{"x":0`, `,"x":0`),
		bulky("endless number", `{"x":1`, "0"),
		bulky("endless nothing", `{"data":[{}`, ",{}"),
	}
	return append(kinds, AnswerKind{
		Name: "a line of 100 MB before it", Outcome: Keeps, Bulky: true, paths: []string{Chat},
		write: func(w *answerWriter) {
			w.writeHead(-1)
			w.writeText(`{"filler":"`)
			for filler := strings.Repeat("x", 1<<20); w.sent < 100<<20 && w.err == nil; {
				w.writeText(filler)
			}
			w.writeText(`",`, string(w.Good[1:]))
		},
	})
}

// wrong lists JSON values that replace a correct value: values of other types, and
// values at the limits of each type.
var wrong = []string{
	"null", "true", `""`, `"simulated"`, "[]", "{}", "[[]]", `[{}]`, "0", "-1", "0.5", "1e400", "1e-99999999", "-9223372036854775809",
	"9007199254740993", strings.Repeat("9", 400), `"\ud83d"`, strings.Repeat("[", 60) + strings.Repeat("]", 60),
}

// Mutations returns copies of a correct JSON body. In each copy one value is replaced
// by a wrong value.
func Mutations(good []byte) (all []string) {
	for _, at := range findValueSpans(string(good)) {
		for _, value := range wrong {
			all = append(all, string(good[:at.begin])+value+string(good[at.end:]))
		}
	}
	return all
}

type valueSpan struct{ begin, end int }

// findValueSpans returns the positions of the values in a JSON text, in order.
func findValueSpans(text string) (all []valueSpan) {
	decoder := json.NewDecoder(strings.NewReader(text))
	var walk func()
	walk = func() {
		begin := int(decoder.InputOffset())
		for begin < len(text) && strings.ContainsRune(" \t\r\n,:", rune(text[begin])) {
			begin++
		}
		at := len(all)
		all = append(all, valueSpan{begin: begin})
		token, err := decoder.Token()
		if delim, opens := token.(json.Delim); err == nil && opens {
			for decoder.More() {
				if delim == '{' {
					if _, err = decoder.Token(); err != nil {
						return
					}
				}
				walk()
			}
			_, _ = decoder.Token() // the closing bracket
		}
		all[at].end = int(decoder.InputOffset())
	}
	walk()
	return all
}

// completeAnswer is a complete chat completion. %s stands for its content as a JSON string.
const completeAnswer = `{"simulated":true,"choices":[{"index":0,"message":{"role":"assistant","content":%s},"finish_reason":"stop"}],` +
	`"usage":{"prompt_tokens":3,"completion_tokens":3}}`

// chatAnswer returns a kind that sends a complete chat completion with this content.
func chatAnswer(name, content string) AnswerKind {
	return AnswerKind{Name: name, Outcome: Either, Text: content, paths: []string{Chat}, write: func(w *answerWriter) {
		quoted, _ := json.Marshal(content) // a string can always be encoded
		w.writeBody(fmt.Sprintf(completeAnswer, quoted))
	}}
}

// badContentKinds returns the kinds with bad content in a complete or endless chat completion,
// the kind "mutated" for all JSON answers, and the kinds of streams.
func badContentKinds() []AnswerKind {
	kinds := []AnswerKind{
		chatAnswer("a tiny number", "1e-99999999"),
		chatAnswer("a huge number", "1e9999999"),
		chatAnswer("400 digits", strings.Repeat("7", 400)),
		chatAnswer("no number", "NaN"),
		chatAnswer("tiny numbers", `{"n":1e-99999999,"list":[1e-99999999,1e9999999],"n2":{"n":-1E+99999999}}`),
		chatAnswer("deep content", strings.Repeat(`{"next":`, 9000)+"null"+strings.Repeat("}", 9000)),
		chatAnswer("deep lists in content", strings.Repeat("[", 20_000)),
		chatAnswer("many values", "["+strings.Repeat("0,", 200_000)+"0]"),
		chatAnswer("many keys", "{"+strings.Repeat(`"a":0,`, 100_000)+`"n":1}`),
		chatAnswer("an object", `{"n":5}`),
		chatAnswer("empty content", ""),
		chatAnswer("escapes", "\x1b[2J\x00\u202e"),
		chatAnswer("a wall of text", strings.Repeat("simulated ", 400_000)),
		endlessKind("content of 100 MB", Breaks, []string{Chat}, `{"choices":[{"message":{"content":"`, "x"),
		pageKind("content in invalid UTF-8", Either, []string{Chat}, fmt.Sprintf(completeAnswer, "\""+strings.Repeat("\xff", 1<<20)+"\"")),
		endlessKind("no end of choices", Breaks, []string{Chat}, `{"choices":[{"message":{"content":"x"}}`, `,{"message":{"content":"x"}}`),
		endlessKind("no end of log probabilities", Breaks, []string{Chat}, `{"choices":[{"logprobs":{"content":[{"logprob":-1e308}`, `,{"token":"x","logprob":-1e308,"bytes":[1]}`),
		pageKind("no known end", Breaks, []string{Chat}, strings.ReplaceAll(fmt.Sprintf(completeAnswer, `"x"`), `"stop"`, `"`+strings.Repeat("s", 10_000)+`"`)),
		{Name: "mutated", Outcome: Either, paths: inJSON, write: func(w *answerWriter) {
			all := Mutations(w.Good)
			w.writeBody(all[w.dice.IntN(len(all))])
		}},
	}
	return append(kinds, badStreamKinds()...)
}

// badStreamKinds returns the kinds with bad server-sent events.
func badStreamKinds() []AnswerKind {
	const delta = `data: {"choices":[{"delta":{"content":"simulated"}}]}`
	bulky := func(name, start, piece string) AnswerKind {
		return endlessKind(name, Breaks, []string{Stream}, start, piece)
	}
	plain := func(name, text string) AnswerKind { return pageKind(name, Breaks, []string{Stream}, text) }
	return []AnswerKind{
		bulky("an event without end", `data: {"choices":[{"delta":{"content":"`, "x"),
		bulky("events without end", "", delta+"\n\n"),
		bulky("a stream without newline", "", "data: x "),
		bulky("comments without end", "", ": keep alive\n\n"),
		bulky("empty events without end", "", "data:\n\n"),
		bulky("a field without end", "", "event"),
		bulky("deltas of nothing", "", `data: {"choices":[{"delta":{}}]}`+"\n\n"),
		plain("only the end", "data: [DONE]\n\n"),
		plain("no finish", delta+"\n\ndata: [DONE]\n\n"),
		plain("an error in the middle", delta+"\n\ndata: {\"error\":{\"message\":\"simulated\",\"code\":500}}\n\n"),
		plain("deltas of other types", `data: {"choices":[{"delta":{"content":{"a":1}}}]}`+"\n\n"),
		plain("an event that is cut", `data: {"choices":[{"delta":`+"\n\ndata: [DONE]\n\n"),
	}
}
