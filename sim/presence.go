package sim

import (
	"context"
	"errors"
	"os"
	"time"
)

// watchGrace is how long a request waits before its client is watched. Watching
// costs a goroutine and several system calls, which short requests are spared;
// a client that leaves is noticed this late at most.
const watchGrace = 50 * time.Millisecond

// presence is the context of a fasthttp request: it ends when the client goes
// away. The watch is armed by the first call of Done, so that answers that wait
// for nothing are not charged for it at all.
type presence struct{ conn *conn }

var _ context.Context = presence{}

// Deadline says that there is none.
func (p presence) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value knows nothing.
func (p presence) Value(any) any { return nil }

// Done is closed when the client goes away. It must not be called after the
// request has ended, nor by two goroutines at once.
func (p presence) Done() <-chan struct{} {
	if p.conn.watch == nil {
		p.conn.startWatch()
	}
	return p.conn.watch.gone
}

// Err is context.Canceled once the client was seen to go away.
func (p presence) Err() error {
	if p.conn.watch == nil {
		return nil
	}
	select {
	case <-p.conn.watch.gone:
		return context.Canceled
	default:
		return nil
	}
}

// watch reads one byte ahead to notice that the client closes. A byte that
// does arrive is the next request's and ends the watch, as in net/http.
type watch struct {
	gone  chan struct{} // closed when the client is gone
	over  chan struct{} // closed when the reader has ended
	timer *time.Timer   // starts the reader
}

func (c *conn) startWatch() {
	w := &watch{gone: make(chan struct{}), over: make(chan struct{})}
	c.watch = w
	w.timer = time.AfterFunc(c.grace, func() {
		defer close(w.over)
		n, err := c.Conn.Read(c.ahead[:])
		switch {
		case n == 1:
			c.hasAhead = true
		case !errors.Is(err, os.ErrDeadlineExceeded):
			close(w.gone)
		}
	})
}

// unwatch ends the watch, if any. The connection has no other read deadline.
func (c *conn) unwatch() {
	w := c.watch
	if w == nil {
		return
	}
	c.watch = nil
	if w.timer.Stop() {
		return // the reader never started
	}
	_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // on a closed connection the reader has ended anyway
	<-w.over
	_ = c.Conn.SetReadDeadline(time.Time{})
}
