package virtual

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// modelName is the model of all engines.
const modelName = "m"

// An answer is the correct answer of every engine to a row.
type answer struct {
	text          string
	input, output int64
}

// answerTo returns the answer to a row. It depends only on the row.
func answerTo(row string, schema bool) answer {
	var sum int64
	for _, c := range []byte(row) {
		sum = sum*31 + int64(c)
	}
	sum &= 1<<40 - 1
	a := answer{text: "re: " + row, input: 3 + sum%11, output: 1 + sum%7}
	if schema {
		a.text = fmt.Sprintf(`{"n":%d}`, sum%1000)
	}
	return a
}

// broken reports whether no engine answers a row, by the text of the row.
func broken(row string) bool { return strings.HasPrefix(row, "broken ") }

// A tally counts the requests to all engines and their answers.
type tally struct {
	mu       sync.Mutex
	answered map[string]int // answers that reached a running process, by row
	tries    map[string]int
	lies     map[string]int
	limited  map[string]int           // refusals with 429, by row
	first    map[string]time.Duration // when a row was first sent to an engine
	last     map[string]time.Duration // when its last answer came
}

func newTally() *tally {
	return &tally{
		answered: map[string]int{}, tries: map[string]int{}, lies: map[string]int{}, limited: map[string]int{},
		first: map[string]time.Duration{}, last: map[string]time.Duration{},
	}
}

// mostLies limits the wrong answers to one row. A row fails after more.
const mostLies = 3

// A server is the inference server of a node. It runs on when the process of the node
// ends.
type server struct {
	world *world
	node  int
	slots chan struct{}

	mu          sync.Mutex
	first, last time.Duration // when its first row began, and its last one ended
	busy        time.Duration // of all slots together
	life        chan struct{} // closed when it crashes
	back        time.Duration // when it runs again after its last crash
	crashes     int
}

func newServer(w *world, node int) *server {
	return &server{world: w, node: node, slots: make(chan struct{}, w.Slots), life: make(chan struct{})}
}

// worked notes the time of a row in a slot.
func (s *server) worked(from, to time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy == 0 {
		s.first = from
	}
	s.last, s.busy = to, s.busy+to-from
}

// A client is the engine by which a process reaches a server.
type client struct {
	*server
	proc *proc
}

var _ engine.Engine = (*client)(nil)

func (c *client) Name() string       { return "gpu" }
func (c *client) Close()             {}
func (c *client) Warnings() []string { return nil }

func (c *client) Probe(ctx context.Context) (engine.ServerInfo, error) {
	if err := pause(ctx, c.world.latency(c.node, "engine.probe", "")); err != nil {
		return engine.ServerInfo{}, err
	}
	if c.proc.dead() {
		return engine.ServerInfo{}, errDead
	}
	if c.restarts() {
		return engine.ServerInfo{}, fmt.Errorf("connect: %w", syscall.ECONNREFUSED)
	}
	if how := c.world.lie(c.node, "down"); how != "" {
		return engine.ServerInfo{}, &engine.Error{Class: engine.ServerFault, Message: "connection refused"}
	}
	return engine.ServerInfo{Kind: "virtual", Slots: c.world.Slots, Models: []engine.ServedModel{{Name: modelName}}}, nil
}

func (c *client) Gauges(context.Context) (engine.Gauges, error) {
	return engine.Gauges{}, engine.ErrNoGauges
}

func (c *client) Prepare(p engine.JobParams) (engine.PreparedCall, error) {
	return &call{c, len(p.Schema) > 0, p.System}, nil
}

// A call sends the rows of a job to a server.
type call struct {
	*client
	schema bool
	system string
}

func (c *call) Embed(context.Context, []engine.Row) ([]engine.Reply, []*engine.Error, error) {
	panic("no embeddings here")
}

// Generate answers a row after a delay, with the faults of the schedule.
func (c *call) Generate(ctx context.Context, row engine.Row) (engine.Reply, error) {
	text := string(row.Text) + c.system
	w := c.world
	patience := row.Timeout
	if patience == 0 {
		patience = ownPatience
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
	defer cancel()
	reply, err := c.generate(ctx, text)
	if ctx.Err() != nil { // rows with the same deadline return one after the other
		time.Sleep(w.latency(c.node, "given up", text))
	}
	if context.Cause(ctx) == errPatience { //nolint:errorlint // set above
		err = &engine.Error{Class: engine.Transient, Code: "timeout", Message: "no answer in time"}
	}
	if err == nil && reply.Content != garbage && !slices.Contains(hostileContents, reply.Content) && !c.proc.dead() { // a wrong answer is requested again
		w.tally.mu.Lock()
		w.tally.answered[text]++
		w.tally.last[text] = w.now()
		w.tally.mu.Unlock()
	}
	return reply, err
}

// ownPatience is the server's own timeout for an answer.
const ownPatience = time.Minute

var errPatience = fmt.Errorf("the row's patience is over")

func (c *call) generate(ctx context.Context, text string) (engine.Reply, error) {
	w := c.world
	if err := c.proc.awake(text); err != nil {
		return engine.Reply{}, err
	}
	w.tally.mu.Lock()
	try := w.tally.tries[text]
	if try == 0 {
		w.tally.first[text] = w.now()
	}
	w.tally.tries[text]++
	w.tally.mu.Unlock()
	chance := w.chance(fmt.Sprint("row ", text, try))
	// Rows that are sent at the same time ask for a slot one after the other.
	if err := pause(ctx, w.latency(c.node, "row", fmt.Sprint(text, try))); err != nil {
		return engine.Reply{}, err
	}
	if err := c.turnsDown(text, try); err != nil {
		return engine.Reply{}, err
	}
	life := c.lives()
	select {
	case c.slots <- struct{}{}:
	case <-life:
		return engine.Reply{}, c.breaks(text, try)
	case <-ctx.Done():
		return engine.Reply{}, ctx.Err()
	}
	began := w.now()
	err := pauseOf(ctx, life, time.Duration((0.5+chance)*float64(w.Pace)))
	c.worked(began, w.now())
	<-c.slots // before the fault: a hanging row must not block others
	switch {
	case errors.Is(err, errCrash):
		return engine.Reply{}, c.breaks(text, try)
	case err != nil:
		return engine.Reply{}, err
	case deadly(text):
		c.crash(text)
		return engine.Reply{}, c.breaks(text, try)
	}
	if err := c.proc.awake(text); err != nil {
		return engine.Reply{}, err
	}
	if w.lie(c.node, "down") != "" {
		return engine.Reply{}, &engine.Error{Class: engine.ServerFault, Message: "connection refused"}
	}
	if broken(text) {
		return engine.Reply{}, &engine.Error{Class: engine.RowFault, Status: 400, Message: "cannot be answered"}
	}
	a := answerTo(text, c.schema)
	good := engine.Reply{Content: a.text, Finish: rowmill.FinishStop, InputTokens: a.input, OutputTokens: a.output}
	return c.lies(ctx, text, try, good)
}

// garbage is an answer that breaks every schema.
const garbage = `{"n":"none"`

// hostileContents break the schema too, and are expensive to check.
var hostileContents = []string{
	"1e-99999999", `{"n":1e9999999}`, `{"n":-1e-99999999}`, "NaN", "", "\x00",
	strings.Repeat(`{"n":`, 9000) + strings.Repeat("}", 9000), strings.Repeat("[", 20_000),
	`{"n":` + strings.Repeat("7", 2000) + "}", "[" + strings.Repeat("0,", 10_000) + "0]", strings.Repeat("\uFFFD", 50_000),
}

// lies returns the good answer, or another one if a fault makes the server answer wrongly.
func (c *call) lies(ctx context.Context, text string, try int, good engine.Reply) (engine.Reply, error) {
	w := c.world
	how := w.lie(c.node, "")
	if how == "" || w.chance(fmt.Sprint("lie ", c.node, text, try)) > w.lieRate(c.node) {
		return good, nil
	}
	w.tally.mu.Lock()
	w.tally.lies[text]++
	n := w.tally.lies[text]
	w.tally.mu.Unlock()
	if n > mostLies || how == "hang" && n > 1 { // the next attempt would wait twice as long
		return good, nil
	}
	w.tell(c.node, "engine.generate", text, how)
	switch how {
	case "busy":
		return engine.Reply{}, &engine.Error{Class: engine.Transient, Status: 503, Overloaded: true, Message: "busy"}
	case "error":
		return engine.Reply{}, &engine.Error{Class: engine.Transient, Message: "no answer that makes sense"}
	case "reset":
		return engine.Reply{}, &engine.Error{Class: engine.ServerFault, Message: "connection reset"}
	case "hang":
		<-ctx.Done()
		return engine.Reply{}, ctx.Err()
	case "slow":
		if err := pause(ctx, 10*w.paceOf()); err != nil {
			return engine.Reply{}, err
		}
	case "hostile": // the reply as the adapter returns it
		hostile := hostileContents[int(w.chance(fmt.Sprint("hostile ", text, try))*float64(len(hostileContents)))]
		if !c.schema {
			return engine.Reply{}, &engine.Error{Class: engine.Transient, Status: 200, Code: "malformed_reply", Message: "no answer", Raw: hostile}
		}
		good.Content = hostile
	case "garbage": // any text is right without a schema
		if c.schema {
			good.Content = garbage
		}
	}
	return good, nil
}

func (w *world) paceOf() time.Duration { return time.Duration(w.Pace) }

// lie returns the fault of the server of a node now. what must be "down", or empty for
// all other faults.
func (w *world) lie(node int, what string) string {
	f := w.active(node, "engine", func(f Fault) bool { return f.How != limited && (f.How == "down") == (what == "down") })
	if f == nil {
		return ""
	}
	return f.How
}

func (w *world) lieRate(node int) float64 {
	f := w.active(node, "engine", func(f Fault) bool { return f.How != "down" && f.How != limited })
	if f == nil {
		return 0
	}
	return f.Rate
}
