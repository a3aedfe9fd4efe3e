package sim

import (
	"net/http"
	"time"
)

// chatGeneration is a request for a chat completion while the server works on it, with its
// answer. A pool reuses it.
type chatGeneration struct {
	activeRequest
	req        chatRequest
	answer     answer
	directives directives
	serial     uint64 // number of the answer
}

func (s *Server) release(g *chatGeneration) {
	if cap(g.answer.text) > keepBytes || cap(g.req.prompt) > keepBytes {
		g = new(chatGeneration)
	}
	g.activeRequest = activeRequest{}
	s.pool.Put(g)
}

// notJSON is the content that [[sim:invalid-json]] asks for.
const notJSON = `[simulated] {"this is": not JSON`

// serveChat serves /v1/chat/completions.
func (s *Server) serveChat(x *httpExchange) {
	g := s.pool.Get().(*chatGeneration)
	defer s.release(g)
	req := &g.req
	if err := req.parse(x.body, s.findModel); err != nil {
		s.replyError(x, err)
		return
	}
	form, err := s.schemas.requiredForm(req)
	if err != nil {
		s.replyError(x, err)
		return
	}
	g.directives = directives{}
	g.directives.read(req.prompt)
	g.serial = s.serial.Add(1)
	g.activeRequest = activeRequest{httpExchange: x, began: time.Now(), injected: s.faults.chooseFault(req.promptID.key(), &g.directives)}
	g.note = func(status, ready int, cancelled bool) { s.recordGeneration(g, status, ready, cancelled) }
	if g.injected.fault == faultViolate && form.json == nil {
		g.injected = chosenFault{} // there is no schema to violate
	}
	switch {
	case g.directives.invalidJSON:
		form.raw = []byte(notJSON)
	case form.json != nil && (g.directives.violate || g.injected.fault == faultViolate):
		if form.raw, err = form.json.GenerateViolation(); err != nil {
			form.raw = []byte(notJSON) // only text that is not JSON violates a schema that accepts every value
		}
	}
	s.writer.compose(&g.answer, req, form, &g.directives, req.limit())
	wanted := len(g.answer.pieces)
	run := s.startCall(&g.activeRequest, g.directives.delay, EngineRequest{Prompt: req.prompt, PromptTokens: req.promptTokens, OutputTokens: wanted})
	if run == nil {
		return
	}
	defer run.End()
	if req.Stream && g.injected.fault != faultHang {
		s.sendEvents(g, run)
		return
	}
	if s.waitForTokens(&g.activeRequest, run, wanted) {
		s.deliver(&g.activeRequest, g.appendCompletion(x.buffer()))
	}
}

// recordGeneration counts a generation that has ended and writes its line of the request log.
func (s *Server) recordGeneration(g *chatGeneration, status, ready int, cancelled bool) {
	if status == http.StatusOK || cancelled {
		s.counts.promptTokens.Add(int64(g.req.promptTokens))
		s.counts.outputTokens.Add(int64(ready))
		reason := g.answer.finish
		if cancelled {
			reason = "abort"
		}
		s.counts.countFinished(reason)
	}
	if s.requests == nil {
		return
	}
	line := g.newLogRecord("chat", g.req.name, status, cancelled)
	line.Seed, line.PromptTokens, line.CompletionTokens = (*int64)(g.req.Seed), g.req.promptTokens, ready
	s.requests.write(line, g.req.prompt[g.req.lastUser[0]:g.req.lastUser[1]])
}
