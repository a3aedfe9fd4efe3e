package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill/store"
)

// A Crowd submits jobs of accounts of its own while faults strike, and checks each.
type Crowd struct {
	*Cluster
	random   *rand.Rand // used by one goroutine only
	accounts []*crowdAccount
	texts    []string // of all rows
	answers  []Answer
	small    bool // jobs of up to three rows and priority 0
	number   int  // of the next job

	mu     sync.Mutex
	jobs   []string // ids of the ended jobs
	wrongs []string
}

type crowdAccount struct {
	name, key string
	used      Ledger
}

// crowdTexts is the number of different rows: few, so that all answers are known
// before, but enough that a swapped row is noticed.
const crowdTexts = 4000

// newCrowd creates the accounts, named after the crowd, and the different rows.
func (c *Cluster) newCrowd(ctx context.Context, name string, seed uint64, texts, accounts int) (*Crowd, error) {
	w := &Crowd{Cluster: c, random: rand.New(rand.NewPCG(seed, 1))}
	for i := range texts {
		w.texts = append(w.texts, fmt.Sprintf("%s %d, row %d", name, seed, i))
	}
	var err error
	if w.answers, err = c.answers(ctx, w.texts); err != nil {
		return nil, err
	}
	for i := range accounts {
		a := &crowdAccount{name: fmt.Sprintf("%s%d", name, i)}
		var made struct {
			Key string `json:"key"`
		}
		body := map[string]any{"name": a.name, "account": a.name, "role": "user", "requests_per_minute": 1_000_000}
		if err := c.call(ctx, http.MethodPost, "/v1/keys", nil, body, &made); err != nil {
			return nil, err
		}
		a.key = made.Key
		w.accounts = append(w.accounts, a)
	}
	return w, nil
}

// size returns the number of rows of a job: most are tiny, one in a thousand is large.
func (w *Crowd) size() int {
	if w.small {
		return 1 + w.random.IntN(3)
	}
	switch n := w.random.IntN(1000); {
	case n == 0:
		return 2000 + w.random.IntN(3000)
	case n < 40:
		return 100 + w.random.IntN(400)
	case n < 300:
		return 10 + w.random.IntN(90)
	default:
		return 1 + w.random.IntN(10)
	}
}

// run submits jobs until stop is closed, at most open at a time, and checks each.
func (w *Crowd) run(ctx context.Context, stop <-chan struct{}, jobs, open int) {
	places := make(chan struct{}, open)
	var all sync.WaitGroup
	defer all.Wait()
	for range jobs {
		select {
		case places <- struct{}{}:
		case <-stop:
			return
		case <-ctx.Done():
			return
		}
		number := w.number
		w.number++
		account := w.accounts[w.random.IntN(len(w.accounts))]
		rows := make([]int, w.size())
		for i := range rows {
			rows[i] = w.random.IntN(len(w.texts))
		}
		all.Go(func() {
			defer func() { <-places }()
			if err := w.job(ctx, account, number, rows); err != nil {
				w.mu.Lock()
				w.wrongs = append(w.wrongs, fmt.Sprintf("job %d of %s, %d rows: %v", number, account.name, len(rows), err))
				w.mu.Unlock()
			}
		})
	}
}

// start runs the crowd until the returned function is called, which waits for the last
// jobs.
func (w *Crowd) start(ctx context.Context, open int) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		w.run(ctx, stop, math.MaxInt, open)
	}()
	return func() { close(stop); <-done }
}

// priority returns the priority of a job: 0 for every second job within the row quota.
func (w *Crowd) priority(number, rows int) int {
	switch {
	case w.small:
		return 0
	case rows > 1000:
		return 1
	}
	return number % 2
}

// job submits a job once and checks it.
func (w *Crowd) job(ctx context.Context, account *crowdAccount, number int, rows []int) error {
	e := Evidence{Inputs: make([]string, len(rows)), Want: make([]Answer, len(rows))}
	for i, row := range rows {
		e.Inputs[i], e.Want[i] = w.texts[row], w.answers[row]
	}
	var created struct {
		Results string `json:"results"`
	}
	body := map[string]any{"inputs": e.Inputs, "model": model, "job_priority": w.priority(number, len(rows)), "sampling_params": map[string]any{"max_tokens": maxTokens}}
	header := http.Header{"Idempotency-Key": {fmt.Sprintf("crowd-%d", number)}}
	if err := w.as(ctx, account, http.MethodPost, "/v1/batch-inference", header, body, &created); err != nil {
		return err
	}
	id := created.Results
	for over := false; !over; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", id, ctx.Err())
		case <-time.After(500 * time.Millisecond):
		}
		var answer struct {
			Job Record `json:"job"`
		}
		if err := w.as(ctx, account, http.MethodGet, "/v1/jobs/"+id, nil, nil, &answer); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		e.Record, over = answer.Job, answer.Job.over()
	}
	e.Later = e.Record
	if e.Record.Status == "succeeded" {
		if err := w.as(ctx, account, http.MethodGet, "/v1/jobs/"+id+"/results?include_inputs=true", nil, nil, &e.Results); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs = append(w.jobs, id)
	account.used.charge(e.Want)
	var v Verdict
	v.judgeRecord(e)
	v.judgeResults(e)
	if len(v.Wrongs) > 0 {
		return fmt.Errorf("%s: %q", id, v.Wrongs)
	}
	return nil
}

// as calls with the key of an account until it has an answer: it tries other nodes and
// repeats. A store that forgot its last second has a job again after some seconds.
func (w *Crowd) as(ctx context.Context, account *crowdAccount, method, path string, header http.Header, body, out any) error {
	with := http.Header{"Authorization": {"Key " + account.key}}
	for name, values := range header {
		with[name] = values
	}
	return await(ctx, method+" "+path, jobWithin, func(ctx context.Context) error {
		err := w.call(ctx, method, path, with, body, out)
		var r *refusal
		if errors.As(err, &r) && r.status < 500 && r.status != http.StatusTooManyRequests && r.status != http.StatusConflict && r.status != http.StatusNotFound {
			return final{err}
		}
		if err != nil {
			time.Sleep(200 * time.Millisecond) // like clients
		}
		return err
	})
}

// charged returns the ledger of an account.
func (w *Crowd) charged(ctx context.Context, a *crowdAccount) (Ledger, error) {
	var answer struct {
		Total Ledger `json:"total"`
	}
	day := func(offset int) string { return time.Now().UTC().AddDate(0, 0, offset).Format(time.DateOnly) }
	err := w.as(ctx, a, http.MethodGet, "/v1/usage?from="+day(-1)+"&to="+day(1), nil, nil, &answer)
	return answer.Total, err
}

// judge returns what was wrong with ended jobs, and compares the ledgers with their rows. It
// reports each once. patience is for settledLedger.
func (w *Crowd) judge(ctx context.Context, patience time.Duration) (wrongs []string, err error) {
	wrongs, w.wrongs = w.wrongs, nil
	for _, a := range w.accounts {
		charged, err := settledLedger(ctx, patience, a.used, func(ctx context.Context) (Ledger, error) { return w.charged(ctx, a) })
		if err != nil {
			return nil, err
		}
		for _, wrong := range JudgeLedger(charged, a.used) {
			wrongs = append(wrongs, a.name+": "+wrong)
		}
		a.used = charged
	}
	return wrongs, nil
}

// leftovers waits until bucket and Redis have no leftovers of the jobs, and returns leftovers
// that stay. paused are the times at which nodes were stopped.
func (w *Crowd) leftovers(ctx context.Context, paused []time.Time) (found []string, err error) {
	s, err := w.openStore(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }() // only read
	client := w.redisClient()
	defer func() { _ = client.Close() }()
	began := time.Now()
	for waits := w.jobs; len(waits) > 0; {
		last := time.Since(began) > goneWithin
		waits = slices.DeleteFunc(waits, func(id string) bool {
			left, leftErr := w.leftOf(ctx, s, client, id, paused)
			err = errors.Join(err, leftErr)
			if last {
				for _, l := range left {
					found = append(found, "left of job "+id+": "+l)
				}
			}
			return last || len(left) == 0
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// leftOf returns the leftovers of an ended job. A worker that was stopped at the end of the job
// may write objects later: the sweep removes them after retention.orphan_age.
func (w *Crowd) leftOf(ctx context.Context, s store.Store, client *goredis.Client, id string, paused []time.Time) ([]string, error) {
	rec, err := s.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	late := slices.ContainsFunc(paused, func(at time.Time) bool { return rec.EndedAt().Sub(at).Abs() < goneWithin })
	return w.left(ctx, s, client, id, excuse{objects: late})
}

// goneWithin is how long leftovers may stay after the end of all jobs and faults: leftovers of
// dead owners wait for two settle times and a round of the janitor.
const goneWithin = time.Minute

// A Sample holds the memory and goroutines of a node at a time.
type Sample struct {
	Heap, Goroutines float64
}

// sample reads the metrics of the nodes that are up.
func (c *Cluster) sample(ctx context.Context) (s []Sample) {
	for _, n := range c.nodes() {
		if !n.up() {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		heap, err := c.metric(ctx, n, "go_memstats_heap_alloc_bytes")
		routines, err2 := c.metric(ctx, n, "go_goroutines")
		cancel()
		if errors.Join(err, err2) == nil {
			s = append(s, Sample{heap, routines})
		}
	}
	return s
}

// judgeFlat compares the last quarter of the samples with the first.
func judgeFlat(samples []Sample) (wrongs []string) {
	quarter := len(samples) / 4
	if quarter == 0 {
		return []string{fmt.Sprintf("%d samples are too few", len(samples))}
	}
	median := func(of []Sample, value func(Sample) float64) float64 {
		var all []float64
		for _, s := range of {
			all = append(all, value(s))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	for _, m := range []struct {
		name  string
		value func(Sample) float64
		room  float64 // allowed growth
	}{
		{"bytes of heap", func(s Sample) float64 { return s.Heap }, 16 << 20},
		{"goroutines", func(s Sample) float64 { return s.Goroutines }, 100},
	} {
		first, last := median(samples[:quarter], m.value), median(samples[len(samples)-quarter:], m.value)
		if last > first*3/2+m.room {
			wrongs = append(wrongs, fmt.Sprintf("a node had %.0f %s in the first quarter and %.0f in the last", first, m.name, last))
		}
	}
	return wrongs
}

// strikeCrowd strikes at random, with pauses, until ctx ends. It returns its strikes, and the
// times at which nodes were stopped.
func (c *Cluster) strikeCrowd(ctx context.Context, random *rand.Rand, pause time.Duration) (strikes map[string]int, paused []time.Time, err error) {
	strikes = map[string]int{}
	wait := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	always := context.WithoutCancel(ctx) // a begun fault must end
	for {
		wait(pause/2 + time.Duration(random.Int64N(int64(pause))))
		select {
		case <-ctx.Done():
			return strikes, paused, nil
		default:
		}
		nodes := c.nodes()
		n := nodes[random.IntN(len(nodes))]
		away := shortest + time.Duration(random.Int64N(int64(longest-shortest)))
		name := ""
		switch random.IntN(7) {
		case 0, 1:
			name = "kill -9 a node"
			n.kill()
		case 2:
			name = "kill -9 all nodes"
			for _, n := range nodes {
				n.kill()
			}
		case 3:
			name = "SIGTERM to a node"
			if _, err := n.terminate(drainWithin + 10*time.Second); err != nil {
				return strikes, paused, err
			}
		case 4:
			name, away = "SIGSTOP a node", 2*c.config.Lease
			if err := n.pause(); err != nil {
				return strikes, paused, err
			}
			paused = append(paused, time.Now())
		case 5:
			name = "kill -9 redis-server"
			c.Redis.kill()
		case 6:
			name = "kill -9 the S3 server"
			c.s3Down = true
			c.S3.Kill()
		}
		strikes[name]++
		wait(away)
		if err := c.Repair(always); err != nil {
			return strikes, paused, fmt.Errorf("after %s: %w", name, err)
		}
	}
}
