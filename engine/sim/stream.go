package sim

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// eventStream is the state of a chat completion that is sent as server-sent events.
type eventStream struct {
	g      *chatGeneration
	run    EngineRun
	random splitMix64 // draws the log probabilities

	sent  int    // number of tokens sent
	begun bool   // the first chunk was made
	over  bool   // the last event was made
	out   []byte // events to send
}

// sendEvents sends events as their tokens become ready.
func (s *Server) sendEvents(g *chatGeneration, run EngineRun) {
	s.counts.status[http.StatusOK].Add(1)
	g.setHeaders(typeSSE)
	st := &eventStream{g: g, run: run, random: g.req.digest.random().fork(4), out: g.buffer()}
	var err error
	for err == nil && !st.over {
		if err = st.appendReadyTokens(g.context()); len(st.out) > 0 {
			err = cmp.Or(g.send(st.out), err)
			st.out = st.out[:0]
		}
	}
	g.out = st.out
	g.use = run.Usage()
	complete := err == nil || errors.Is(err, errBroken)
	if !complete {
		s.counts.disconnects.Add(1)
	}
	g.note(http.StatusOK, st.sent, !complete)
	if err != nil {
		g.abortMidAnswer()
	}
}

// errBroken ends a stream when an injected fault cuts the stream.
var errBroken = errors.New("simulated break in the body")

// appendReadyTokens waits for the next tokens and appends their events to st.out.
func (st *eventStream) appendReadyTokens(ctx context.Context) (broken error) {
	wanted := len(st.g.answer.pieces)
	ready, err := st.run.Wait(ctx, min(st.sent+1, wanted))
	if err != nil {
		st.sent = max(st.sent, ready)
		return err
	}
	ready = min(ready, wanted)
	switch st.g.injected.fault {
	case faultTruncate:
		if ready > wanted/2 {
			ready, broken = max(wanted/2, st.sent), errBroken
		}
	case faultMalformed:
		st.out = append(st.out, "data: {\"simulated malformed JSON\n\n"...)
	}
	if !st.begun {
		st.begun = true
		st.appendEvent(`{"role":"assistant","content":""}`)
	}
	if st.sent < ready {
		st.appendTokens(st.sent, ready)
		st.sent = ready
	}
	if st.sent == wanted && broken == nil {
		st.appendEnd()
	}
	return broken
}

// appendEventStart appends the beginning of an event to st.out.
func (st *eventStream) appendEventStart() {
	st.out = append(st.out, "data: "...)
	st.out = st.g.appendHead(st.out, "chat.completion.chunk")
}

func (st *eventStream) appendEvent(delta string) {
	if st.g.injected.fault == faultEmpty {
		return
	}
	st.appendEventStart()
	st.out = append(st.out, `{"index":0,"delta":`...)
	st.out = append(st.out, delta...)
	st.out = append(st.out, `,"logprobs":null,"finish_reason":null}]}`+"\n\n"...)
}

// appendTokens appends events for the tokens from..to: reasoning and content in separate
// deltas.
func (st *eventStream) appendTokens(from, to int) {
	if st.g.injected.fault == faultEmpty {
		return
	}
	a := &st.g.answer
	if a.reasoningPieces > from && a.reasoningPieces < to {
		st.appendDelta(from, a.reasoningPieces)
		from = a.reasoningPieces
	}
	st.appendDelta(from, to)
}

func (st *eventStream) appendDelta(from, to int) {
	a := &st.g.answer
	first, last := a.endOffset(from), a.endOffset(to)
	name, text := `"content":`, a.content(first, last)
	if a.hasReasoning && (a.reasoningPieces == 0 || from < a.reasoningPieces) {
		name, text = `"reasoning_content":`, a.reasoning(first, last)
	}
	st.appendEventStart()
	st.out = append(st.out, `{"index":0,"delta":{`...)
	st.out = append(st.out, name...)
	st.out = textfmt.AppendString(st.out, text)
	st.out = append(st.out, `},"logprobs":`...)
	st.out = st.g.appendLogprobs(st.out, &st.random, from, to)
	st.out = append(st.out, `,"finish_reason":null}]}`+"\n\n"...)
}

// appendEnd appends the finish reason, the usage if the request asks for it, and [DONE].
func (st *eventStream) appendEnd() {
	st.over = true
	if st.g.injected.fault != faultEmpty {
		st.appendEventStart()
		st.out = append(st.out, `{"index":0,"delta":{},"logprobs":null,`...)
		st.out = st.g.answer.appendFinish(st.out)
		st.out = append(st.out, "}]}\n\n"...)
	}
	if st.g.req.Options.Usage {
		st.g.use = st.run.Usage()
		st.appendEventStart()
		st.out = append(st.out, ']')
		st.out = st.g.appendUsage(st.out)
		st.out = append(st.out, "}\n\n"...)
	}
	st.out = append(st.out, "data: [DONE]\n\n"...)
}
