package virtual

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/internal/deterministic"
	"github.com/rowmill/rowmill/store/kv/mem"
)

// A world is one run of a schedule, inside a bubble of synctest.
type world struct {
	Schedule
	shared
	began time.Time
	still bool                     // effects take no time, for tests
	watch func(node int, e effect) // called after each write

	gates   []*gate
	servers []*server
	vault   *vault
	shelf   *shelf
	net     *network
	tally   *tally
	equal   equals

	all   sync.WaitGroup // goroutines that must end before the world
	ended chan struct{}  // closed: no process starts again

	mu       sync.Mutex
	trace    []entry
	struck   []bool // by fault: true if it struck
	struckAt []time.Duration
	hosts
	healed   bool
	swifts   int // urgent jobs with a checked time limit
	healedAt time.Duration

	log     *slog.Logger
	account *account
}

// hosts holds the state of the nodes, each list by node.
type hosts struct {
	halts  []time.Time     // end of its stop
	skews  []time.Duration // error of its clock
	procs  []*proc         // the running process, or nil
	starts []int
}

// shared holds the data of all worlds of a process. It never changes.
type shared struct {
	catalog *catalog.Catalog
}

const models = `models: [{id: ` + modelName + `, kind: generation, context_length: 4096, input_price: 1000, output_price: 2000, sampling: {max_tokens: 8}}]`

func newShared() (shared, error) {
	c, err := catalog.Load(strings.NewReader(models))
	return shared{c}, err
}

// nothing is a registerer that registers no metrics: no code reads them.
type nothing struct{}

func (nothing) Register(prometheus.Collector) error  { return nil }
func (nothing) MustRegister(...prometheus.Collector) {}
func (nothing) Unregister(prometheus.Collector) bool { return true }

func newWorld(s Schedule, sh shared, log *slog.Logger) (*world, error) {
	w := &world{
		Schedule: s, shared: sh, began: time.Now(), ended: make(chan struct{}), shelf: ownShelf(), net: newNetwork(),
		struck: make([]bool, len(s.Faults)), struckAt: make([]time.Duration, len(s.Faults)),
		tally: newTally(), vault: newVault(mem.New(time.Now), newLeases()),
	}
	for i, n := range s.Nodes {
		w.gates = append(w.gates, &gate{counts: map[string]int{}})
		w.servers = append(w.servers, newServer(w, i))
		w.skews = append(w.skews, time.Duration(n.Clock))
	}
	w.halts, w.procs, w.starts = make([]time.Time, len(s.Nodes)), make([]*proc, len(s.Nodes)), make([]int, len(s.Nodes))
	w.connect()
	for _, f := range s.Faults {
		if f.Kind == "forget" {
			w.vault.forgets = max(w.vault.forgets, time.Duration(f.For))
		}
	}
	var err error
	if s.CostLimit > 0 {
		err = w.limitCost(s.CostLimit)
	}
	if err == nil && s.RetentionDays > 0 {
		err = w.keepDays(s.RetentionDays)
	}
	if err == nil && len(w.owners()) > 1 {
		err = w.admitOther()
	}
	w.account = newAccount(w)
	w.log = slog.New(witness{log.Handler(), w.account.wrong})
	w.net.log = w.log
	w.net.said = w.account.acks.said
	w.watch = w.account.watch
	w.shelf.removed = w.account.removed
	return w, err
}

// run runs a schedule and returns its verdict.
func run(s Schedule, sh shared, log *slog.Logger) Verdict {
	_, v := play(s, sh, log)
	return v
}

// play is run, but also returns the ended world.
func play(s Schedule, sh shared, log *slog.Logger) (w *world, v Verdict) {
	defer deterministic.Seed(s.Seed)()
	w, err := newWorld(s, sh, log)
	if err != nil {
		panic(fmt.Sprintf("make a world: %v", err))
	}
	for i := range w.Nodes {
		w.up(i)
	}
	w.scheduleFaults()
	for i := range w.Jobs {
		w.all.Go(func() { w.account.jobs[i].live() })
	}
	w.account.await()
	w.account.settle()
	v.Virtual = w.now()
	close(w.ended)
	w.stopAll()
	w.all.Wait()
	w.account.judgeAfter()
	time.Sleep(time.Second) // the actor library's throttle of dead letters ends by itself
	if err := w.vault.base.Close(); err != nil {
		w.account.wrong("the store does not close: %v", err)
	}
	v.Wrongs, v.Reruns, v.Struck, v.Swift, v.Parked = w.account.wrongs, w.account.reruns, w.account.struckFaults(), w.swifts, w.account.innocent
	v.trace = w.trace
	return w, v
}

// up starts a process on a node, with retries.
func (w *world) up(node int) {
	w.all.Go(func() {
		for {
			w.mu.Lock()
			if w.procs[node] != nil || w.over() {
				w.mu.Unlock()
				return
			}
			p := newProc(w, node, w.starts[node])
			w.starts[node]++
			w.procs[node] = p
			w.mu.Unlock()
			err := p.start()
			if err == nil {
				w.tell(node, "start", p.id, "")
				return
			}
			w.tell(node, "start", p.id, err.Error())
			p.kill()
			p.bury()
			w.gone(p)
			time.Sleep(time.Second) // like a supervisor
			if errors.Is(err, errDead) {
				return // the code that killed it starts the node again
			}
		}
	})
}

func (w *world) over() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// gone removes an ended process.
func (w *world) gone(p *proc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.procs[p.node] == p {
		w.procs[p.node] = nil
	}
}

func (w *world) proc(node int) *proc {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.procs[node]
}

// crash kills the process of a node: its further effects do not happen.
func (w *world) crash(node int, f Fault) {
	p := w.proc(node)
	if p == nil {
		return
	}
	p.die()
	w.gone(p)
	w.tell(node, "crash", p.id, "")
	w.all.Go(p.bury)
	if f.For > 0 {
		w.later(time.Duration(f.For), func() { w.up(node) })
	}
}

// drain stops the process of a node as SIGTERM does.
func (w *world) drain(node int, f Fault) {
	p := w.proc(node)
	if p == nil {
		return
	}
	w.tell(node, "drain", p.id, "")
	w.all.Go(func() {
		_ = p.stop() // rows in flight may take longer than the drain timeout
		w.gone(p)
		w.tell(node, "drained", p.id, "")
		if f.For > 0 {
			time.Sleep(time.Duration(f.For))
			w.up(node)
		}
	})
}

func (w *world) stopAll() {
	for i := range w.Nodes {
		if p := w.proc(i); p != nil {
			w.all.Go(func() { w.stop(p) })
		}
	}
}

// stop ends a process that has no work left.
func (w *world) stop(p *proc) {
	if err := p.stop(); err != nil && strings.Contains(err.Error(), "drain:") {
		w.account.wrong("node %d has nothing to do and does not stop: %v", p.node, err)
	}
	w.gone(p)
}

// heal ends all faults and brings every node back.
func (w *world) heal() {
	w.mu.Lock()
	w.healed, w.healedAt = true, w.now()
	clear(w.skews)
	w.mu.Unlock()
	for i := range w.Nodes {
		w.up(i)
	}
}

// scheduleFaults starts the faults that strike once at a set time.
func (w *world) scheduleFaults() {
	for i, f := range w.Faults {
		if f.Nth > 0 || lastingKind(f.Kind) {
			continue
		}
		// No timer of a node and no other fault has this time.
		w.later(time.Duration(f.At)+time.Duration(11+i)*time.Microsecond, func() {
			if w.whole() {
				return
			}
			w.mu.Lock()
			w.struck[i], w.struckAt[i] = true, w.now()
			w.mu.Unlock()
			w.note(f)
			switch f.Kind {
			case "crash":
				for _, n := range w.nodesOf(f) {
					w.crash(n, f)
				}
			case "drain":
				w.drain(f.Node, f)
			case "stop":
				for _, n := range w.nodesOf(f) {
					w.halt(n, time.Duration(f.For))
				}
			case "forget":
				w.forget(time.Duration(f.For))
			case splitBrain:
				w.split(f)
			case "clock":
				w.mu.Lock()
				w.skews[f.Node] += time.Duration(f.For)
				w.mu.Unlock()
			}
		})
	}
}

func (w *world) nodesOf(f Fault) []int {
	if f.Node >= 0 {
		return []int{f.Node}
	}
	var all []int
	for i := range w.Nodes {
		all = append(all, i)
	}
	return all
}

func (w *world) note(f Fault) {
	text := "strikes"
	if f.How != "" {
		text += ": " + f.How
	}
	w.tell(f.Node, "fault."+f.Kind, time.Duration(f.For).String(), text)
}

func (w *world) whole() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.healed
}

// wholeFor returns the time since all faults ended, or 0.
func (w *world) wholeFor() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.healed {
		return 0
	}
	return w.now() - w.healedAt
}

// halt stops a machine for a while, like SIGSTOP and SIGCONT: it sends nothing and
// receives nothing.
func (w *world) halt(node int, d time.Duration) {
	w.mu.Lock()
	w.halts[node] = time.Now().Add(d)
	w.mu.Unlock()
	w.tell(node, "stopped", d.String(), "")
}

func (w *world) halted(node int) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Until(w.halts[node])
}

func (w *world) forget(d time.Duration) {
	w.vault.forget(d)
	w.tell(-1, "forget", d.String(), "")
	w.account.forgot(d)
}

// split divides the store for a while. In the end it has forgotten the writes of the losers.
func (w *world) split(f Fault) {
	losers := make(map[int]bool)
	for i := range w.Nodes {
		losers[i] = (i == f.Node) == (f.How == "")
	}
	w.vault.divide(losers)
	w.account.divided(time.Duration(f.For))
	w.later(time.Duration(f.For), func() {
		w.vault.unite()
		w.tell(-1, "unite", "", "")
	})
}

// splits reports whether a fault of the schedule splits the store.
func (w *world) splits() bool {
	return slices.ContainsFunc(w.Faults, func(f Fault) bool { return f.Kind == splitBrain })
}

// clock returns the clock of a node, with its error.
func (w *world) clock(node int) func() time.Time {
	return func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		return time.Now().Add(w.skews[node])
	}
}

// active returns the first matching fault of a kind that lasts now on a node, or nil.
func (w *world) active(node int, kind string, match func(Fault) bool) *Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.healed {
		return nil
	}
	now := Duration(w.now())
	for i := range w.Faults {
		f := &w.Faults[i]
		if f.Kind == kind && (f.Node < 0 || f.Node == node || kind == "cut") && f.At <= now && now < f.At+f.For && match(*f) {
			if !w.struck[i] {
				w.struck[i], w.struckAt[i] = true, time.Duration(f.At)
			}
			return f
		}
	}
	return nil
}

// refused returns the error of an effect if its service is away or full now.
func (w *world) refused(node int, service string, e effect) error {
	if w.active(node, "away", func(f Fault) bool { return f.How == service }) != nil {
		return fmt.Errorf("%w: connection refused", rowmill.ErrUnavailable)
	}
	if !e.writes || strings.Contains(e.kind, "delete") || strings.Contains(e.kind, "drop") || strings.Contains(e.kind, "session") {
		return nil
	}
	if w.active(node, "full", func(f Fault) bool { return f.How == service }) == nil {
		return nil
	}
	if service == "blob" {
		return fmt.Errorf("%w: %w", rowmill.ErrUnavailable, syscall.ENOSPC)
	}
	return fmt.Errorf("%w: the server is at its memory limit", rowmill.ErrUnavailable)
}

// slow returns the additional latency of an effect while its service is slow.
func (w *world) slow(node int, kind, what string) (time.Duration, bool) {
	service, _, _ := strings.Cut(kind, ".")
	f := w.active(node, "slow", func(f Fault) bool { return f.How == service })
	if f == nil {
		return 0, false
	}
	return w.latency(node, "slow "+kind, what) * 300, true // 0.3 to 0.9 s
}

// short cuts a job's id to its end.
func short(key string) string {
	if i := strings.Index(key, "job-"); i >= 0 && len(key) >= i+40 {
		return key[:i] + key[i+36:]
	}
	return key
}

// background is the context of reads by the world itself.
var background = context.Background()
