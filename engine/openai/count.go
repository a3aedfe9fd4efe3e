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

// A countMethod is one kind of request that makes a server count the tokens of a prompt.
type countMethod struct {
	head []byte // head of the request, up to the value of Content-Length

	// prefix and suffix are the JSON before and after the row's escaped text. If prefix
	// is nil, the request has the same body as the row's own request.
	prefix, suffix []byte

	pausedUntil atomic.Int64 // time before which this countMethod is not used, Unix nanoseconds; see countPause and pausedForever
}

// countPause is the time for which a countMethod is not used after a timeout or a server
// error, because each failed try delays a row. The value pausedForever of countMethod.pausedUntil
// means that the server does not support this countMethod.
const (
	countPause    = time.Minute
	pausedForever = math.MaxInt64
)

// prepareCountMethods lists the requests that can count the prompts of p, the best first.
//
//	llama.cpp        /v1/chat/completions/input_tokens takes a chat request and
//	                 answers {"input_tokens": n}; for embeddings /tokenize
//	vLLM             /tokenize with messages. /v1/chat/completions/render takes a
//	                 chat request and answers with its token_ids. It renders the
//	                 prompt with the same code as a generation. This is better for
//	                 gpt-oss, for which /tokenize uses the chat template. But vLLM
//	                 0.32 refuses /render with 403 unless it was started with
//	                 --enable-scale-out. Even then /render refuses a prompt that is
//	                 too long with 400, while /tokenize counts it
//	SGLang, sim      /tokenize with messages; old releases of SGLang accept only
//	                 a text, and count it without the template
//	other kinds      none; Ollama and Infinity silently truncate long prompts
//
// Tested with vLLM 0.32, SGLang 0.5.23, llama.cpp and Rowmill's simulated server. Older
// releases of vLLM (from 0.11) and SGLang were not tested: only their code was read.
func (c *preparedCall) prepareCountMethods(p engine.JobParams) error {
	e, kind := c.engine, c.target.kind
	asRow := func(path string) *countMethod { return &countMethod{head: e.buildRequestHead(path)} }
	asText := func(field, more string) *countMethod {
		prefix := append(textfmt.AppendString([]byte(`{"model":`), []byte(c.target.name)), `,"`+field+`":"`...)
		return &countMethod{head: e.buildRequestHead("/tokenize"), prefix: prefix, suffix: []byte(`"` + more + `}`)}
	}
	embeds := p.Model.Kind == rowmill.KindEmbedding
	switch {
	case !CanCountPrompts(kind):
	case embeds && kind == kindLlama:
		c.ways = []*countMethod{asText("content", `,"add_special":true`)}
	case embeds:
		c.ways = []*countMethod{asText("prompt", "")}
	case kind == kindLlama:
		c.ways = []*countMethod{asRow("/v1/chat/completions/input_tokens")}
	default:
		suffix, err := appendFields([]byte(c.messagesEnd()+`,"add_generation_prompt":true`), chatTemplateFields(p.Model.RequestExtras))
		if err != nil {
			return err
		}
		c.ways = []*countMethod{{head: e.buildRequestHead("/tokenize"), prefix: c.prefix, suffix: append(suffix, '}')}}
		if kind == kindVLLM {
			c.ways = append(c.ways, asRow("/v1/chat/completions/render"))
			if p.Model.Template == harmony {
				slices.Reverse(c.ways)
			}
		}
	}
	return nil
}

// harmony is the name of the prompt template of gpt-oss. To generate, vLLM renders
// harmony prompts by code and not with the model's chat template.
const harmony = "harmony"

// chatTemplateFields returns the chat template settings of request_extras as fields for
// /tokenize. It moves reasoning_effort into chat_template_kwargs, because /tokenize has
// no field reasoning_effort.
func chatTemplateFields(extras map[string]any) []requestField {
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
	return []requestField{{"chat_template_kwargs", kwargs}}
}

// errCountUnsupported reports that the server does not support this countMethod.
var errCountUnsupported = errors.New("the server does not support this way to count a prompt")

// CountPrompt returns the number of tokens of a row's prompt. It tries the requests of
// c.ways in order until one gives a count. A row without Timeout gets the timeout of a
// probe, because counting needs no GPU.
func (c *preparedCall) CountPrompt(ctx context.Context, row engine.Row) (int, error) {
	var tooLong, passing error
	for _, way := range c.ways {
		now := time.Now()
		switch until := way.pausedUntil.Load(); {
		case until == pausedForever:
			continue
		case now.UnixNano() < until:
			passing = errCountPaused
			continue
		}
		tokens, err := c.sendCountRequest(ctx, way, row)
		var fault *engine.Error
		switch {
		case err == nil:
			return tokens, nil
		case errors.Is(err, errCountUnsupported):
			way.pausedUntil.Store(pausedForever)
		case !errors.As(err, &fault): // the context's error
			return 0, err
		case fault.TooLong:
			tooLong = fault
		default:
			passing = fault
			if fault.Code == codeTimeout || fault.Status >= 500 && !fault.Overloaded {
				way.pausedUntil.Store(now.Add(countPause).UnixNano())
			}
		}
	}
	switch {
	case tooLong != nil:
		return 0, tooLong
	case passing != nil:
		return 0, passing
	}
	if c.target.truncatesPrompts() {
		return 0, engine.ErrCutsPrompts
	}
	return 0, engine.ErrNoCounting
}

// errCountPaused reports that the server cannot count prompts now, because a countMethod is
// paused after an error (see countPause).
var errCountPaused = &engine.Error{Class: engine.Transient, Code: "not_counted", Message: "the server does not count prompts now"}

var _ engine.PromptCounter = (*preparedCall)(nil)

// sendCountRequest asks the server to count the tokens of a row's prompt with the given
// countMethod.
func (c *preparedCall) sendCountRequest(ctx context.Context, way *countMethod, row engine.Row) (int, error) {
	e, p := c.engine, newCallTimeout(c.engine.cfg.ProbeTimeout)
	if row.Timeout > 0 {
		p = newCallTimeout(row.Timeout)
	}
	conn, err := e.send(ctx, way.head, "", p, func(dst []byte) []byte {
		if way.prefix == nil {
			return c.appendChatRequest(dst, row, c.trailer.Load())
		}
		return append(c.appendRow(append(dst, way.prefix...), row.Text), way.suffix...)
	})
	if err != nil {
		return 0, err
	}
	if err := e.checkHeader(ctx, conn, c.settings, row.Text, c.system); err != nil {
		var fault *engine.Error
		if errors.As(err, &fault) && isCountUnsupported(fault, c.target.kind) {
			return 0, errCountUnsupported
		}
		return 0, err
	}
	r := newReplyReader(&conn.body, e.cfg.MaxAnswerBytes, false)
	defer r.release()
	tokens, found, err := r.scanTokenCount()
	e.releaseConn(conn)
	switch {
	case err != nil:
		return 0, e.exchangeError(ctx, err, p)
	case !found, int64(tokens) > maxInputTokens(len(c.prefix)+len(row.Text)+c.tailSize()):
		return 0, errCountUnsupported // the count is missing or impossibly high: never use this countMethod again
	}
	return tokens, nil
}

// isCountUnsupported reports whether a refusal means that a server of this kind does not support
// the countMethod: the path is unknown or switched off, or SGLang refuses messages in
// place of a text.
func isCountUnsupported(fault *engine.Error, kind string) bool {
	switch {
	case fault.Class == engine.ServerFault, fault.Status == http.StatusNotImplemented:
		return true
	case fault.Status == http.StatusBadRequest, fault.Status == http.StatusUnprocessableEntity:
		return kind == kindSGLang && !fault.TooLong
	}
	return false
}

// scanTokenCount reads the number of tokens in a reply, or counts the items of its list of
// tokens. found is false if the reply has neither, such as the bare list of early
// releases of vLLM.
func (r *replyReader) scanTokenCount() (tokens int, found bool, err error) {
	if r.peek() != '{' {
		return 0, false, r.err
	}
	counted := false // the reply has a number, which has priority over the length of a list
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		key := string(k) // copy it: peek may overwrite the window
		switch next := r.peek(); {
		case (key == "count" || key == "input_tokens") && next-'0' < 10:
			tokens, counted = int(r.readCount()), true
		case (key == "tokens" || key == "token_ids") && next == '[':
			listed := 0
			for more := r.firstItem(); more; more = r.nextItem() {
				r.skipValue()
				listed++
			}
			if found = true; !counted {
				tokens = listed
			}
		default:
			r.skipValue()
		}
	}
	r.expectEnd()
	return tokens, found || counted, r.err
}
