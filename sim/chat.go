package sim

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/rowmill/rowmill/spelling"
)

// generation is a chat completion on its way through the server. It is reused.
type generation struct {
	req        chatRequest
	answer     answer
	directives directives
	fault      outcome
	use        Use // of the engine, once it is known
	began      time.Time
	within     string // as of Server.within
}

func (s *Server) release(g *generation) {
	if cap(g.answer.text) > keepBytes || cap(g.req.prompt) > keepBytes {
		g = new(generation)
	}
	s.pool.Put(g)
}

// notJSON is the content that [[sim:invalid-json]] asks for.
const notJSON = `[simulated] {"this is": not JSON`

// chat serves /v1/chat/completions.
func (s *Server) chat(x *exchange) {
	g := s.pool.Get().(*generation)
	defer s.release(g)
	g.began, g.use, g.within = time.Now(), Use{}, s.within(x)
	s.generate(x, g)
}

func (s *Server) generate(x *exchange, g *generation) {
	req := &g.req
	if err := req.parse(x.body, s.find); err != nil {
		s.refuse(x, err)
		return
	}
	generator, plain, err := s.generator(req)
	if err != nil {
		s.refuse(x, err)
		return
	}
	g.directives = directives{}
	g.directives.read(req.prompt)
	g.fault = s.faults.decide(req.promptID.key(), &g.directives)
	if g.fault.fault == faultViolate && generator == nil {
		g.fault = outcome{} // there is no schema to violate
	}
	s.counts.faults[g.fault.fault].Add(1)
	if err := sleep(x.context(), g.directives.delay); err != nil {
		s.abandon(x, g, 0, err)
		return
	}
	form := shape{json: generator, plain: plain}
	switch {
	case g.directives.invalidJSON:
		form.raw = []byte(notJSON)
	case generator != nil && (g.directives.violate || g.fault.fault == faultViolate):
		if form.raw, err = generator.Violate(); err != nil {
			form.raw = []byte(notJSON) // the only way to violate a schema that accepts everything
		}
	}
	switch g.fault.fault {
	case faultStatus:
		s.note(g, g.fault.status, 0, false)
		s.refuse(x, failWith(g.fault.status))
		return
	case faultReset:
		s.note(g, 0, 0, false)
		x.reset()
		return
	}
	s.compose(&g.answer, req, form, &g.directives, req.limit())
	run, err := s.pace.Start(Work{Prompt: req.prompt, PromptTokens: req.promptTokens, OutputTokens: len(g.answer.pieces)})
	if err != nil {
		f := notStarted(err)
		s.note(g, f.status, 0, false)
		s.refuse(x, f)
		return
	}
	defer run.End()
	if req.Stream && g.fault.fault != faultHang {
		s.stream(x, g, run)
		return
	}
	s.finish(x, g, run)
}

// finish waits for a whole answer and sends it.
func (s *Server) finish(x *exchange, g *generation, run Run) {
	wanted := len(g.answer.pieces)
	ready, err := run.Wait(x.context(), wanted)
	g.use = run.Use()
	if err == nil && g.fault.fault == faultHang {
		ready, err = 0, s.hang(x.context())
	}
	if err != nil {
		s.abandon(x, g, ready, err)
		return
	}
	s.note(g, http.StatusOK, wanted, false)
	s.deliver(x, g.fault.fault, s.appendCompletion(x.buffer(), g))
}

// deliver sends the body of an answer with status 200, whole unless a fault breaks it.
func (s *Server) deliver(x *exchange, broken fault, body []byte) {
	switch broken {
	case faultTruncate:
		s.counts.status[http.StatusOK].Add(1)
		x.head(typeJSON)
		_ = x.send(body[:len(body)/2]) // the connection breaks anyway
		x.breakOff()
	case faultMalformed:
		s.reply(x, typeJSON, append(body[:len(body)/2], `}}] simulated malformed JSON`...))
	default:
		s.reply(x, typeJSON, body)
	}
}

// errHung ends a hung request when the server stops.
var errHung = errors.New("server stopped while the request hung")

// hang waits until the client gives up or the server stops.
func (s *Server) hang(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stopping:
		return errHung
	}
}

// brokenOff reports whether it was the server that ended a request.
func brokenOff(err error) bool { return errors.Is(err, errHung) || errors.Is(err, errPaceClosed) }

// abandon ends a request that is not answered any more.
func (s *Server) abandon(x *exchange, g *generation, ready int, err error) {
	cancelled := !brokenOff(err)
	if cancelled {
		s.counts.disconnects.Add(1)
	}
	s.note(g, 0, ready, cancelled)
	x.reset()
}

// note counts a generation that has ended and writes its line of the request log. status
// is 0 where nothing was answered; ready is how many tokens were generated.
func (s *Server) note(g *generation, status, ready int, cancelled bool) {
	if status == http.StatusOK || cancelled {
		s.counts.promptTokens.Add(int64(g.req.promptTokens))
		s.counts.outputTokens.Add(int64(ready))
		reason := g.answer.finish
		if cancelled {
			reason = "abort"
		}
		s.counts.finished(reason)
	}
	if s.requests == nil {
		return
	}
	s.requests.write(record{
		at: g.began, endpoint: "chat", model: g.req.name, text: g.req.prompt[g.req.lastUser[0]:g.req.lastUser[1]],
		seed: (*int64)(g.req.Seed), promptTokens: g.req.promptTokens, outputTokens: ready,
		status: status, cancelled: cancelled, fault: g.fault.fault, use: g.use, traceparent: g.within,
	})
}

// within is the traceparent of a request, for its line of the request log.
func (s *Server) within(x *exchange) string {
	if s.requests == nil {
		return ""
	}
	return x.r.Header.Get("traceparent")
}

// sleep waits unless the context ends before.
func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// appendHead begins a completion or a chunk, up to the value of choices.
func (s *Server) appendHead(dst []byte, object string, g *generation, serial uint64) []byte {
	dst = append(dst, `{"id":"chatcmpl-sim-`...)
	dst = strconv.AppendUint(dst, serial, 16)
	dst = append(dst, `","object":"`...)
	dst = append(dst, object...)
	dst = append(dst, `","created":`...)
	dst = strconv.AppendInt(dst, g.began.Unix(), 10)
	dst = append(dst, `,"model":`...)
	dst = spelling.AppendString(dst, []byte(g.req.name))
	return append(dst, `,"system_fingerprint":"rowmill-sim","simulated":true,"choices":[`...)
}

// appendCompletion writes the body of a whole answer.
func (s *Server) appendCompletion(dst []byte, g *generation) []byte {
	req := &g.req
	dst = s.appendHead(dst, "chat.completion", g, s.serial.Add(1))
	if g.fault.fault == faultEmpty {
		dst = append(dst, ']')
		return append(appendUsage(dst, g), '}')
	}
	for n := range int(req.Choices) {
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = s.appendChoice(dst, g, n)
	}
	dst = append(dst, ']')
	return append(appendUsage(dst, g), '}')
}

// appendChoice writes one of the answers.
func (s *Server) appendChoice(dst []byte, g *generation, n int) []byte {
	a, req := &g.answer, &g.req
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(n), 10)
	dst = append(dst, `,"message":{"role":"assistant"`...)
	if a.reasons {
		dst = append(dst, `,"reasoning_content":`...)
		dst = spelling.AppendString(dst, a.reasoning(0, a.shown))
	}
	dst = append(dst, `,"content":`...)
	switch content := a.content(0, a.shown); {
	case req.called != nil:
		dst = req.called.appendCall(append(dst, "null"...), s.serial.Load(), n, content)
	case content != nil || !a.reasons:
		dst = spelling.AppendString(dst, content)
	default:
		dst = append(dst, "null"...)
	}
	dst = append(dst, `},"logprobs":`...)
	if req.Logprobs {
		r := req.digest.random().fork(4)
		dst = s.appendLogprobs(dst, g, &r, 0, len(a.pieces))
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, ',')
	return append(appendFinish(dst, a), '}')
}

// appendFinish writes why the answer ended.
func appendFinish(dst []byte, a *answer) []byte {
	dst = append(dst, `"finish_reason":`...)
	dst = spelling.AppendString(dst, []byte(a.finish))
	dst = append(dst, `,"stop_reason":`...)
	switch {
	case a.stopText != nil:
		return spelling.AppendString(dst, a.stopText)
	case a.stopID != 0:
		return strconv.AppendInt(dst, int64(a.stopID), 10)
	}
	return append(dst, "null"...)
}

// appendUsage writes the member usage.
func appendUsage(dst []byte, g *generation) []byte {
	output := len(g.answer.pieces) * int(g.req.Choices)
	dst = append(dst, `,"usage":{"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(g.req.promptTokens), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(output), 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, int64(g.req.promptTokens+output), 10)
	dst = append(dst, `,"prompt_tokens_details":{"cached_tokens":`...)
	dst = strconv.AppendInt(dst, int64(g.use.CachedTokens), 10)
	dst = append(dst, '}')
	if g.answer.reasons {
		dst = append(dst, `,"completion_tokens_details":{"reasoning_tokens":`...)
		dst = strconv.AppendInt(dst, int64(g.answer.reasoningTokens()), 10)
		dst = append(dst, '}')
	}
	return append(dst, '}')
}
