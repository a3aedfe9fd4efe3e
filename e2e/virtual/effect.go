package virtual

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/store"
)

// errDead is the error of each effect of a killed process. No code reads it.
var errDead = errors.New("the process was killed")

// An entry is a line of a trace.
type entry struct {
	at      time.Duration // since the world began
	node    int
	kind    string
	key     string
	outcome string // empty: it happened
}

func (e entry) String() string {
	outcome := e.outcome
	if outcome != "" {
		outcome = "  ← " + outcome
	}
	return fmt.Sprintf("%10.4fs  node %d  %-18s %s%s", e.at.Seconds(), e.node, e.kind, e.key, outcome)
}

// An effect is one call from a process to something outside the process.
type effect struct {
	kind   string // store.claim, blob.put, ask.report, …
	key    string
	object string // full key of an object
	writes bool
	do     func() error
}

// unstored is the kind of a fault: the bucket acknowledges a part or a result and loses it,
// stores half of it, or shows it late.
const unstored = "unstored"

// splitBrain is the kind of a fault: Node, or with How "others" all other nodes, use a copy
// of the store, which is given up at the end. So do nodes that stay on an old Redis primary
// after a failover.
const splitBrain = "split brain"

// derived reports whether an effect writes an object that nodes can make again.
func (e effect) derived() bool {
	return e.kind == "blob.put" && (strings.Contains(e.object, "/parts/") || strings.Contains(e.object, "/results/"))
}

// A gate counts the effects of all processes of a machine.
type gate struct {
	mu     sync.Mutex
	counts map[string]int // by kind; "" counts the effects that write
}

// latency returns the time until an effect arrives. It depends on the effect, the time,
// and the number of equal effects that began earlier at the same time. It must not depend
// on anything else that another goroutine changes. No two latencies are equal, because
// synctest runs timers of the same time in random order.
func (w *world) latency(node int, kind, key string) time.Duration {
	if w.still {
		return 0
	}
	what := fmt.Sprintf("%d %s %s %d", node, kind, key, w.now())
	if equal := w.equal.before(what, w.now()); equal > 0 {
		what += fmt.Sprint(" ", equal)
	}
	return time.Millisecond + time.Duration(w.chance(what)*float64(2*time.Millisecond))
}

// equals counts equal texts at the same time.
type equals struct {
	mu    sync.Mutex
	at    time.Duration
	count map[string]int
}

// before counts what and returns its count before, at this time.
func (e *equals) before(what string, now time.Duration) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.count == nil || e.at != now {
		e.at, e.count = now, map[string]int{}
	}
	e.count[what]++
	return e.count[what] - 1
}

// chance returns a number from 0 to 1 that depends only on the seed and text.
func (w *world) chance(text string) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // never fails
	x := h.Sum64() ^ w.Seed*0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	return float64(x>>11) / (1 << 53)
}

// plain returns a key without its random part.
func plain(key string) string {
	if strings.HasSuffix(key, ".parquet") {
		if i := strings.LastIndexByte(key, '-'); i >= 0 {
			return key[:i]
		}
	}
	return key
}

// now returns the time since the world began.
func (w *world) now() time.Duration { return time.Since(w.began) }

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run runs an effect with its latency, and with the faults of the schedule. If the caller
// stops waiting, the effect may still happen later.
func (p *proc) run(ctx context.Context, e effect) error {
	w := p.world
	what := plain(e.key) + askerOf(ctx)
	if err := p.awake(e.kind + what); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	way := w.latency(p.node, e.kind, what)
	if d, slow := w.slow(p.node, e.kind, what); slow {
		way += d
	}
	if err := pause(ctx, way); err != nil {
		// The request had left: half of such requests arrive.
		if e.writes && w.chance(fmt.Sprint("late ", p.node, e.kind, plain(e.key), way)) < 0.5 {
			w.later(way, func() { _ = p.happen(e, "late, nobody waits") })
		}
		return err
	}
	if err := p.strike(ctx, e, what); err != nil {
		return err
	}
	back := w.latency(p.node, e.kind+"<", what)
	time.Sleep(back) // latency of the answer: short, so no context ends it
	return p.awake(e.kind + "<" + what)
}

// askerKey is the context key of the asker. The asker is a text that distinguishes
// effects of clients or tasks that are otherwise equal at the same time.
type askerKey struct{}

func withAsker(ctx context.Context, asker string) context.Context {
	return context.WithValue(ctx, askerKey{}, " "+asker)
}

func askerOf(ctx context.Context) string {
	asker, _ := ctx.Value(askerKey{}).(string)
	return asker + " " + registry.TaskName(ctx) + commit.KindFromContext(ctx)
}

// happen runs an effect and adds it to the trace.
func (p *proc) happen(e effect, how string) error {
	err := e.do()
	if err != nil {
		how = strings.TrimPrefix(how+"; "+err.Error(), "; ")
	}
	p.world.tell(p.node, e.kind, e.key, how)
	if p.world.watch != nil && e.writes {
		p.world.watch(p.node, e)
	}
	return err
}

// strike runs an effect with the fault that the schedule has for it, if any.
func (p *proc) strike(ctx context.Context, e effect, what string) error {
	w := p.world
	if p.dead() {
		return errDead
	}
	if p.poisoned(e) {
		return errDead
	}
	service, _, _ := strings.Cut(e.kind, ".")
	if err := w.refused(p.node, service, e); err != nil {
		w.tell(p.node, e.kind, e.key, "refused: "+err.Error())
		// A driver retries for a while before it returns the error.
		if pause(ctx, w.latency(p.node, e.kind+"!", what)*100) != nil {
			return ctx.Err()
		}
		return err
	}
	f := w.struckBy(p.node, e)
	if f == nil {
		return p.happen(e, "")
	}
	switch f.Kind {
	case "crash":
		if f.After {
			_ = p.happen(e, "then the node dies")
		} else {
			w.tell(p.node, e.kind, e.key, "the node dies before")
		}
		w.crash(p.node, *f)
		return errDead
	case "unacknowledged":
		if f.After {
			_ = p.happen(e, "nobody is told")
		} else {
			w.tell(p.node, e.kind, e.key, "lost")
		}
		return p.unknown(ctx, e, f)
	case "late":
		w.tell(p.node, e.kind, e.key, "held up for "+time.Duration(f.For).String())
		w.later(time.Duration(f.For), func() { _ = p.happen(e, "late") })
		return p.unknown(ctx, e, f)
	case unstored:
		err := p.happen(e, "acknowledged, and then "+f.How)
		if err == nil {
			w.shelf.spoil(e.object, *f)
		}
		return err
	case "forget":
		err := p.happen(e, "then the store forgets")
		w.forget(time.Duration(f.For))
		return err
	case "stop":
		w.halt(p.node, time.Duration(f.For))
		if err := p.awake(e.kind + what); err != nil {
			return err
		}
		return p.happen(e, "after a stop")
	}
	return p.happen(e, "")
}

// unknown returns the error of an effect without acknowledgement.
func (p *proc) unknown(ctx context.Context, e effect, f *Fault) error {
	if f.How == "silence" {
		// No answer comes until the caller or its driver gives up.
		if err := pause(ctx, 20*time.Second); err != nil {
			return err
		}
	}
	err := fmt.Errorf("%w: the connection broke", rowmill.ErrUnavailable)
	if strings.HasPrefix(e.kind, "store.") && e.writes {
		return fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, err)
	}
	return err
}

// awake waits while the machine is stopped, and returns errDead for a killed process.
// Effects that wait at the same time continue one after the other, in an order that
// depends on what.
func (p *proc) awake(what string) error {
	for {
		if p.dead() {
			return errDead
		}
		left := p.world.halted(p.node)
		if left <= 0 {
			return nil
		}
		time.Sleep(left + p.world.latency(p.node, "wake", what))
	}
}

// struckBy counts an effect of a node and returns the fault for it, if any.
func (w *world) struckBy(node int, e effect) *Fault {
	g := w.gates[node]
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counts[e.kind]++
	if e.writes {
		g.counts[""]++
	}
	if e.derived() {
		g.counts[unstored]++
	}
	if w.whole() {
		return nil
	}
	for i := range w.Faults {
		f := &w.Faults[i]
		strikes := f.On == e.kind || f.On == "" && e.writes
		if f.Kind == unstored {
			strikes = e.derived()
		}
		if f.Nth == 0 || f.Node != node || w.struck[i] || !strikes || g.counts[f.On] != f.Nth {
			continue
		}
		w.mu.Lock()
		w.struck[i], w.struckAt[i] = true, w.now()
		w.mu.Unlock()
		w.note(*f)
		return f
	}
	return nil
}

// tell adds a line to the trace.
func (w *world) tell(node int, kind, key, outcome string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, entry{w.now(), node, kind, key, outcome})
}

// later runs do after d. The world waits for do before it ends.
func (w *world) later(d time.Duration, do func()) {
	w.all.Go(func() {
		time.Sleep(d)
		do()
	})
}
