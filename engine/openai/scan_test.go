package openai

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// bytesSource is a source with a body in memory.
type bytesSource struct{ rest []byte }

func (b *bytesSource) nextWindow() ([]byte, error) {
	if len(b.rest) == 0 {
		return nil, io.EOF
	}
	win := b.rest
	b.rest = nil
	return win, nil
}

// pieces is a source that returns a body in windows of given sizes.
type pieces struct {
	rest []byte
	size func() int
}

func (p *pieces) nextWindow() ([]byte, error) {
	if len(p.rest) == 0 {
		return nil, io.EOF
	}
	n := min(max(p.size(), 1), len(p.rest))
	// The next call overwrites the copy, which reveals code that keeps a window.
	win := bytes.Clone(p.rest[:n])
	p.rest = p.rest[n:]
	return win, nil
}

func FuzzScanChat(f *testing.F) {
	for _, body := range bodies {
		f.Add([]byte(body), uint64(1))
	}
	f.Fuzz(func(t *testing.T, body []byte, seed uint64) {
		whole, err := scanned(&bytesSource{rest: body}, 1<<20)

		// The result does not depend on the windows.
		rng := rand.New(rand.NewPCG(seed, 1))
		cut, cutErr := scanned(&pieces{rest: body, size: func() int { return 1 + rng.IntN(9) }}, 1<<20)
		if (err == nil) != (cutErr == nil) || whole != cut {
			t.Fatalf("in one window %+v (%v), in pieces %+v (%v)", whole, err, cut, cutErr)
		}
		if !utf8.ValidString(whole.Content) || !utf8.ValidString(whole.Reasoning) {
			t.Fatal("text is not UTF-8")
		}
		if duplicated(body) || !comparableBody(body) {
			return
		}
		want, ok := oracle(body)
		if ok != (err == nil) {
			t.Fatalf("encoding/json accepts: %v, scanner says: %v", ok, err)
		}
		if len(want.Finish) >= maxWord { // cut on purpose
			want.Finish, whole.Finish = "", ""
		}
		if math.Abs(want.Sum-whole.Sum) <= 1e-9*math.Abs(want.Sum) {
			whole.Sum = want.Sum
		}
		if diff := cmp.Diff(want, whole); diff != "" {
			t.Fatalf("encoding/json (-) and scanner (+):\n%s", diff)
		}
	})
}

// bodies are real replies of servers and broken variants.
var bodies = []string{
	`{"choices":[{"finish_reason":"length","index":0,"message":{"role":"assistant","content":", went"},"logprobs":{"content":[{"id":275,"token":",","bytes":[44],"logprob":-0.1342245489358902,"top_logprobs":[{"id":275,"token":",","bytes":[44],"logprob":-0.1342245489358902}]},{"id":1083,"token":" went","bytes":[32,119],"logprob":-0.16097101,"top_logprobs":[]}]}}],"created":1,"model":"m","usage":{"completion_tokens":2,"prompt_tokens":18,"total_tokens":20,"prompt_tokens_details":{"cached_tokens":0}},"timings":{"prompt_ms":0.9}}`,
	`{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","reasoning":"hm","content":null,"tool_calls":[]},"logprobs":null,"finish_reason":"stop","stop_reason":null}],"usage":{"prompt_tokens":5,"total_tokens":9,"completion_tokens":4,"prompt_tokens_details":null}}`,
	`{"choices":[{"message":{"reasoning_content":"a","reasoning":"b","content":"c\ud83d\ude00\ud800x\udc00\n\u00e9"},"finish_reason":"stop"}]}`,
	`{"choices":[]}`, `{"choices":null,"error":{"message":"no","code":"full"}}`, `{}`, `[]`, `null`, `"a"`, ``, ` `,
	`{"choices":[{"message":{"content":"` + "\xff\xc3(" + `"},"finish_reason":"stop"}]}`,
	`{"choices":[{"message":{"content":"a` + "\x01" + `"}}]}`, `{"choices":[{"message":{"content":5}}]}`,
	`{"usage":{"prompt_tokens":-1}}`, `{"usage":{"prompt_tokens":1.5}}`, `{"usage":{"prompt_tokens":1e2}}`, `{"usage":{"prompt_tokens":01}}`,
	`{"a":1` + strings.Repeat("0", 900) + `,"b":[-0.` + strings.Repeat("3", 200) + `E-5, 0e1]}`, `{"a":1` + strings.Repeat("0", 9000) + `.5}`,
	`{"a":1.}`, `{"a":.5}`, `{"a":-}`, `{"a":1e}`, `{"a":1E+5,"b":-0}`, `{"a":tru}`, `{"a":true,"b":false,"c":null}`, `{"a":nul`,
	`{"a":1,}`, `{,"a":1}`, `{"a" :1 , "b":[1 ,2 ]}`, `{"a":1}x`, `{"a":1} `, `{"a":[1,]}`, `{"a":"\x"}`, `{"a":"\u12g4"}`, `{"a":"\`, `{"a"1}`, `{a:1}`,
	`{"choices":[{"logprobs":{"content":[{"token":"x","logprob":-9999.0},{"token":"y","logprob":null},{"token":"z","logprob":1e-9}]}}]}`,
	`{"\u0063hoices":[{"message":{"content":"escaped key"},"finish_reason":"stop"}]}`,
	`{"` + strings.Repeat("k", 100) + `":1,"choices":[{},{"message":{"content":"second"}}]}`,
	`{"a":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`,
}

func TestScanLastKeyCounts(t *testing.T) {
	t.Parallel()
	got, err := scanned(&bytesSource{rest: []byte(`{"choices":[{"message":{"content":"first"}}],"choices":[
		{"message":{"content":"x"},"message":{"content":"a","content":"second"},"finish_reason":"length","finish_reason":"stop"}]}`)}, 100)
	if err != nil || got.Content != "second" || got.Finish != "stop" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestScanLimits(t *testing.T) {
	t.Parallel()
	deep := `{"a":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + `}`
	long := `{"choices":[{"message":{"content":"0123456789\n"}}]}`
	for name, c := range map[string]struct {
		body  string
		limit int
		want  string
	}{
		"depth":         {deep, 100, "nested too deeply at byte 69"},
		"answer":        {long, 9, errTooLong.Error()},
		"answer+escape": {long, 10, errTooLong.Error()},
		"number":        {`{"usage":{"prompt_tokens":1` + strings.Repeat("0", maxNumber) + `}}`, 100, "number too long"},
		"truncated":     {long[:30], 100, "ends inside its JSON"},
	} {
		if _, err := scanned(&bytesSource{rest: []byte(c.body)}, c.limit); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := scanned(&bytesSource{rest: []byte(long)}, 11); err != nil {
		t.Errorf("an answer as long as the limit: %v", err)
	}
}

// A huge reply costs only the memory of its text.
func TestScanMemory(t *testing.T) {
	body := chatBody(32000, 2)
	if len(body) < 5<<20 {
		t.Fatalf("the body has only %d bytes", len(body))
	}
	src := &pieces{size: func() int { return 8 << 10 }}
	var text int
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			*src = pieces{rest: body, size: src.size}
			r := newReplyReader(noCopy{src}, 8<<20, false)
			must.Succeed(b, r.scanChat())
			out, _, _ := r.buildAnswer(true, false)
			text = len(out.Content)
			r.release()
		}
	})
	// The text is in memory twice: while it is read, and as the answer.
	if limit := int64(5*text + 64<<10); result.AllocedBytesPerOp() > limit {
		t.Errorf("%d bytes allocated for a text of %d in a body of %d", result.AllocedBytesPerOp(), text, len(body))
	}
}

// noCopy returns the windows of a pieces without copying them.
type noCopy struct{ *pieces }

func (p noCopy) nextWindow() ([]byte, error) {
	if len(p.rest) == 0 {
		return nil, io.EOF
	}
	n := min(p.size(), len(p.rest))
	win := p.rest[:n]
	p.rest = p.rest[n:]
	return win, nil
}

// chatBody returns a reply with log probabilities for tokens tokens, in vLLM's format;
// alternatives is the length of each top_logprobs.
func chatBody(tokens, alternatives int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	words := []string{" the", " of", " quick", ".", " brown", "fox", " jumps", "\\n"}
	var text, probs strings.Builder
	for i := range tokens {
		word := words[rng.IntN(len(words))]
		text.WriteString(word)
		if i > 0 {
			probs.WriteByte(',')
		}
		one := fmt.Sprintf(`{"token":"%s","logprob":%v,"bytes":[32,116,104]`, word, -3*rng.Float64())
		probs.WriteString(one + `,"top_logprobs":[`)
		for a := range alternatives {
			if a > 0 {
				probs.WriteByte(',')
			}
			probs.WriteString(one + "}")
		}
		probs.WriteString("]}")
	}
	logprobs := "null"
	if alternatives > 0 {
		logprobs = `{"content":[` + probs.String() + `],"refusal":null}`
	}
	return fmt.Appendf(nil, `{"id":"chatcmpl-0123456789abcdef","object":"chat.completion","created":1795224372,"model":"some/model","choices":[{"index":0,"message":{"role":"assistant","content":"%s","refusal":null,"annotations":null,"audio":null,"function_call":null,"tool_calls":[],"reasoning_content":null},"logprobs":%s,"finish_reason":"stop","stop_reason":null}],"service_tier":null,"system_fingerprint":null,"usage":{"prompt_tokens":231,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":null},"prompt_logprobs":null}`,
		text.String(), logprobs, 231+tokens, tokens)
}

func FuzzNumber(f *testing.F) {
	for _, s := range []string{"0", "-0", "1.5", "-0.00012345678901234567", "9007199254740993", "1e-7", "123456789012345678901234567890", "0.1e1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) >= maxNumber || strings.ContainsAny(s, " \t\r\n") {
			return
		}
		var want float64
		wantErr := json.Unmarshal([]byte(s), &want)
		if s == "null" {
			return
		}
		var sc scanner
		sc.reset(&bytesSource{rest: []byte(s + " ")})
		got := sc.readNumber()
		sc.expectEnd()
		if (wantErr == nil) != (sc.err == nil) || wantErr == nil && (got != want || math.Signbit(got) != math.Signbit(want)) {
			t.Fatalf("%q: %v (%v), encoding/json %v (%v)", s, got, sc.err, want, wantErr)
		}
	})
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"plain", "a\"b\\c", "\x00\x1f\x7f", "é日🦙\u2028", "\xff\xc3(\xed\xa0\x80", "\ufffd"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted := textfmt.AppendString(nil, []byte(s))
		var back string
		if err := json.Unmarshal(quoted, &back); err != nil {
			t.Fatalf("%q became %s: %v", s, quoted, err)
		}
		if want := string(textfmt.AppendValidUTF8(nil, []byte(s))); back != want {
			t.Fatalf("%q came back as %q", s, back)
		}
		if utf8.ValidString(s) && back != s {
			t.Fatalf("%q changed to %q", s, back)
		}
		// The scanner must read the output of textfmt.AppendString.
		var sc scanner
		sc.reset(&bytesSource{rest: quoted})
		if got := string(sc.readString(nil, len(back), false)); got != back || sc.err != nil {
			t.Fatalf("scanner reads %q (%v), want %q", got, sc.err, back)
		}
	})
}

func TestScanEmbeddings(t *testing.T) {
	t.Parallel()
	pack := func(v ...float32) string {
		var b []byte
		for _, f := range v {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
		}
		return base64.StdEncoding.EncodeToString(b)
	}
	inf := float32(math.Inf(1))
	for name, c := range map[string]struct {
		body      string
		dimension int
		want      string // of the error; empty: vectors {1, 2} and {3, 4}
		class     engine.ErrorClass
	}{
		"lists, in another order": {body: `{"data":[{"index":1,"embedding":[3,4.0]},{"embedding":[1,2e0],"index":0}],"usage":{"prompt_tokens":7}}`, dimension: 2},
		"base64":                  {body: `{"data":[{"index":0,"embedding":"` + pack(1, 2) + `"},{"index":1,"embedding":"` + strings.ReplaceAll(pack(3, 4), "/", `\/`) + `"}]}`, dimension: 2},
		"no index":                {body: `{"data":[{"embedding":[1,2]},{"embedding":[3,4]}]}`},
		"wrong dimension":         {body: `{"data":[{"embedding":[1,2]},{"embedding":[3,4]}]}`, dimension: 3, want: "have 2 numbers, but the model's dimension is 3: correct the dimension", class: engine.JobFault},
		"one missing":             {body: `{"data":[{"index":1,"embedding":[1,2]}]}`, want: "no embedding for text 1 of 2", class: engine.Transient},
		"twice the same":          {body: `{"data":[{"index":1,"embedding":[1,2]},{"index":1,"embedding":[1,2]}]}`, want: "index that was not asked for"},
		"index too large":         {body: `{"data":[{"index":2,"embedding":[1,2]}]}`, want: "index that was not asked for"},
		"not a number":            {body: `{"data":[{"embedding":"` + pack(1, inf) + `"}]}`, want: "not finite"},
		"broken base64":           {body: `{"data":[{"embedding":"AAA"}]}`, want: "not base64"},
		"three bytes":             {body: `{"data":[{"embedding":"AAAA"}]}`, want: "not base64"},
		"empty":                   {body: `{"data":[{"embedding":[]}]}`, want: "empty embedding"},
		"no data":                 {body: `{"object":"list"}`, want: "no embedding for text 1 of 2", class: engine.Transient},
		"an error inside":         {body: `{"error":{"code":"queue_full"}}`, want: "error inside its reply", class: engine.Transient},
	} {
		r := newReplyReader(&bytesSource{rest: []byte(c.body)}, 1<<20, false)
		out := make([]engine.Reply, 2)
		err := r.scanEmbeddings(out, c.dimension)
		r.release()
		if c.want != "" {
			var fault *engine.Error
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, &fault) && fault.Class != c.class {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
			continue
		}
		if err != nil || !cmp.Equal(out[0].Embedding, []float32{1, 2}) || !cmp.Equal(out[1].Embedding, []float32{3, 4}) {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
}

func TestShare(t *testing.T) {
	t.Parallel()
	rows := []engine.Row{{Text: []byte("aaaa")}, {}, {Text: []byte("bb")}, {Text: bytes.Repeat([]byte("c"), 100)}}
	for _, tokens := range []int64{0, 1, 7, 1000, 1 << 40} {
		out := make([]engine.Reply, len(rows))
		divideTokens(tokens, rows, out)
		var sum int64
		for _, r := range out {
			if r.InputTokens < 0 {
				t.Errorf("%d tokens: a share of %d", tokens, r.InputTokens)
			}
			sum += r.InputTokens
		}
		if sum != tokens {
			t.Errorf("shares of %d tokens add up to %d", tokens, sum)
		}
	}
}
