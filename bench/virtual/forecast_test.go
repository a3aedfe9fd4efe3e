package virtual

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine/sim/batching"
)

// A forecast is a job with its estimate.
type forecast struct {
	estimate rowmill.Estimate
	took     time.Duration
	output   int64 // tokens of all answers
}

// runForecast estimates a job on an idle node with random GPUs, and then runs the job.
func runForecast(t *testing.T, seed uint64) (f forecast) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 3))
	profiles := batching.Profiles()
	c := batching.Config{Profile: profiles[random.IntN(len(profiles))], MaxSeqs: slots, Seed: int64(seed)}
	gpus := 1 + random.IntN(3)
	rows := make([]row, int(200*math.Exp(3*random.Float64())))
	prompt, answer := 20*math.Exp(4*random.Float64()), 5*math.Exp(4*random.Float64())
	for i := range rows {
		rows[i] = row{
			prompt: int(min(max(prompt*math.Exp(0.6*random.NormFloat64()), 5), 4000)),
			output: int(min(max(answer*math.Exp(0.8*random.NormFloat64()), 1), 2000)),
		}
		f.output += int64(rows[i].output)
	}
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, c, gpus)
		defer n.close()
		time.Sleep(2 * time.Second) // until the node has found the engines
		n.estimate = true
		id := n.submit(rows, 1)
		n.await(id)
		rec, err := n.store.Get(t.Context(), id)
		if err != nil || rec.Job.Estimate == nil {
			t.Fatalf("seed %d: no estimate: %v", seed, err)
		}
		f.estimate = *rec.Job.Estimate
		n.estimate = false
		begun := time.Now()
		f.took = n.await(n.submit(rows, 1)).Sub(begun)
	})
	t.Logf("seed %d, %s × %d, %d rows: %.1f s, forecast %.1f (%.1f to %.1f)", seed, c.Profile.Name, gpus, len(rows),
		f.took.Seconds(), *f.estimate.Seconds, *f.estimate.SecondsLow, *f.estimate.SecondsHigh)
	return f
}

// TestForecast judges the estimates of random jobs: how many end within the stated interval of
// 80 %.
func TestForecast(t *testing.T) {
	jobs, least, most := 40, 0.6, 1.0 // so few jobs say little about a share
	if measures(t) {
		jobs, least, most = 200, 0.7, 0.9
	}
	timely, priced := 0, 0
	var ratios []float64
	for seed := range uint64(jobs) {
		f := runForecast(t, seed)
		e, took := f.estimate, f.took.Seconds()
		if *e.SecondsLow <= took && took <= *e.SecondsHigh {
			timely++
		}
		if math.Abs(float64(e.OutputTokens-f.output)) < 0.2*float64(f.output) {
			priced++
		}
		ratios = append(ratios, took / *e.Seconds)
	}
	slices.Sort(ratios)
	t.Logf("of %d jobs, %d ended within the interval, and %d had the output tokens within 20 %%; time / forecast: median %.2f, from %.2f (10 %%) to %.2f (90 %%)",
		jobs, timely, priced, middle(ratios), ratios[jobs/10], ratios[jobs*9/10])
	if share := float64(timely) / float64(jobs); share < least || share > most {
		t.Errorf("%.0f %% of the jobs end within the interval, want %.0f to %.0f %%", 100*share, 100*least, 100*most)
	}
}
