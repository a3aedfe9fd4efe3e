package openai

import (
	"context"
	"errors"
	"maps"
	"math"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// A countWay is one way to let a server count a prompt: a kind of request.
type countWay struct {
	head []byte // head of the request, up to the value of Content-Length

	// prefix and suffix enclose the escaped text of the row. Without a prefix the body
	// is the body of the row's own request.
	prefix, suffix []byte

	aside atomic.Int64 // the way is not used before this time, Unix nanoseconds
}

// After a timeout or an error of the server a way is not used for the time setAside,
// because each try costs a row the time of a probe. A way that the server does not support
// is never used again.
const (
	setAside = time.Minute
	forEver  = math.MaxInt64
)

// prepareCount prepares the ways to count the prompts of p, best first.
//
//	llama.cpp        /v1/chat/completions/input_tokens takes a chat request and
//	                 answers {"input_tokens": n}; for embeddings /tokenize
//	vLLM             /tokenize with messages. /v1/chat/completions/render takes a
//	                 chat request and answers with its token_ids. It renders the
//	                 prompt with the same code as a generation. This is better for
//	                 gpt-oss: /tokenize renders its prompts with the chat template.
//	                 But vLLM 0.32 refuses /render with 403 unless it was started
//	                 with --enable-scale-out. Even then it refuses a prompt that is
//	                 too long with 400, and /tokenize counts it
//	SGLang, sim      /tokenize with messages; old releases of SGLang accept only
//	                 a text, and its count does not include the template
//	the others       none; Ollama and Infinity silently truncate long prompts
//
// Sources: vLLM 0.32, SGLang 0.5.23, llama.cpp and our simulated server were
// tried; the protocols of older vLLM (from 0.11) and SGLang were read.
func (c *call) prepareCount(p engine.Params) error {
	e, kind := c.engine, c.target.kind
	asRow := func(path string) *countWay { return &countWay{head: e.head(path)} }
	asText := func(field, more string) *countWay {
		prefix := append(textfmt.AppendString([]byte(`{"model":`), []byte(c.target.name)), `,"`+field+`":"`...)
		return &countWay{head: e.head("/tokenize"), prefix: prefix, suffix: []byte(`"` + more + `}`)}
	}
	embeds := p.Model.Kind == rowmill.KindEmbedding
	switch {
	case !Counts(kind):
	case embeds && kind == kindLlama:
		c.ways = []*countWay{asText("content", `,"add_special":true`)}
	case embeds:
		c.ways = []*countWay{asText("prompt", "")}
	case kind == kindLlama:
		c.ways = []*countWay{asRow("/v1/chat/completions/input_tokens")}
	default:
		suffix, err := appendFields([]byte(`"}],"add_generation_prompt":true`), templateFields(p.Model.RequestExtras))
		if err != nil {
			return err
		}
		c.ways = []*countWay{{head: e.head("/tokenize"), prefix: c.prefix, suffix: append(suffix, '}')}}
		if kind == kindVLLM {
			c.ways = append(c.ways, asRow("/v1/chat/completions/render"))
			if p.Model.Template == harmony {
				slices.Reverse(c.ways)
			}
		}
	}
	return nil
}

// harmony is the template of gpt-oss. For a generation vLLM renders its prompts by code,
// not with the chat template.
const harmony = "harmony"

// templateFields returns the extras for the chat template in the form of /tokenize, which
// has no field reasoning_effort.
func templateFields(extras map[string]any) []param {
	kwargs := map[string]any{}
	if given, ok := extras["chat_template_kwargs"].(map[string]any); ok {
		maps.Copy(kwargs, given)
	}
	if effort, ok := extras["reasoning_effort"]; ok {
		kwargs["reasoning_effort"] = effort
	}
	if len(kwargs) == 0 {
		return nil
	}
	return []param{{"chat_template_kwargs", kwargs}}
}

// errNoWay reports that a server does not support a way to count.
var errNoWay = errors.New("the server does not support this way to count a prompt")

// CountPrompt returns the tokens of a row's prompt, by the first way that answers. A row
// without Patience gets the timeout of a probe: counting needs no GPU.
func (c *call) CountPrompt(ctx context.Context, row engine.Row) (int, error) {
	var tooLong, passing error
	for _, way := range c.ways {
		now := time.Now()
		switch until := way.aside.Load(); {
		case until == forEver:
			continue
		case now.UnixNano() < until:
			passing = errAside
			continue
		}
		tokens, err := c.countBy(ctx, way, row)
		var fault *engine.Error
		switch {
		case err == nil:
			return tokens, nil
		case errors.Is(err, errNoWay):
			way.aside.Store(forEver)
		case !errors.As(err, &fault): // the context's error
			return 0, err
		case fault.TooLong:
			tooLong = fault
		default:
			passing = fault
			if fault.Code == codeTimeout || fault.Status >= 500 && !fault.Overloaded {
				way.aside.Store(now.Add(setAside).UnixNano())
			}
		}
	}
	switch {
	case tooLong != nil:
		return 0, tooLong
	case passing != nil:
		return 0, passing
	}
	if c.target.cutsPrompts() {
		return 0, engine.ErrCutsPrompts
	}
	return 0, engine.ErrNoCounting
}

// errAside reports that all ways to count are set aside now.
var errAside = &engine.Error{Class: engine.Moment, Code: "not_counted", Message: "the server does not count prompts now"}

var _ engine.PromptCounter = (*call)(nil)

func (c *call) countBy(ctx context.Context, way *countWay, row engine.Row) (int, error) {
	e, p := c.engine, newPatience(c.engine.cfg.ProbeTimeout)
	if row.Patience > 0 {
		p = newPatience(row.Patience)
	}
	conn, err := e.send(ctx, way.head, "", p, func(dst []byte) []byte {
		if way.prefix == nil {
			return c.appendRow(dst, row, c.trailer.Load())
		}
		return append(textfmt.AppendEscaped(append(dst, way.prefix...), row.Text), way.suffix...)
	})
	if err != nil {
		return 0, err
	}
	if err := e.checkHeader(ctx, conn, c.asked, row.Text, c.system); err != nil {
		var fault *engine.Error
		if errors.As(err, &fault) && lacksWay(fault, c.target.kind) {
			return 0, errNoWay
		}
		return 0, err
	}
	r := newReply(&conn.body, e.cfg.MaxAnswerBytes, false)
	defer r.release()
	tokens, found, err := r.scanCount()
	e.finish(conn)
	switch {
	case err != nil:
		return 0, e.exchangeError(ctx, err, p)
	case !found, int64(tokens) > mostInput(len(c.prefix)+len(row.Text)+c.trailerSize()):
		return 0, errNoWay // the count is impossible: do not use this way again
	}
	return tokens, nil
}

// lacksWay reports whether a refusal means that the server does not support a way to
// count: an unknown path, a path that is switched off, or SGLang's refusal of messages in
// place of a text.
func lacksWay(fault *engine.Error, kind string) bool {
	switch {
	case fault.Class == engine.ServerFault, fault.Status == http.StatusNotImplemented:
		return true
	case fault.Status == http.StatusBadRequest, fault.Status == http.StatusUnprocessableEntity:
		return kind == kindSGLang && !fault.TooLong
	}
	return false
}

// scanCount reads the number or the list of tokens in a reply. found is false for other
// replies, such as the bare list of early releases of vLLM.
func (r *reply) scanCount() (tokens int, found bool, err error) {
	if r.peek() != '{' {
		return 0, false, r.err
	}
	counted := false // a number was read, which has priority over the length of a list
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		key := string(k) // before peek, which may move the window
		switch next := r.peek(); {
		case (key == "count" || key == "input_tokens") && next-'0' < 10:
			tokens, counted = int(r.count()), true
		case (key == "tokens" || key == "token_ids") && next == '[':
			listed := 0
			for more := r.firstItem(); more; more = r.nextItem() {
				r.skip()
				listed++
			}
			if found = true; !counted {
				tokens = listed
			}
		default:
			r.skip()
		}
	}
	r.end()
	return tokens, found || counted, r.err
}
