package sim

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// activeRequest is a request for an answer or for embeddings while the engine works on it.
type activeRequest struct {
	*httpExchange
	began    time.Time
	injected chosenFault // the fault that the request gets
	use      RunUsage    // the cached tokens and the preemptions, once they are known

	// note counts the call and writes its lines to the request log. It is called once.
	// status is the HTTP status, 0 if the server sent no answer; ready is how many
	// tokens were generated.
	note func(status, ready int, cancelled bool)
}

// startCall waits for the delay and then gives work to the engine. It returns nil if a fault
// or an error prevents this; then it has already answered the request.
func (s *Server) startCall(c *activeRequest, delay time.Duration, work EngineRequest) EngineRun {
	s.counts.faults[c.injected.fault].Add(1)
	if err := sleep(c.context(), delay); err != nil {
		s.abortCall(c, 0, err)
		return nil
	}
	switch c.injected.fault {
	case faultStatus:
		c.note(c.injected.status, 0, false)
		s.replyError(c.httpExchange, statusError(c.injected.status))
		return nil
	case faultReset:
		c.note(0, 0, false)
		c.resetWithoutAnswer()
		return nil
	}
	run, err := s.pace.Start(work)
	if err != nil {
		f := engineStartError(err)
		c.note(f.status, 0, false)
		s.replyError(c.httpExchange, f)
		return nil
	}
	return run
}

// waitForTokens waits for n tokens. It returns false if the call ended without an answer.
func (s *Server) waitForTokens(c *activeRequest, run EngineRun, n int) bool {
	ready, err := run.Wait(c.context(), n)
	c.use = run.Usage()
	if err == nil && c.injected.fault == faultHang {
		ready, err = 0, s.hang(c.context())
	}
	if err != nil {
		s.abortCall(c, ready, err)
		return false
	}
	c.note(http.StatusOK, n, false)
	return true
}

// deliver sends the body of an answer with status 200. A fault may cut or damage the
// body.
func (s *Server) deliver(c *activeRequest, body []byte) {
	switch c.injected.fault {
	case faultTruncate:
		s.counts.status[http.StatusOK].Add(1)
		c.setHeaders(typeJSON)
		_ = c.send(body[:len(body)/2]) // an error does not matter: the next call closes the connection
		c.abortMidAnswer()
	case faultMalformed:
		s.replyOK(c.httpExchange, typeJSON, append(body[:len(body)/2], `}}] simulated malformed JSON`...))
	default:
		s.replyOK(c.httpExchange, typeJSON, body)
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

// abortCall ends a call without an answer, and closes its connection. err is the reason.
func (s *Server) abortCall(c *activeRequest, ready int, err error) {
	cancelled := !errors.Is(err, errHung) && !errors.Is(err, errPaceClosed) // false if the server ended the call
	if cancelled {
		s.counts.disconnects.Add(1)
	}
	c.note(0, ready, cancelled)
	c.resetWithoutAnswer()
}

// sleep waits for the duration d. It returns an error if the context ends first.
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
