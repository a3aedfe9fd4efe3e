package virtual

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// A server that limits its clients answers 429 with Retry-After while the fault lasts: no
// row may be charged an attempt for it. A server may also crash, because of a row that
// crashes every server: its connections break, it is down for some seconds, and the other
// rows in flight must not be charged either.

// limited is How of an "engine" fault in which the server answers 429.
const limited = "limited"

// deadlyPrefix begins the text of a broken row that crashes its server.
const deadlyPrefix = "broken deadly "

func deadly(row string) bool { return strings.HasPrefix(row, deadlyPrefix) }

var errCrash = errors.New("the server crashed")

// pauseOf is pause, but returns errCrash when the server crashes.
func pauseOf(ctx context.Context, life <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-life: // first: a slot may have become free by the crash itself
		return errCrash
	default:
	}
	select {
	case <-t.C:
		return nil
	case <-life:
		return errCrash
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lives returns a channel that is closed when the server crashes.
func (s *server) lives() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life
}

// restarts reports whether the server is down after a crash.
func (s *server) restarts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.world.now() < s.back
}

// crash ends the server for 1 to 3 seconds.
func (s *server) crash(text string) {
	w := s.world
	w.tell(s.node, "engine.crash", text, "")
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.life)
	s.life = make(chan struct{})
	s.crashes++
	s.back = w.now() + time.Second + time.Duration(w.chance(fmt.Sprint("crash ", s.node, s.crashes))*float64(2*time.Second))
}

// breaks returns the error of a row after its server crashed. Rows in flight return one
// after the other.
func (c *call) breaks(text string, try int) error {
	time.Sleep(c.world.latency(c.node, "broken", fmt.Sprint(text, try)))
	return &engine.Error{Class: engine.Busy, Code: "connection_broken", ConnectionBroke: true, Message: "the connection to the server failed: EOF"}
}

// turnsDown returns the error of a request if the server is down or limits its clients.
func (c *call) turnsDown(text string, try int) error {
	w := c.world
	if c.restarts() {
		return &engine.Error{Class: engine.Busy, Code: "unreachable", Message: "connect to the server: connection refused"}
	}
	f := w.active(c.node, "engine", func(f Fault) bool { return f.How == limited })
	if f == nil || w.chance(fmt.Sprint("limited ", c.node, text, try)) > f.Rate {
		return nil
	}
	w.tally.mu.Lock()
	w.tally.limited[text]++
	w.tally.mu.Unlock()
	w.tell(c.node, "engine.generate", text, limited)
	after := time.Duration(1+3*w.chance(fmt.Sprint("retry after ", c.node, text, try))) * time.Second
	return &engine.Error{Class: engine.Busy, Status: http.StatusTooManyRequests, Code: "rate_limit_exceeded", Overloaded: true, RetryAfter: after, Message: "too many requests"}
}

// crashes returns how often servers have crashed.
func (w *world) crashes() (n int) {
	for _, s := range w.servers {
		s.mu.Lock()
		n += s.crashes
		s.mu.Unlock()
	}
	return n
}

// deadlyRows returns how many rows crash servers.
func (w *world) deadlyRows() (n int) {
	for _, j := range w.Jobs {
		n += j.Deadly
	}
	return n
}

// judgeAttempts checks that only wrong answers cost a row an attempt, not 429 and not a crash
// of the server.
func (j *jobCase) judgeAttempts(node int) {
	crashed, t := j.world.crashes() > 0, j.world.tally
	for i, text := range j.texts {
		t.mu.Lock()
		refused, most := t.limited[text], 1+min(t.lies[text], mostLies)
		t.mu.Unlock()
		if broken(text) || refused == 0 && !crashed {
			continue
		}
		var row struct {
			Attempts int `json:"attempts"`
		}
		if j.read(node, fmt.Sprintf("/rows/%d", i), &row) && row.Attempts > most {
			j.wrong("row %d of job %d has %d attempts, %d may be; it was refused with 429 %d times, and servers crashed %d times", i, j.index, row.Attempts, most, refused, j.world.crashes())
			return
		}
	}
}

// mostCrashes limits how often a row may crash servers, on all nodes together: among other
// rows, in a group of suspects, and twice alone.
const mostCrashes = 4

// judgeDeadly checks that rows that crash their server fail with this reason. Another reason
// is right if the node did not see that the server was down. Without other faults, no node
// forgets how often a row crashed a server.
func (j *jobCase) judgeDeadly(node int) {
	if j.Deadly == 0 {
		return
	}
	if n, deadly := j.world.crashes(), j.world.deadlyRows(); len(j.world.Faults) == 0 && n > mostCrashes*deadly {
		j.wrong("servers crashed %d times because of %d rows, %d times may be", n, deadly, mostCrashes*deadly)
	}
	var list struct {
		Errors []struct {
			Row  int    `json:"row"`
			Code string `json:"code"`
		} `json:"errors"`
	}
	if !j.read(node, "/errors", &list) {
		return
	}
	for _, e := range list.Errors {
		if e.Row >= len(j.texts) || !deadly(j.texts[e.Row]) || e.Code == rowmill.RowCrashesServer {
			continue
		}
		if e.Code != rowmill.RowAttemptsUsedUp || j.struckFaults() == 0 {
			j.wrong("row %d of job %d crashes its server and has failed with %s", e.Row, j.index, e.Code)
		}
	}
}

// read fetches a document of the job from a node, as its client.
func (j *jobCase) read(node int, path string, into any) bool {
	code, text := j.world.request(node, http.MethodGet, "/v1/jobs/"+j.id+path, http.Header{"Authorization": {"Key " + keyOf(j.owner())}}, nil)
	if err := json.Unmarshal(text, into); code != http.StatusOK || err != nil {
		j.wrong("%s of job %d: %d %.300s", path, j.index, code, text)
		return false
	}
	return true
}

// limits makes a server limit its clients for some time.
func (g *generator) limits() {
	if g.IntN(4) > 0 {
		return
	}
	f := Fault{Kind: "engine", Node: g.IntN(len(g.Nodes)), How: limited, Rate: 0.3 + 0.7*g.Float64()}
	g.span(&f)
	g.maybeAll(&f)
	g.Faults = append(g.Faults, f)
}

// crashes makes a row crash its server.
func (g *generator) crashes() {
	j := &g.Jobs[g.IntN(len(g.Jobs))]
	if g.IntN(4) > 0 || j.Continues > 0 || j.Poison != "" || j.Equal > 0 || j.Urgent {
		return
	}
	j.Rows, j.Broken, j.Deadly = max(j.Rows, 2), max(j.Broken, 1), 1
}
