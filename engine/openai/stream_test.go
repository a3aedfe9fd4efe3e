package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
)

// streamed scans a stream, like scanned a body.
func streamed(src windowSource, limit int) (found, error) {
	mark()
	r := newReplyReader(src, limit, false)
	defer r.release()
	if err := r.scanStream(src); err != nil {
		return found{}, err
	}
	return r.found(), nil
}

// streamLines returns the lines of a stream, by the rules of server-sent events.
func streamLines(stream []byte) (lines []string) {
	text := strings.TrimPrefix(string(stream), "\uFEFF")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	return strings.Split(text, "\n")
}

// dataOf returns the payload of a data line without leading spaces.
func dataOf(line string) (payload string, is bool) {
	payload, is = strings.CutPrefix(line, "data:")
	return strings.TrimLeft(payload, " "), is
}

// otherIndex finds the index of a choice that is not 0.
var otherIndex = regexp.MustCompile(`"index"\s*:\s*(\d*[1-9]|0\.|0?[eE])`)

// streamOracle reads a stream with encoding/json, chunk by chunk. It returns false if
// the oracle cannot judge a chunk.
func streamOracle(stream []byte) (out found, ok bool) {
	lines := streamLines(stream)
	for at := 0; at < len(lines); at++ {
		text, isData := dataOf(lines[at])
		if !isData {
			if strings.HasPrefix(lines[at], "error:") || strings.HasPrefix(lines[at], "data") {
				return found{}, false
			}
			continue
		}
		for text != "" && text[0] != '[' && !json.Valid([]byte(text)) && at+1 < len(lines) && lines[at+1] != "" {
			at++
			if more, isData := dataOf(lines[at]); isData {
				text += "\n" + more
			}
		}
		payload := []byte(text)
		switch {
		case len(payload) == 0:
			continue
		case payload[0] == '[':
			return out, true
		case otherIndex.Match(payload): // see TestChoicesInAnyOrder
			return found{}, false
		case duplicated(payload) || !comparableBody(payload) || bytes.Contains(payload, []byte("message")):
			return found{}, false
		}
		chunk, ok := oracle(bytes.ReplaceAll(payload, []byte(`"delta"`), []byte(`"message"`)))
		if !ok || len(chunk.Finish) >= maxWord {
			return found{}, false
		}
		out.Choices = out.Choices || chunk.Choices
		out.Content += chunk.Content
		out.Reasoning += chunk.Reasoning
		out.Sum += chunk.Sum
		out.Count += chunk.Count
		if chunk.Finish != "" {
			out.Finish = chunk.Finish
		}
		if bytes.Contains(payload, []byte(`"usage"`)) && !bytes.Contains(payload, []byte(`"usage":null`)) {
			out.Input, out.Cached, out.Output = chunk.Input, chunk.Cached, chunk.Output
		}
		if out.Fault = chunk.Fault; out.Fault {
			return out, true
		}
	}
	return out, true
}

// wholeStream is a stream with two chunks, a comment and an end.
const wholeStream = ": ping\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\nevent: x\ndata:{\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\ndata:[DONE]\n\n"

var streams = []string{
	"data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n" +
		"data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"reasoning_content\":\"hm\"},\"logprobs\":{\"content\":[{\"token\":\"hm\",\"logprob\":-0.5,\"top_logprobs\":[]}]}}]}\n\n" +
		"data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"content\":\"yes\"},\"logprobs\":{\"content\":[{\"token\":\"yes\",\"bytes\":[121],\"logprob\":-0.25}]}}]}\n\n" +
		"data: {\"choices\":[{\"finish_reason\":\"stop\",\"index\":0,\"delta\":{}}]}\n\n" +
		"data: {\"choices\":[],\"usage\":{\"completion_tokens\":9,\"prompt_tokens\":18,\"prompt_tokens_details\":{\"cached_tokens\":17}}}\n\ndata: [DONE]\n\n",
	": ping\n\nevent: x\r\nid: 7\r\ndata:{\"choices\":[{\"delta\":{\"content\":\"a\",\"reasoning\":\"b\",\"reasoning_content\":\"c\"}}],\"usage\":null}\r\n\r\ndata:\r\nretry\r\n\r\n",
	"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}},{\"delta\":{\"content\":\"b\"}}]}\n\ndata: {\"error\":{\"code\":500,\"message\":\"Context size has been exceeded.\",\"type\":\"server_error\"}}\n\n",
	"error: {\"code\":503,\"message\":\"no\",\"type\":\"unavailable_error\"}\n\n",
	"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]", "data: {\"choices\"", "data: nonsense\n\n", "data", "data: {}x\n\n", "data: [", "", "\n", "dataa: {}\n\n", "data :{}\n",
	"data: {\"choices\":[{\"delta\":{\"content\":5}}]}\n\n", "data: {\"choices\":null}\n\ndata: {\"choices\":[{\"delta\":null,\"logprobs\":null}]}\n",
	"\uFEFF" + wholeStream, strings.ReplaceAll(wholeStream, "\n", "\r\n"), strings.ReplaceAll(wholeStream, "\n", "\r"), "\uFEFF\uFEFF" + wholeStream, "\xEF\xBB" + wholeStream, "\xEF\xBB\xBF",
	"data:{\"choices\":\r\nid: 7\r\n: ping\r\ndata:\r\ndata: [{\"delta\":{\"content\":\"a\"}\r\ndata:}]}\r\n\r\ndata:[DONE]\r\n\r\n", "data: {\"choices\":\n\ndata: null}\n\n",
	"data: {\"choices\":null}\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}",
	"error: {\"message\":5,\"code\":1e999}\n", "error: 7\n\n", "error: \n",
}

// Log probabilities are the same in windows of any size.
func TestStream_LogprobsInPieces(t *testing.T) {
	t.Parallel()
	stream := []byte("data: {\"choices\":[{\"delta\":{\"content\":\"ab\"},\"logprobs\":{\"content\":[{\"token\":\"a\",\"logprob\":-Infinity},{\"token\":\"b\",\"logprob\":-0.5}]},\"finish_reason\":\"stop\"}]}\n\n")
	whole, err := streamed(&bytesSource{rest: stream}, 1<<20)
	if err != nil || whole.Count != 2 {
		t.Fatalf("%+v, %v", whole, err)
	}
	for size := range 40 {
		got, err := streamed(&pieces{rest: stream, size: func() int { return 1 + size }}, 1<<20)
		if err != nil || got != whole {
			t.Errorf("in windows of %d bytes: %+v, %v; want %+v", 1+size, got, err, whole)
		}
	}
	for _, bad := range []string{"- 5", "-", "--5", "-x"} {
		text := bytes.Replace(stream, []byte("-0.5"), []byte(bad), 1)
		for size := range 40 {
			if got, err := streamed(&pieces{rest: text, size: func() int { return 1 + size }}, 1<<20); err == nil {
				t.Errorf("%q in windows of %d bytes is accepted: %+v", bad, 1+size, got)
			}
		}
	}
}

func FuzzScanStream(f *testing.F) {
	for _, stream := range streams {
		f.Add([]byte(stream), uint64(1))
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		whole, err := streamed(&bytesSource{rest: stream}, 1<<20)

		// The result does not depend on the windows.
		rng := rand.New(rand.NewPCG(seed, 1))
		cut, cutErr := streamed(&pieces{rest: stream, size: func() int { return 1 + rng.IntN(9) }}, 1<<20)
		if (err == nil) != (cutErr == nil) || whole != cut {
			t.Fatalf("in one window %+v (%v), in pieces %+v (%v)", whole, err, cut, cutErr)
		}
		if !utf8.ValidString(whole.Content) || !utf8.ValidString(whole.Reasoning) {
			t.Fatal("text is not UTF-8")
		}
		want, ok := streamOracle(stream)
		if !ok || !utf8.Valid(stream) {
			return // characters are joined from several chunks
		}
		if err != nil {
			t.Fatalf("encoding/json accepts, scanner says: %v", err)
		}
		if math.Abs(want.Sum-whole.Sum) <= 1e-9*math.Abs(want.Sum) {
			whole.Sum = want.Sum
		}
		if diff := cmp.Diff(want, whole); diff != "" {
			t.Fatalf("encoding/json (-) and scanner (+):\n%s", diff)
		}
	})
}

// The answer is the same in every form that the format of server-sent events allows.
func TestStream_FormsOfTheSameStream(t *testing.T) {
	t.Parallel()
	const done = "data:[DONE]\n\n"
	last := strings.TrimSuffix(wholeStream, done)
	for name, stream := range map[string]string{
		"LF":                   wholeStream,
		"CRLF":                 strings.ReplaceAll(wholeStream, "\n", "\r\n"),
		"CR":                   strings.ReplaceAll(wholeStream, "\n", "\r"),
		"a byte-order mark":    "\uFEFF" + wholeStream,
		"a mark before data":   "\uFEFF" + strings.TrimPrefix(wholeStream, ": ping\n\n"),
		"a mark and CRLF":      "\uFEFF" + strings.ReplaceAll(wholeStream, "\n", "\r\n"),
		"no end":               last,
		"no last empty line":   strings.TrimSuffix(last, "\n"),
		"no last end of line":  strings.TrimSpace(last),
		"no empty lines":       strings.ReplaceAll(wholeStream, "\n\n", "\n"),
		"a space after fields": strings.ReplaceAll(wholeStream, "data:{", "data: {"),
		"lines of data":        strings.ReplaceAll(wholeStream, `{"choices":[`, "{\ndata: \"choices\":\n: between\ndata:[\ndata:\ndata: "),
		"lines with CRLF":      strings.ReplaceAll(strings.ReplaceAll(wholeStream, `{"choices":[`, "{\ndata:\"choices\":\ndata: ["), "\n", "\r\n"),
		"comments and fields":  strings.ReplaceAll(wholeStream, "data:", ":\nretry: 5\nid\ndata:"),
	} {
		for size := 1; size <= len(stream); size += 1 + size/4 {
			got, err := streamed(&pieces{rest: []byte(stream), size: func() int { return size }}, 1<<20)
			if err != nil || got.Content != "ab" || got.Finish != "stop" {
				t.Errorf("%s, %d bytes at once: %+v, %v", name, size, got, err)
			}
		}
	}
}

// bothForms returns an answer as one body and as a stream with one chunk per token, in
// llama.cpp's format.
func bothForms(tokens, reasoning int, rng *rand.Rand) (body, stream []byte) {
	words := []string{" the", " ö", "🦙", "\"", "\\", "</think", ">", "\n", "fox", " brown"}
	var probs []string
	var texts [2]strings.Builder // reasoning, content
	var out bytes.Buffer
	text := func(s string) string {
		quoted, _ := json.Marshal(s) // strings always encode
		return string(quoted)
	}
	out.WriteString(`data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"object":"chat.completion.chunk"}` + "\n\n")
	for i := range tokens {
		word, field, of := words[rng.IntN(len(words))], "content", 1
		if i < reasoning {
			field, of = "reasoning_content", 0
		}
		texts[of].WriteString(word)
		prob := fmt.Sprintf(`{"token":%s,"bytes":[32,116],"logprob":%v,"top_logprobs":[{"token":"x","logprob":-0.1}]}`, text(word), -3*rng.Float64())
		probs = append(probs, prob)
		fmt.Fprintf(&out, `data: {"choices":[{"finish_reason":null,"index":0,"delta":{%q:%s},"logprobs":{"content":[%s]}}],"created":1795274087,"id":"chatcmpl-hWNpa2HzWIQBfyjf4C8x2G4pnJFLQn4k","model":"m","system_fingerprint":"b11669-Debian","object":"chat.completion.chunk"}`+"\n\n",
			field, text(word), prob)
		if rng.IntN(10) == 0 {
			out.WriteString(":\n\n") // llama.cpp's ping
		}
	}
	usage := fmt.Sprintf(`"usage":{"completion_tokens":%d,"prompt_tokens":18,"total_tokens":99,"prompt_tokens_details":{"cached_tokens":11}}`, tokens)
	out.WriteString(`data: {"choices":[{"finish_reason":"stop","index":0,"delta":{}}]}` + "\n\n")
	out.WriteString(`data: {"choices":[],` + usage + `,"timings":{"prompt_ms":0.9}}` + "\n\ndata: [DONE]\n\n")
	body = fmt.Appendf(nil, `{"choices":[{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":%s,"reasoning_content":%s},"logprobs":{"content":[%s]}}],%s}`,
		text(texts[1].String()), text(texts[0].String()), strings.Join(probs, ","), usage)
	return body, out.Bytes()
}

// A stream gives the same result as the same answer in one body.
func TestStreamEqualsBody(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	for _, kind := range []rowmill.Kind{rowmill.KindGeneration, rowmill.KindReasoning} {
		for range 200 {
			tokens := rng.IntN(40)
			reasoning := 0
			if rng.IntN(2) == 0 {
				reasoning = rng.IntN(tokens + 1)
			}
			body, stream := bothForms(tokens, reasoning, rng)
			read := func(src windowSource, scan func(*replyReader) error) engine.Reply {
				r := newReplyReader(src, 1<<20, kind == rowmill.KindReasoning)
				defer r.release()
				must.Succeed(t, scan(r))
				out, _, refusal := r.buildAnswer(false, false)
				if refusal != nil {
					t.Fatal(refusal)
				}
				return out
			}
			whole := read(&bytesSource{rest: body}, (*replyReader).scanChat)
			src := &pieces{rest: stream, size: func() int { return 1 + rng.IntN(500) }}
			// The last digit of a number depends on the windows.
			nearly := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-12*math.Abs(a) })
			if diff := cmp.Diff(whole, read(src, func(r *replyReader) error { return r.scanStream(src) }), nearly); diff != "" {
				t.Fatalf("body (-) and stream (+) of %d tokens, %d of them reasoning:\n%s", tokens, reasoning, diff)
			}
			if whole.CachedTokens != 11 || whole.OutputTokens != int64(tokens) {
				t.Fatalf("usage: %+v", whole)
			}
		}
	}
}

// llamaCalled returns a call on a probed engine for a llama.cpp that answers rows with
// answer.
func llamaCalled(t *testing.T, answer http.HandlerFunc) engine.PreparedCall {
	t.Helper()
	f := &fake{
		server: "llama.cpp", pages: map[string]string{"/v1/models": `{"data":[{"id":"m","owned_by":"llamacpp"}]}`}, chat: answer,
	}
	return prepared(t, f.start(t, nil), engine.JobParams{Model: generator, Schema: json.RawMessage(`{}`)})
}

func TestStreamedAnswers(t *testing.T) {
	t.Parallel()
	const (
		begun = "data: {\"choices\":[{\"delta\":{\"content\":\"fine\"}}]}\n\n"
		ended = begun + "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
	)
	for name, c := range map[string]struct {
		contentType, body string
		want              engine.Error // Message: a part; no Class: accepted
	}{
		"complete":                   {"text/event-stream", ended + "data: [DONE]\n\n", engine.Error{}},
		"without [DONE]":             {"text/event-stream; charset=utf-8", ended, engine.Error{}},
		"one body, by a gateway":     {"application/json", good, engine.Error{}},
		"empty reasons, then stop":   {"text/event-stream", strings.Replace(begun, `}}]}`, `},"finish_reason":""}]}`, 1) + "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n", engine.Error{}},                                           // ollama/ollama 4357, sgl-project/sglang 3912
		"a null reason at the end":   {"text/event-stream", begun + "data: {\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":null}]}\n\ndata: [DONE]\n\n", engine.Error{Class: engine.Transient, Status: 200, Code: "unfinished", Raw: "fine"}}, // vllm-project/vllm 27572
		"the first choice cut off":   {"text/event-stream", "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"no\"},\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"fine\"}}]}\n\n", engine.Error{Class: engine.Transient, Status: 200, Code: "unfinished", Raw: "fine"}},
		"no reason until the last":   {"text/event-stream", ended, engine.Error{}}, // mlflow/mlflow 23139
		"broken off":                 {"text/event-stream", begun, engine.Error{Class: engine.Transient, Status: 200, Code: "unfinished", Raw: "fine"}},
		"nothing":                    {"text/event-stream", "data: [DONE]\n\n", engine.Error{Class: engine.Transient, Status: 200, Code: "no_choices"}},
		"malformed":                  {"text/event-stream", begun + "data: {nonsense\n\n", engine.Error{Class: engine.Transient, Status: 200, Code: "malformed_reply"}},
		"too long":                   {"text/event-stream", strings.Repeat(begun, 300), engine.Error{Class: engine.Transient, Status: 200, Code: "reply_too_large"}},
		"an error in the middle":     {"text/event-stream", begun + `data: {"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}` + "\n\n", engine.Error{Class: engine.Transient, Status: 400, Code: "exceed_context_size_error", Message: "broke off"}},
		"a cache that is full":       {"text/event-stream", begun + `data: {"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}` + "\n\n", engine.Error{Class: engine.Busy, Status: 500, Code: "server_error", Overloaded: true, Message: "Context size"}},
		"an error of older releases": {"text/event-stream", begun + `error: {"code":503,"message":"no","type":"unavailable_error"}` + "\n\n", engine.Error{Class: engine.Busy, Status: 503, Code: "unavailable_error", Overloaded: true}},
		"an error without a status":  {"text/event-stream", begun + `data: {"error":"oops"}` + "\n\n", engine.Error{Class: engine.Transient, Status: 200, Code: "error_in_reply"}},
		"too long a prompt, late":    {"text/event-stream", `data: {"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}` + "\n\n", engine.Error{Class: engine.RowFault, Status: 400, Code: rowmill.RowTooLong, TooLong: true}},
		"a bad schema, late":         {"text/event-stream", `data: {"error":{"code":400,"message":"JSON schema error","type":"invalid_request_error"}}` + "\n\n", engine.Error{Class: engine.JobFault, Status: 400, Code: "invalid_request_error", Message: "JSON schema error"}},
		"an error that quotes":       {"text/event-stream", `data: {"error":{"code":400,"message":"cannot parse: the quick brown fox jumps over the lazy dog","type":"x"}}` + "\n\n", engine.Error{Class: engine.RowFault, Status: 400, Code: "x", Message: "left out"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{
				server: "llama.cpp", pages: map[string]string{"/v1/models": `{"data":[{"id":"m","owned_by":"llamacpp"}]}`},
				chat: func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", c.contentType)
					_, _ = io.WriteString(w, c.body)
				},
			}
			e := f.start(t, func(cfg *Config) { cfg.MaxAnswerBytes = 1000 })
			call := prepared(t, e, engine.JobParams{Model: generator, Schema: json.RawMessage(`{}`)})
			reply, err := call.Generate(t.Context(), engine.Row{Text: []byte("say: the quick brown fox jumps over the lazy dog")})
			if c.want.Class == 0 {
				if err != nil || reply.Content != "fine" || reply.Finish != rowmill.FinishStop {
					t.Errorf("got %+v, %v", reply, err)
				}
				return
			}
			var got *engine.Error
			if !errors.As(err, &got) {
				t.Fatalf("got %+v, %v", reply, err)
			}
			have := *got
			if !strings.Contains(have.Message, c.want.Message) || have.Message == "" {
				t.Errorf("message %q, want a part %q", have.Message, c.want.Message)
			}
			have.Message, c.want.Message = "", ""
			if diff := cmp.Diff(c.want, have); diff != "" {
				t.Errorf("want (-), got (+):\n%s", diff)
			}
		})
	}
}

func TestStreamsReuseTheirConnection(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	call := llamaCalled(t, func(w http.ResponseWriter, r *http.Request) {
		seen[r.RemoteAddr] = true
		w.Header().Set("Content-Type", "text/event-stream")
		for line := range strings.Lines(streams[0]) {
			_, _ = io.WriteString(w, line)
			w.(http.Flusher).Flush()
		}
	})
	for range 5 {
		if reply, err := call.Generate(t.Context(), engine.Row{Text: []byte("x")}); err != nil || reply.Content != "yes" || reply.Reasoning != "hm" {
			t.Fatalf("got %+v, %v", reply, err)
		}
	}
	if len(seen) != 1 {
		t.Errorf("5 rows used %d connections", len(seen))
	}
}

// An answer is complete even if the server never ends the body after [DONE].
func TestAStreamThatStaysOpen(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	call := llamaCalled(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, streams[0])
		w.(http.Flusher).Flush()
		<-release
	})
	defer close(release)
	begun := time.Now()
	if reply, err := call.Generate(t.Context(), engine.Row{Text: []byte("x")}); err != nil || reply.Content != "yes" {
		t.Errorf("got %+v, %v", reply, err)
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("the answer took %v", took)
	}
}

// BenchmarkScanStream scans 73 tokens with one alternative as chunks: about 40 KB.
func BenchmarkScanStream(b *testing.B) {
	_, stream := bothForms(73, 0, rand.New(rand.NewPCG(1, 2)))
	b.ReportAllocs()
	b.SetBytes(int64(len(stream)))
	var src bytesSource
	for b.Loop() {
		src.rest = stream
		r := newReplyReader(&src, 1<<20, false)
		must.Succeed(b, r.scanStream(&src))
		if _, _, err := r.buildAnswer(false, false); err != nil {
			b.Fatal(err)
		}
		r.release()
	}
}

// TestChoicesInAnyOrder reads answers with more choices than were asked for.
func TestChoicesInAnyOrder(t *testing.T) {
	t.Parallel()
	choice := func(index, field, text string) string {
		if index != "" {
			index = `"index":` + index + `,`
		}
		return `{` + index + `"finish_reason":"` + text + `","` + field + `":{"content":"` + text + `","reasoning":"r` + text + `"},"logprobs":{"content":[{"logprob":-` + fmt.Sprint(len(text)) + `}]}}`
	}
	for name, c := range map[string]struct {
		indexes []string // of the choices; the text of each is its place
		want    string
	}{
		"in order":      {[]string{"0", "1"}, "a"},
		"reversed":      {[]string{"1", "0"}, "bb"},
		"lowest inside": {[]string{"2", "1", "3"}, "bb"},
		"none":          {[]string{"", ""}, "a"},
		"none after":    {[]string{"1", ""}, "bb"},
		"equal":         {[]string{"1", "1"}, "a"},
		"alone":         {[]string{"5"}, "a"},
		"not a number":  {[]string{`"x"`, "1"}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := found{Choices: true, Content: c.want, Reasoning: "r" + c.want, Finish: c.want, Sum: -float64(len(c.want)), Count: 1}
			var messages, deltas []string
			apart := ""
			for i, index := range c.indexes {
				text := strings.Repeat(string(rune('a'+i)), i+1)
				messages, deltas = append(messages, choice(index, "message", text)), append(deltas, choice(index, "delta", text))
				apart += `data: {"choices":[` + deltas[i] + "]}\n\n"
			}
			got, err := scanned(&bytesSource{rest: []byte(`{"choices":[` + strings.Join(messages, ",") + `]}`)}, 1<<20)
			if err != nil || got != want {
				t.Errorf("chat: %+v, %v; want %+v", got, err, want)
			}
			got, err = streamed(&bytesSource{rest: []byte(`data: {"choices":[` + strings.Join(deltas, ",") + "]}\n\ndata: [DONE]\n\n")}, 1<<20)
			if err != nil || got != want {
				t.Errorf("stream: %+v, %v; want %+v", got, err, want)
			}
			if name == "none" || name == "equal" {
				return // chunks of one choice
			}
			got, err = streamed(&bytesSource{rest: []byte(apart + "data: [DONE]\n\n")}, 1<<20)
			if err != nil || got != want {
				t.Errorf("stream of chunks: %+v, %v; want %+v", got, err, want)
			}
		})
	}
}
