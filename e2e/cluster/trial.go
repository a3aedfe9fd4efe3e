package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rowmill/rowmill/store"
)

// A Trial is one job with its faults.
type Trial struct {
	*Cluster
	Seed uint64
	Job  string

	dialect Dialect
	random  *rand.Rand
	began   time.Time
	watched *watch
	strikes []Strike

	besides func() int // ends the jobs of the neighbour
	onlooks func()     // ends the polling client

	away stretch // period in which requests may fail

	feed      *feed      // nil if the input is not downloaded
	lake      *lakeTrial // nil if the input is no source
	lastOwner *Node      // last known owner near the end
	removed   *Results   // results before the removal of the data
}

// An Outcome is the outcome of a trial.
type Outcome struct {
	Verdict
	Seed     uint64
	Faults   []string
	Rows     int
	Took     time.Duration // from the submission to the end of the job
	Timeline []string      // faults and their times
	Beside   int           // number of jobs of the other account
	Asked    Requests      // requests of all clients
}

// jobWithin limits a job with all its faults, far above the time that any needs.
const jobWithin = 4 * time.Minute

// glimpseEvery is the time between two reads of the record: takeovers are measured in tenths
// of seconds.
const glimpseEvery = 25 * time.Millisecond

// lakeTrials: one in this number of jobs without another kind of input reads files and writes files.
const lakeTrials = 2

// early: one in this number of jobs may be struck before its first row is done.
const early = 4

// Try runs a job, strikes it with the faults one after the other from a random time on, and
// judges it after its end and the repair of the cluster. An error means that the trial itself
// could not run.
func (c *Cluster) Try(ctx context.Context, dialect Dialect, seed uint64, rows int, faults ...Fault) (Outcome, error) {
	t := &Trial{Cluster: c, Seed: seed, dialect: dialect, random: rand.New(rand.NewPCG(seed, 0))}
	o := Outcome{Seed: seed, Rows: rows}
	e := Evidence{Inputs: make([]string, rows)}
	for i := range e.Inputs {
		e.Inputs[i] = t.text(i)
	}
	var err error
	if e.Want, err = c.answers(ctx, e.Inputs); err != nil {
		return o, err
	}
	c.requests.take() // the requests of the previous trial are judged
	faults = slices.Clone(faults)
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.When, b.When) })
	end, err := c.besides(ctx, seed)
	if err != nil {
		return o, err
	}
	t.besides = sync.OnceValue(end)
	defer t.besides()
	var inputs any = e.Inputs
	if len(faults) > 0 && faults[0].When == Ingesting {
		if t.feed, err = c.newFeed(ctx, e.Inputs); err != nil {
			return o, err
		}
		defer t.feed.close()
		inputs = t.feed.url
	}
	more := map[string]any{}
	if dialect == "" && t.feed == nil && c.config.Lake && t.random.IntN(lakeTrials) == 0 {
		if t.lake, err = c.newLake(seed, e.Inputs, e.Want); err != nil {
			return o, err
		}
		defer t.lake.stop()
		inputs, more["output"] = "lake:"+t.lake.in+"/part=*/*.csv", "lake:"+t.lake.out+"/"
	}
	if dialect != "" {
		t.Job, err = c.batch(ctx, dialect, e.Inputs)
	} else {
		t.Job, err = c.submitWith(ctx, fmt.Sprintf("trial-%d", seed), inputs, more)
	}
	if err != nil {
		return o, err
	}
	t.began = time.Now()
	watch, err := c.watch(ctx, t.Job)
	if err != nil {
		return o, err
	}
	defer watch.stop()
	t.watched = watch
	t.onlooks = sync.OnceFunc(t.onlook(ctx))
	defer t.onlooks()
	if t.feed == nil && t.random.IntN(early) > 0 {
		if err := t.runs(ctx); err != nil {
			return o, err
		}
	}
	for _, f := range faults {
		err := t.reach(ctx, f.When, rows)
		if err == nil {
			if f.Away && t.away.from.IsZero() {
				t.away = stretch{time.Now(), time.Now().Add(2 * jobWithin)}
			}
			err = f.Strike(ctx, t)
		}
		if errors.Is(err, errOver) {
			break // the previous faults took longer than the job
		}
		o.Faults = append(o.Faults, f.Name)
		if err != nil {
			o.Wrongs = append(o.Wrongs, fmt.Sprintf("%s: %v", f.Name, err))
		}
	}
	struck := time.Now() // the store may have forgotten the end of the job
	if err := watch.until(ctx, "over", func(g Glimpse) bool { return g.Over && g.At.After(struck) }); err != nil {
		o.Wrongs = append(o.Wrongs, err.Error())
		return o, fmt.Errorf("job %s does not end: %q", t.Job, o.Wrongs)
	}
	o.Took = time.Since(t.began)
	err = t.settle(ctx, watch, &e, &o)
	return o, err
}

// repeatsWithin is how long after the return of Redis nodes write again what Redis forgot. Until
// then a node answers 503, and not 404, for a forgotten job (replay.Config.FailedAt).
const repeatsWithin = 6 * time.Second

// patience returns repeatsWithin after a fault that made Redis forget writes, else 0.
func (t *Trial) patience() time.Duration {
	if slices.ContainsFunc(t.strikes, func(s Strike) bool { return s.Forgot }) {
		return repeatsWithin
	}
	return 0
}

// settle repairs the cluster and judges the job.
func (t *Trial) settle(ctx context.Context, watch *watch, e *Evidence, o *Outcome) error {
	var err error
	if e.Record, err = t.look(ctx); err != nil {
		return err
	}
	may := t.excuse()
	if err := t.Repair(ctx); err != nil {
		return fmt.Errorf("the cluster does not come back: %w", err)
	}
	t.away.to = time.Now().Add(t.patience())
	t.onlooks()
	o.Beside = t.besides()
	wrongs := slices.Clone(o.Wrongs)
	switch {
	case t.removed != nil:
		e.Results = *t.removed
	case e.Record.Status == "succeeded":
		if t.dialect != "" {
			e.Results, err = t.batchResults(ctx, t.dialect, t.Job, e.Inputs)
		} else {
			e.Results, err = t.results(ctx, t.Job)
		}
		if err != nil {
			wrongs = append(wrongs, err.Error())
		}
	}
	if t.lake != nil {
		wrongs = append(wrongs, t.lake.judge(t.Job, len(e.Inputs), e.Record.Status == "succeeded")...)
	}
	if e.Left, err = t.leftovers(ctx, t.Job, may); err != nil {
		return err
	}
	if t.feed != nil {
		e.Downloads = int(t.feed.asked.Load())
	}
	if e.Later, err = t.look(ctx); err != nil {
		return err
	}
	if e.Sightings, err = t.Cluster.witness(); err != nil {
		return err
	}
	e.History, e.Strikes = watch.stop(), t.strikes
	o.Verdict = Judge(*e, t.limits())
	for _, s := range t.strikes {
		o.Timeline = append(o.Timeline, fmt.Sprintf("%s after %v at row %d", s.Fault, s.At.Sub(t.began).Round(100*time.Millisecond), s.Done))
	}
	o.Wrongs = append(wrongs, o.Wrongs...)
	t.account.charge(e.Want)
	charged, err := settledLedger(ctx, t.patience(), t.account, t.ledger)
	if err != nil {
		return err
	}
	if e.Record.Status == "succeeded" {
		o.Wrongs = append(o.Wrongs, JudgeLedger(charged, t.account)...)
	}
	t.account = charged // report a wrong charge of a job once
	wrongs, err = t.neighbour.judge(ctx, t.patience())
	o.Wrongs = append(o.Wrongs, wrongs...)
	asked, failures := t.requests.take()
	o.Asked, wrongs = judgeRequests(asked, failures, t.away)
	o.Wrongs = append(o.Wrongs, wrongs...)
	return err
}

// excuse returns the excuse for leftovers of a node that died before the job had settled, or
// that the repair restarts.
func (t *Trial) excuse() (may excuse) {
	if t.removed != nil {
		return excuse{}
	}
	may.losers = slices.ContainsFunc(t.strikes, func(s Strike) bool { return s.Forgets > 0 })
	may.records = slices.ContainsFunc(t.nodes(), func(n *Node) bool { return n.odd() })
	end := slices.IndexFunc(t.watched.stop(), func(g Glimpse) bool { return g.Over })
	may.objects = may.records || slices.ContainsFunc(t.strikes, func(s Strike) bool {
		return end >= 0 && s.At.After(t.watched.history[end].At.Add(-time.Second))
	})
	return may
}

// look waits for an answer and returns the record of the job.
func (t *Trial) look(ctx context.Context) (r Record, err error) {
	return r, await(ctx, "the job's record", patience, func(ctx context.Context) error {
		r, err = t.record(ctx, t.Job)
		return err
	})
}

// limits returns the limits of this cluster. The rows of a node are its slots and a
// small queue at the simulator, the answers of a part interval, and the answers of a
// second, in which a part is written and recorded.
func (c *Cluster) limits() Limits {
	rate := c.config.rate()
	uncommitted := rate * (c.config.PartInterval + time.Second).Seconds()
	return Limits{
		Takeover: c.config.Lease + 2*time.Second,
		Flight:   2*c.config.Slots + int(uncommitted),
	}
}

// left returns the time of the rest of the job without faults.
func (t *Trial) left(g Glimpse, rows int) time.Duration {
	workers := 0
	for _, n := range t.nodes() {
		if n.Runs && n.up() {
			workers++
		}
	}
	seconds := float64(int64(rows)-g.RowsDone) / (t.config.rate() * float64(max(1, workers)))
	return time.Duration(seconds * float64(time.Second))
}

// text returns row i of the trial, with commas, quotes and line breaks, which files may get
// wrong.
func (t *Trial) text(i int) string {
	return fmt.Sprintf("trial %d, row %d: \"%s\"\nsecond line", t.Seed, i, strings.Repeat("words ", 1+i%7))
}

func (c *Cluster) answers(ctx context.Context, inputs []string) ([]Answer, error) {
	answers := make([]Answer, len(inputs))
	for i, text := range inputs {
		var err error
		if answers[i], err = c.oracle.answer(ctx, text); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// witness returns the entries of all witness logs so far.
func (c *Cluster) witness() ([]Sighting, error) {
	// Simulators write an entry within 50 ms.
	time.Sleep(200 * time.Millisecond)
	for _, n := range c.nodes() {
		if n.sim == nil {
			continue
		}
		seen, err := n.sim.sightings()
		if err != nil {
			return nil, err
		}
		c.sightings = append(c.sightings, seen...)
	}
	return c.sightings, nil
}

// runs waits until the first row is done.
func (t *Trial) runs(ctx context.Context) error {
	return t.watched.until(ctx, "running", func(g Glimpse) bool { return g.RowsDone > 0 || g.Over })
}

// over returns errOver after the end of the job.
func (t *Trial) over() error {
	if t.watched.last().Over {
		return errOver
	}
	return nil
}

// errOver says that the job has ended.
var errOver = errors.New("the job is over")

// struck notes a strike with its time.
func (t *Trial) struck(s Strike) {
	s.At, s.Done = time.Now(), t.watched.last().RowsDone
	if t.feed != nil && (s.Lost > 0 || s.OwnerLost) && !s.Lives && !t.downloaded() {
		s.MayFail = downloadFailed
	}
	t.strikes = append(t.strikes, s)
}

// worker returns a random node that runs rows but does not own the job.
func (t *Trial) worker(ctx context.Context) (*Node, error) {
	owner, err := t.owner(ctx)
	if err != nil {
		return nil, err
	}
	var workers []*Node
	for _, n := range t.nodes() {
		if n != owner && n.Runs && n.up() {
			workers = append(workers, n)
		}
	}
	if len(workers) == 0 {
		return nil, errors.New("no node runs rows but the owner")
	}
	return workers[t.random.IntN(len(workers))], nil
}

// between returns a random duration between two.
func (t *Trial) between(least, most time.Duration) time.Duration {
	return least + time.Duration(t.random.Int64N(int64(most-least)))
}

// A watch reads the record of a job in the store repeatedly, without a node.
type watch struct {
	store store.Store
	job   string

	mu      sync.Mutex
	history []Glimpse
	cancel  context.CancelFunc
	done    chan struct{}
}

func (c *Cluster) watch(ctx context.Context, job string) (*watch, error) {
	s, err := c.openStore(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{store: s, job: job, cancel: cancel, done: make(chan struct{})}
	go w.run(ctx)
	return w, nil
}

func (w *watch) run(ctx context.Context) {
	defer close(w.done)
	tick := time.NewTicker(glimpseEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		rec, err := w.store.Get(ctx, w.job)
		at := time.Now() // the record may be older, never newer
		if err != nil {
			continue // Redis may be down; the judge notices gaps
		}
		j := rec.Job
		g := Glimpse{
			At: at, Status: string(j.Status), Over: j.Status.IsTerminal(), Epoch: rec.Epoch, Version: rec.Version, Session: rec.Session,
			RowsDone: j.RowsDone, FailedRows: j.FailedRows,
		}
		if j.InputTokens != nil && j.OutputTokens != nil {
			g.InputTokens, g.OutputTokens = *j.InputTokens, *j.OutputTokens
		}
		w.mu.Lock()
		w.history = append(w.history, g)
		w.mu.Unlock()
	}
}

// last returns the newest glimpse, or the zero value.
func (w *watch) last() Glimpse {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.history) == 0 {
		return Glimpse{}
	}
	return w.history[len(w.history)-1]
}

func (w *watch) until(ctx context.Context, what string, reached func(Glimpse) bool) error {
	return await(ctx, "the job is "+what, jobWithin, func(context.Context) error {
		if g := w.last(); !reached(g) {
			return fmt.Errorf("it is %+v", g)
		}
		return nil
	})
}

// stop ends the watch and returns its glimpses. It may be called twice.
func (w *watch) stop() []Glimpse {
	w.cancel()
	<-w.done
	_ = w.store.Close() // it was only read
	return w.history
}
