package virtual

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A kind is a kind of fault.
type kind struct {
	name   string
	weight int
	lasts  bool // a condition from At for For, which effects check
	make   func(g *generator, f *Fault)
}

// kinds returns all kinds of faults. A new kind needs a line here, and its effect in world.go
// or effect.go.
func kinds() []kind {
	return []kind{
		{"crash", 8, false, func(g *generator, f *Fault) { g.moment(f); f.For = g.upTo(15 * time.Second) }},
		{"stop", 4, false, func(g *generator, f *Fault) { g.moment(f); f.For = g.upTo(15 * time.Second) }},
		{"drain", 3, false, func(g *generator, f *Fault) { f.At, f.For = g.time(), g.upTo(10*time.Second) }},
		{"unacknowledged", 6, false, func(g *generator, f *Fault) {
			g.effect(f)
			f.After, f.How = g.one("", "after") == "after", g.one("", "", "silence")
		}},
		{"late", 4, false, func(g *generator, f *Fault) { g.effect(f); f.For = g.upTo(20 * time.Second) }},
		{"away", 4, true, func(g *generator, f *Fault) {
			g.span(f)
			f.How = g.one("store", "blob")
			g.maybeAll(f)
		}},
		{"full", 2, true, func(g *generator, f *Fault) { g.span(f); f.How = g.one("store", "blob"); f.Node = -1 }},
		{"slow", 2, true, func(g *generator, f *Fault) { g.span(f); f.How = g.one("store", "blob"); g.maybeAll(f) }},
		{"cut", 4, true, func(g *generator, f *Fault) {
			g.span(f)
			f.How = g.one("", "", "in", "out")
			f.To = -1
			if g.IntN(2) == 0 {
				f.To = g.IntN(len(g.Nodes))
			}
		}},
		{"messages", 4, true, func(g *generator, f *Fault) {
			g.span(f)
			f.How, f.Rate = g.one("lost", "unsaid", "late", "again"), 0.2+0.6*g.Float64()
			g.maybeAll(f)
		}},
		{"engine", 4, true, func(g *generator, f *Fault) {
			g.span(f)
			f.How, f.Rate = g.one("down", "busy", "error", "reset", "hang", "slow", "garbage"), 0.2+0.6*g.Float64()
			g.maybeAll(f)
		}},
		{"clock", 2, false, func(g *generator, f *Fault) {
			f.At, f.For = g.time(), g.upTo(2*time.Hour)
			if g.IntN(2) == 0 {
				f.For = -f.For
			}
		}},
		{unstored, 0, false, nil},   // see losses
		{splitBrain, 0, false, nil}, // see splits
		{"forget", 3, false, func(g *generator, f *Fault) { g.moment(f); f.For = g.upTo(2 * time.Second); f.After = true }},
	}
}

func find(name string) (kind, bool) {
	all := kinds()
	i := slices.IndexFunc(all, func(k kind) bool { return k.name == name })
	if i < 0 {
		return kind{}, false
	}
	return all[i], true
}

func known(name string) bool { _, ok := find(name); return ok }

// lastingKind reports whether a fault is a condition that effects check. Other faults
// strike once.
func lastingKind(name string) bool { k, _ := find(name); return k.lasts }

// critical lists the effects after which a node and the store may disagree.
var critical = []string{
	"store.create", "store.claim", "store.release", "store.update", "store.finish", "store.cancel", "store.reserve",
	"store.commit-parts", "store.replace-parts", "store.continued", "store.keep-input", "store.drop-parts", "store.renew-session", "store.open-session", "store.close-session",
	"blob.put", "blob.delete-prefix", "blob.delete", "store.list-parts", "store.get", "blob.open",
}

// A generator draws a schedule.
type generator struct {
	*rand.Rand
	Schedule
}

// First seeds of groups of faults, see stages.
const (
	richer  = 20_130_000 // accounts and poison jobs
	earlier = 24_000_000 // rows run before the whole input is read
	apart   = 26_000_000 // equal rows
	harsh   = 28_000_000 // servers limit their clients or crash
	lossy   = 30_000_000 // the bucket loses what it acknowledged
	loops   = 32_000_000 // a node crashes again soon after each start
	torn    = 34_000_000 // some nodes use a copy of the store, which is given up
	trying  = 36_000_000 // jobs run a part of their input, and others run the rest

	asking  = 38_000_000 // jobs estimate the cost, and others run their input
	readers = 40_000_000 // jobs read the stored input of other jobs

	pausing = 42_000_000 // clients pause jobs and change their priority

	reusing = 44_000_000 // jobs reuse the rows of other jobs

	newest = reusing
)

// stages are the groups of faults that came after the first, with their first seeds. Each
// group has its own generator, so that older seeds keep their schedules: they are known to
// find nothing, and CI runs them.
var stages = []struct {
	from uint64
	add  []func(*generator)
}{
	{0, []func(*generator){(*generator).downloads, (*generator).removals, (*generator).hostility}},
	{richer, []func(*generator){(*generator).accounts, (*generator).estrangement, (*generator).brokenRemoval, (*generator).poison}},
	{earlier, []func(*generator){(*generator).reading}},
	{apart, []func(*generator){(*generator).repeats}},
	{harsh, []func(*generator){(*generator).limits, (*generator).crashes}},
	{lossy, []func(*generator){(*generator).losses}},
	{loops, []func(*generator){(*generator).crashLoop}},
	{torn, []func(*generator){(*generator).splits}},
	{trying, []func(*generator){(*generator).trials}},
	{asking, []func(*generator){(*generator).estimates}},
	{readers, []func(*generator){(*generator).readings}},
	{pausing, []func(*generator){(*generator).pauses}},
	{reusing, []func(*generator){(*generator).reuses}},
}

// Generate returns the schedule of a seed.
func Generate(seed uint64) Schedule {
	const first = 13 // the second seed of the first generator; each later one has the next
	g := newGenerator(seed, first)
	g.Seed = seed
	g.base()
	for i, stage := range stages {
		if seed < stage.from {
			break
		}
		next := newGenerator(seed, first+1+uint64(i))
		next.Schedule = g.Schedule
		for _, add := range stage.add {
			add(next)
		}
		g = next
	}
	return g.Schedule
}

func newGenerator(seed, second uint64) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, second))} //nolint:gosec // it must repeat
}

// base draws nodes, jobs and the oldest faults.
func (g *generator) base() {
	nodes := 1 + g.IntN(4)
	for range nodes {
		g.Nodes = append(g.Nodes, Node{Clock: Duration(g.skew())})
	}
	if nodes > 2 && g.IntN(3) == 0 {
		g.Nodes[1].NoEngine = true
		g.Nodes[2].OwnsNone = true
	}
	if nodes > 1 && g.IntN(10) == 0 {
		g.Nodes[nodes-1].Twin = true
	}
	g.Limits = Limits{
		ShardRows: 1 + g.IntN(16), PartInterval: Duration(time.Duration(200+g.IntN(2000)) * time.Millisecond),
		Lease: Duration(time.Duration(2+g.IntN(5)) * time.Second),
		Slots: 1 + g.IntN(6), Pace: Duration(time.Duration(50+g.IntN(700)) * time.Millisecond),
	}
	if g.IntN(4) == 0 {
		g.PartBytes = int64(200 + g.IntN(2000))
	}
	for range 1 + g.IntN(2)*g.IntN(3) {
		j := Job{At: g.upTo(3 * time.Second), Node: g.IntN(nodes), Rows: 1 + g.IntN(50), Schema: g.IntN(5) == 0}
		if g.IntN(8) == 0 {
			j.Broken = min(1, j.Rows-1)
		}
		if g.IntN(8) == 0 {
			j.Cancel = j.At + g.upTo(10*time.Second)
		}
		g.Jobs = append(g.Jobs, j)
	}
	if g.IntN(4) == 0 {
		g.contention()
	}
	if g.IntN(3) == 0 {
		g.continuations()
	}
	g.faults(1 + g.IntN(4))
}

// losses makes the bucket lose parts and results that it has acknowledged.
func (g *generator) losses() {
	for range g.IntN(4) {
		g.Faults = append(g.Faults, Fault{
			Kind: unstored, On: unstored, Nth: 1 + g.IntN(1+g.IntN(12)), Node: g.IntN(len(g.Nodes)),
			How: g.one("lost", "cut", "hidden"), For: g.upTo(20 * time.Second),
		})
	}
}

// repeats makes many rows of a job equal, and sometimes its owner fail while copies are
// written.
func (g *generator) repeats() {
	j := &g.Jobs[g.IntN(len(g.Jobs))]
	if j.Continues > 0 || j.Poison != "" || j.Urgent || g.IntN(2) > 0 {
		return
	}
	if g.IntN(2) == 0 {
		j.Rows = max(j.Rows, 20+g.IntN(80))
	}
	j.Broken, j.Equal = 0, 1+g.IntN(max(1, j.Rows*2/3))
	if g.IntN(2) == 0 {
		k, _ := find(g.one("crash", "crash", "stop", "drain", "forget", "unacknowledged", "late"))
		f := Fault{Kind: k.name}
		k.make(g, &f)
		f.Node, f.At, f.On, f.Nth = j.Node, 0, g.one("blob.put", "store.commit-parts", "store.commit-parts", "store.replace-parts", "blob.open"), 2+g.IntN(15)
		g.Faults = append(g.Faults, f)
	}
}

// crashLoop crashes a node again and again, each time soon after its start. All its jobs are
// innocent, so none may fail.
func (g *generator) crashLoop() {
	if g.IntN(2) > 0 {
		return
	}
	node, at := g.IntN(len(g.Nodes)), g.upTo(3*time.Second)
	for range 3 + g.IntN(8) {
		f := Fault{Kind: "crash", Node: node, At: at, For: Duration(300*time.Millisecond) + g.upTo(time.Second)}
		g.Faults = append(g.Faults, f)
		at += f.For + g.upTo(4*time.Second)
	}
}

// splits splits the store, sometimes together with the network, and has jobs submitted on
// both sides.
func (g *generator) splits() {
	if g.IntN(2) > 0 {
		return
	}
	if len(g.Nodes) == 1 {
		g.Nodes = append(g.Nodes, Node{Clock: Duration(g.skew())})
	}
	f := Fault{Kind: splitBrain, Node: g.IntN(len(g.Nodes)), At: g.upTo(8 * time.Second), For: Duration(5*time.Second) + g.upTo(115*time.Second), How: g.one("", "others")}
	g.Faults = append(g.Faults, f)
	if g.IntN(2) == 0 {
		g.Faults = append(g.Faults, Fault{Kind: "cut", Node: f.Node, To: -1, At: f.At, For: f.For})
	}
	for range 1 + g.IntN(4) {
		g.Jobs = append(g.Jobs, Job{At: f.At + Duration(g.Int64N(int64(f.For))), Node: g.IntN(len(g.Nodes)), Rows: 1 + g.IntN(40)})
	}
}

// reading makes rows of a job run while its input is read, and its owner fail at that time.
func (g *generator) reading() {
	j := &g.Jobs[0]
	if j.Continues > 0 || j.Poison != "" || g.IntN(3) > 0 {
		return
	}
	j.Rows, g.ShardRows, g.CostLimit = max(j.Rows, 30+g.IntN(50)), 1+g.IntN(4), 0
	if j.From == "" {
		j.Spooled = true
		if g.IntN(2) == 0 {
			j.From, j.Spooled = g.one(sendsWhole, sendsUnsized), false
		}
	}
	k, _ := find(g.one("crash", "crash", "stop", "drain"))
	f := Fault{Kind: k.name}
	k.make(g, &f)
	f.Node, f.At, f.On, f.Nth = j.Node, 0, g.one("blob.put", "blob.put", "store.update"), 2+g.IntN(25)
	g.Faults = append(g.Faults, f)
}

// downloads makes some jobs download their rows from a server, with a fault at that time.
func (g *generator) downloads() {
	some := false
	for i := range g.Jobs {
		if g.Jobs[i].Continues == 0 && g.IntN(6) == 0 {
			g.Jobs[i].From = g.one(sendsWhole, sendsWhole, sendsWhole, sendsUnsized, sendsHalf, sendsHalfOnly, sendsNothing)
			some = true
		}
	}
	if !some || g.IntN(2) == 0 {
		return
	}
	g.faultAt(g.IntN(len(g.Nodes)), g.one("source.get", "source.get", "blob.put", "store.update"))
}

// hostility makes an engine send hostile answers, sometimes to rows with a schema.
func (g *generator) hostility() {
	if g.IntN(6) > 0 {
		return
	}
	f := Fault{Kind: "engine", Node: g.IntN(len(g.Nodes)), How: "hostile", Rate: 0.2 + 0.6*g.Float64()}
	g.span(&f)
	g.maybeAll(&f)
	g.Faults = append(g.Faults, f)
	if j := &g.Jobs[g.IntN(len(g.Jobs))]; j.Continues == 0 && g.IntN(2) == 0 {
		j.Schema = true
	}
}

// estrangement cuts a worker off until others have run its rows, and then makes the owner
// fail: the next owner gets reports of rows that are done.
func (g *generator) estrangement() {
	nodes, job := len(g.Nodes), &g.Jobs[0]
	if nodes < 2 || g.IntN(10) > 0 {
		return
	}
	job.Rows, g.Slots, g.Pace = max(job.Rows, 40+g.IntN(40)), 1+g.IntN(2), Duration(time.Duration(300+g.IntN(500))*time.Millisecond)
	owner, stays := job.Node, g.Lease+Duration(2*time.Second)
	cut := Fault{Kind: "cut", Node: (owner + 1 + g.IntN(nodes-1)) % nodes, At: job.At + g.upTo(4*time.Second), For: stays + g.upTo(10*time.Second), To: owner}
	end := Fault{Kind: g.one("crash", "crash", "stop", "drain"), Node: owner, At: cut.At + stays + g.upTo(8*time.Second), For: g.Lease + g.upTo(10*time.Second)}
	g.Faults = append(g.Faults, cut, end)
}

// removals makes data expire, or a client remove it.
func (g *generator) removals() {
	some := false
	if g.IntN(6) == 0 {
		g.InputRetention, some = g.upTo(40*time.Second), true
	}
	if g.IntN(6) == 0 {
		g.RetentionDays, some = 1, true
	}
	if g.IntN(6) == 0 {
		for i := range g.Jobs {
			if g.IntN(2) == 0 {
				g.Jobs[i].Remove, some = g.upTo(10*time.Second), true
			}
		}
	}
	if some && g.IntN(2) == 0 {
		g.faultAt(0, g.one("store.remove-data", "store.data-gone", "store.input-gone", "store.keep-input", "store.drop-parts", "blob.delete-prefix"))
	}
}

// brokenRemoval breaks the answer to the removal of data, so that the client repeats the
// request.
func (g *generator) brokenRemoval() {
	for _, j := range g.Jobs {
		if j.Remove > 0 && g.IntN(3) == 0 {
			g.Faults = append(g.Faults, Fault{
				Kind: g.one("crash", "unacknowledged"), Node: j.Node, On: "store.remove-data", Nth: 1, After: true, For: g.upTo(5 * time.Second),
			})
			return
		}
	}
}

// faultAt adds a fault at one of the first effects of a kind.
func (g *generator) faultAt(node int, effect string) {
	k, _ := find(g.one("crash", "stop", "unacknowledged", "late", "forget"))
	f := Fault{Kind: k.name, Node: node}
	k.make(g, &f)
	f.At, f.On, f.Nth = 0, effect, 1+g.IntN(3)*g.IntN(2)
	g.Faults = append(g.Faults, f)
}

// aRow is the approximate cost of a row in USD.
const aRow = 0.02

// contention gives several jobs one cost quota, which may be enough for none or for all of
// them.
func (g *generator) contention() {
	rows := 0
	for len(g.Jobs) < 3 {
		g.Jobs = append(g.Jobs, Job{At: g.upTo(3 * time.Second), Node: g.IntN(len(g.Nodes)), Rows: 1 + g.IntN(20)})
	}
	for _, j := range g.Jobs {
		rows += j.Rows
	}
	g.CostLimit = math.Round(float64(rows)*aRow*(0.1+1.4*g.Float64())*1000) / 1000
}

// continuations makes jobs end before their rows are done, and other jobs continue them.
func (g *generator) continuations() {
	i := g.IntN(len(g.Jobs))
	first := &g.Jobs[i]
	if first.Cancel == 0 {
		first.Cancel = first.At + g.upTo(15*time.Second)
	}
	if g.IntN(4) == 0 {
		first.Rows = max(first.Rows, 6)
		first.Broken = 3 // enough that the job fails
	}
	for range 1 + g.IntN(2) {
		j := Job{At: g.upTo(4 * time.Second), Node: g.IntN(len(g.Nodes)), Continues: i + 1}
		if g.IntN(3) == 0 {
			j.Cancel = j.At + g.upTo(10*time.Second)
		}
		g.Jobs = append(g.Jobs, j)
		if g.IntN(2) == 0 {
			i = len(g.Jobs) - 1 // the next job continues this one
		}
	}
}

func (g *generator) faults(n int) {
	all, sum := kinds(), 0
	for _, k := range all {
		sum += k.weight
	}
	for range n {
		at := g.IntN(sum)
		for _, k := range all {
			if at -= k.weight; at < 0 {
				f := Fault{Kind: k.name, Node: g.IntN(len(g.Nodes))}
				k.make(g, &f)
				g.Faults = append(g.Faults, f)
				break
			}
		}
	}
}

func (g *generator) skew() time.Duration {
	if g.IntN(6) > 0 {
		return 0
	}
	return time.Duration(g.IntN(7200)-3600) * time.Second
}

func (g *generator) one(of ...string) string { return of[g.IntN(len(of))] }

// upTo returns a random time in whole milliseconds, more often a short one.
func (g *generator) upTo(d time.Duration) Duration {
	x := g.Float64()
	return Duration(time.Duration(x*x*float64(d)).Round(time.Millisecond) + time.Millisecond)
}

// time returns a time at which a job of this size may run.
func (g *generator) time() Duration { return g.upTo(20 * time.Second) }

func (g *generator) span(f *Fault) {
	f.At, f.For = g.time(), g.upTo(20*time.Second)+Duration(time.Second)
}

func (g *generator) maybeAll(f *Fault) {
	if g.IntN(3) == 0 {
		f.Node = -1
	}
}

// moment makes a fault strike at a time or at an effect.
func (g *generator) moment(f *Fault) {
	if g.IntN(3) == 0 {
		f.At = g.time()
		return
	}
	g.effect(f)
	f.After = g.IntN(2) == 0
}

// effect makes a fault strike at an effect: a critical one, or any effect that writes.
func (g *generator) effect(f *Fault) {
	if g.IntN(3) > 0 {
		f.On = critical[g.IntN(len(critical))]
		f.Nth = 1 + g.IntN(1+g.IntN(8))
		return
	}
	f.Nth = 1 + g.IntN(80)
}
