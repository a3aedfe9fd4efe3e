package virtual

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill/engine/sim/batching"
)

// answerRows are rows of 300 tokens whose answers take mean tokens on average
// and at most most.
func answerRows(n int, mean float64, most int, seed uint64) []row {
	const spread = 0.8
	random := rand.New(rand.NewPCG(seed, 3))
	rows := make([]row, n)
	for i := range rows {
		length := mean * math.Exp(spread*random.NormFloat64()-spread*spread/2)
		rows[i] = row{prompt: 300, output: int(min(max(length, 1), float64(most)))}
	}
	return rows
}

// TestPriority is B10: an urgent job on GPUs that another job has saturated,
// beside the same job on idle ones, and what it costs the other.
func TestPriority(t *testing.T) {
	const gpus = 4
	profile, err := batching.Lookup("llama-3.1-8b/h100")
	if err != nil {
		t.Fatal(err)
	}
	c := batching.Config{Profile: profile, MaxSeqs: slots, Seed: 1}
	shapes := []struct {
		mean float64
		most int
	}{{150, 1024}}
	if *full {
		shapes = append(shapes, struct {
			mean float64
			most int
		}{400, 2048}, struct {
			mean float64
			most int
		}{1000, 4096})
	}
	for _, s := range shapes {
		urgent := answerRows(1000, s.mean, s.most, 31)
		bulk := answerRows(int(24_000*150/s.mean), s.mean, s.most, 32)
		idle, _ := rowmillAlone(t, c, gpus, urgent)
		undisturbed, _ := rowmillAlone(t, c, gpus, bulk)
		var busy, disturbed time.Duration
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, c, gpus)
			defer n.close()
			time.Sleep(2 * time.Second)
			begun := time.Now()
			long := n.submit(bulk, 1)
			time.Sleep(undisturbed / 3)
			arrived := time.Now()
			busy = n.await(n.submit(urgent, 0)).Sub(arrived)
			disturbed = n.await(long).Sub(begun)
		})
		loss := (disturbed - undisturbed).Seconds() / (undisturbed.Seconds() * float64(len(urgent)) / float64(len(bulk)))
		t.Logf("answers of %.0f tokens: the urgent job takes %.1f s on idle GPUs and %.1f s on busy ones, %.3f of it; the other loses %.3f of its work",
			s.mean, idle.Seconds(), busy.Seconds(), busy.Seconds()/idle.Seconds(), loss)
		if !*full && (busy > idle*9/4 || loss > 1.4) {
			t.Errorf("the urgent job took %.2f of its time on idle GPUs and cost the other %.2f of its work", busy.Seconds()/idle.Seconds(), loss)
		}
	}
}
