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

// modelName is what all engines serve.
const modelName = "m"

// An answer is what every engine says to a row, when it tells the truth.
type answer struct {
	text          string
	input, output int64
}

// answerTo is a function of the row alone.
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

// broken says that no engine answers a row, as its text says.
func broken(row string) bool { return strings.HasPrefix(row, "broken ") }

// A tally counts what all engines were asked.
type tally struct {
	mu       sync.Mutex
	answered map[string]int // answers that reached a process that lived, by row
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

// mostLies is how many answers to one row may be bad, below what a row survives.
const mostLies = 3

// A server is the inference server of a node. It outlives the processes there.
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

// worked notes that a slot had a row.
func (s *server) worked(from, to time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy == 0 {
		s.first = from
	}
	s.last, s.busy = to, s.busy+to-from
}

// A client is a server as a process reaches it.
type client struct {
	*server
	proc *proc
}

var _ engine.Engine = (*client)(nil)

func (c *client) Name() string       { return "gpu" }
func (c *client) Close()             {}
func (c *client) Warnings() []string { return nil }

func (c *client) Probe(ctx context.Context) (engine.Info, error) {
	if err := pause(ctx, c.world.latency(c.node, "engine.probe", "")); err != nil {
		return engine.Info{}, err
	}
	if c.proc.dead() {
		return engine.Info{}, errDead
	}
	if c.restarts() {
		return engine.Info{}, fmt.Errorf("connect: %w", syscall.ECONNREFUSED)
	}
	if how := c.world.lie(c.node, "down"); how != "" {
		return engine.Info{}, &engine.Error{Class: engine.ServerFault, Message: "connection refused"}
	}
	return engine.Info{Kind: "virtual", Slots: c.world.Slots, Models: []engine.ServedModel{{Name: modelName}}}, nil
}

func (c *client) Gauges(context.Context) (engine.Gauges, error) {
	return engine.Gauges{}, engine.ErrNoGauges
}

func (c *client) Prepare(p engine.Params) (engine.Call, error) {
	return &call{c, len(p.Schema) > 0}, nil
}

// A call is the rows of one job on a server.
type call struct {
	*client
	schema bool
}

func (c *call) Embed(context.Context, []engine.Row) ([]engine.Reply, []*engine.Error, error) {
	panic("no embeddings here")
}

// Generate answers a row after its time, or does what the schedule says.
func (c *call) Generate(ctx context.Context, row engine.Row) (engine.Reply, error) {
	text := string(row.Text)
	w := c.world
	patience := row.Patience
	if patience == 0 {
		patience = ownPatience
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
	defer cancel()
	reply, err := c.generate(ctx, text)
	if ctx.Err() != nil { // rows that are given up at one moment come back one after the other
		time.Sleep(w.latency(c.node, "given up", text))
	}
	if context.Cause(ctx) == errPatience { //nolint:errorlint // set above
		err = &engine.Error{Class: engine.Moment, Code: "timeout", Message: "no answer in time"}
	}
	if err == nil && reply.Content != garbage && !slices.Contains(hostileContents, reply.Content) && !c.proc.dead() { // what is no answer has to be asked for again
		w.tally.mu.Lock()
		w.tally.answered[text]++
		w.tally.last[text] = w.now()
		w.tally.mu.Unlock()
	}
	return reply, err
}

// ownPatience is the server's own bound for an answer.
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
	// Rows that are sent at one moment come for a slot one after the other.
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
	<-c.slots // before it hangs: one that hangs for ever holds up nobody else
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

// garbage is no answer to any schema.
const garbage = `{"n":"none"`

// hostileContents are no answers to the schema either, and costly to find so.
var hostileContents = []string{
	"1e-99999999", `{"n":1e9999999}`, `{"n":-1e-99999999}`, "NaN", "", "\x00",
	strings.Repeat(`{"n":`, 9000) + strings.Repeat("}", 9000), strings.Repeat("[", 20_000),
	`{"n":` + strings.Repeat("7", 2000) + "}", "[" + strings.Repeat("0,", 10_000) + "0]", strings.Repeat("\uFFFD", 50_000),
}

// lies is what a server answers that does not always tell the truth.
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
	if n > mostLies || how == "hang" && n > 1 { // the next time would be waited for twice as long
		return good, nil
	}
	w.tell(c.node, "engine.generate", text, how)
	switch how {
	case "busy":
		return engine.Reply{}, &engine.Error{Class: engine.Moment, Status: 503, Overloaded: true, Message: "busy"}
	case "error":
		return engine.Reply{}, &engine.Error{Class: engine.Moment, Message: "no answer that makes sense"}
	case "reset":
		return engine.Reply{}, &engine.Error{Class: engine.ServerFault, Message: "connection reset"}
	case "hang":
		<-ctx.Done()
		return engine.Reply{}, ctx.Err()
	case "slow":
		if err := pause(ctx, 10*w.paceOf()); err != nil {
			return engine.Reply{}, err
		}
	case "hostile": // what is left of it once the adapter has read it
		hostile := hostileContents[int(w.chance(fmt.Sprint("hostile ", text, try))*float64(len(hostileContents)))]
		if !c.schema {
			return engine.Reply{}, &engine.Error{Class: engine.Moment, Status: 200, Code: "malformed_reply", Message: "no answer", Raw: hostile}
		}
		good.Content = hostile
	case "garbage": // it is one only where there is a schema
		if c.schema {
			good.Content = garbage
		}
	}
	return good, nil
}

func (w *world) paceOf() time.Duration { return time.Duration(w.Pace) }

// lie is how the server of a node lies now; what is "down" or "" for all else.
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
