package sim

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/rowmill/rowmill/spelling"
)

// stream is a chat completion as server-sent events, made as they are read.
type stream struct {
	s      *Server
	g      *generation
	run    Run
	ctx    context.Context // of the client, as long as the stream lives
	serial uint64
	random random // of log probabilities

	sent    int    // pieces sent
	begun   bool   // the first chunk is out
	over    bool   // the last event was made
	out     []byte // events not yet read
	read    int
	err     error
	settled bool
}

func newStream(ctx context.Context, s *Server, g *generation, run Run) *stream {
	return &stream{s: s, g: g, run: run, ctx: ctx, serial: s.serial.Add(1), random: g.req.digest.random().fork(4)}
}

// Read returns events as their tokens become ready.
func (st *stream) Read(p []byte) (int, error) {
	if st.read == len(st.out) {
		if st.err != nil {
			return 0, st.err
		}
		st.out, st.read = st.out[:0], 0
		if st.fill(); st.err != nil && len(st.out) == 0 {
			return 0, st.err
		}
	}
	n := copy(p, st.out[st.read:])
	st.read += n
	return n, nil
}

// fill makes the next events, or sets err.
func (st *stream) fill() {
	if st.over {
		st.err = io.EOF
		return
	}
	wanted := len(st.g.answer.pieces)
	ready, err := st.run.Wait(st.ctx, min(st.sent+1, wanted))
	if err != nil {
		st.sent = max(st.sent, ready)
		st.err = err
		return
	}
	ready = min(ready, wanted)
	switch st.g.fault.fault {
	case faultTruncate:
		if ready > wanted/2 {
			ready, st.err = max(wanted/2, st.sent), errBroken
		}
	case faultMalformed:
		st.out = append(st.out, "data: {\"simulated malformed JSON\n\n"...)
	}
	if !st.begun {
		st.begun = true
		st.event(`{"role":"assistant","content":""}`)
	}
	if st.sent < ready {
		st.tokens(st.sent, ready)
		st.sent = ready
	}
	if st.sent == wanted && st.err == nil {
		st.end()
	}
}

// open begins an event.
func (st *stream) open() {
	st.out = append(st.out, "data: "...)
	st.out = st.s.appendHead(st.out, "chat.completion.chunk", st.g, st.serial)
}

func (st *stream) event(delta string) {
	if st.g.fault.fault == faultEmpty {
		return
	}
	st.open()
	st.out = append(st.out, `{"index":0,"delta":`...)
	st.out = append(st.out, delta...)
	st.out = append(st.out, `,"logprobs":null,"finish_reason":null}]}`+"\n\n"...)
}

// tokens sends the pieces from..to: reasoning and content in separate deltas.
func (st *stream) tokens(from, to int) {
	if st.g.fault.fault == faultEmpty {
		return
	}
	a := &st.g.answer
	if a.closed > from && a.closed < to {
		st.delta(from, a.closed)
		from = a.closed
	}
	st.delta(from, to)
}

func (st *stream) delta(from, to int) {
	a := &st.g.answer
	first, last := a.ends(from), a.ends(to)
	name, text := `"content":`, a.content(first, last)
	if a.reasons && (a.closed == 0 || from < a.closed) {
		name, text = `"reasoning_content":`, a.reasoning(first, last)
	}
	st.open()
	st.out = append(st.out, `{"index":0,"delta":{`...)
	st.out = append(st.out, name...)
	st.out = spelling.AppendString(st.out, text)
	st.out = append(st.out, `},"logprobs":`...)
	if st.g.req.logprobs {
		st.out = st.s.appendLogprobs(st.out, st.g, &st.random, from, to)
	} else {
		st.out = append(st.out, "null"...)
	}
	st.out = append(st.out, `,"finish_reason":null}]}`+"\n\n"...)
}

// end sends the finish reason, the usage if asked for, and [DONE].
func (st *stream) end() {
	st.over = true
	if st.g.fault.fault != faultEmpty {
		st.open()
		st.out = append(st.out, `{"index":0,"delta":{},"logprobs":null,`...)
		st.out = appendFinish(st.out, &st.g.answer)
		st.out = append(st.out, "}]}\n\n"...)
	}
	if st.g.req.streamUsage {
		st.g.use = st.run.Use()
		st.open()
		st.out = append(st.out, ']')
		st.out = appendUsage(st.out, st.g)
		st.out = append(st.out, "}\n\n"...)
	}
	st.out = append(st.out, "data: [DONE]\n\n"...)
}

// Close ends the request, whether or not all of it was read.
func (st *stream) Close() error {
	if st.settled {
		return nil
	}
	st.settled = true
	st.g.use = st.run.Use()
	st.run.End()
	complete := st.over || errors.Is(st.err, errBroken)
	if !complete {
		st.s.counts.disconnects.Add(1)
	}
	st.s.note(st.g, http.StatusOK, st.sent, !complete)
	st.s.release(st.g)
	return nil
}
