package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/seed"
)

// flatFrom is the shortest run in which nodes warm up within the first quarter.
const flatFrom = 2 * time.Minute

// TestCrowd runs ROWMILL_JOBS jobs of ten accounts on three nodes while faults strike. Every
// job must succeed, the ledgers must be right, memory and goroutines must not grow, and
// nothing may be left.
func TestCrowd(t *testing.T) {
	text := os.Getenv("ROWMILL_JOBS")
	if text == "" {
		t.Skip("set ROWMILL_JOBS to a number, such as 10000")
	}
	jobs, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("ROWMILL_JOBS: %v", err)
	}
	c := start(t, Config{Roles: []string{"both", "both", "both"}, Slots: 64, Answer: 60 * time.Millisecond})
	first := seed.ForTest(t)
	w := must.Get(c.newCrowd(t.Context(), "crowd", first, crowdTexts, 10))(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var strikes map[string]int
	var paused []time.Time
	go func() {
		var err error
		strikes, paused, err = c.strikeCrowd(ctx, rand.New(rand.NewPCG(first, 2)), 5*time.Second)
		ended <- err
	}()
	var samples []Sample
	sampled := make(chan struct{})
	go func() {
		defer close(sampled)
		for tick := time.NewTicker(2 * time.Second); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				samples = append(samples, c.sample(ctx)...)
			}
		}
	}()
	began := time.Now()
	w.run(t.Context(), nil, jobs, 100)
	took := time.Since(began)
	stop()
	<-sampled
	if err := <-ended; err != nil {
		t.Error(err)
	}
	must.Succeed(t, c.Repair(t.Context()))
	rows := int64(0)
	for _, a := range w.accounts {
		rows += a.used.Rows
	}
	wrongs := slices.Concat(must.Get(w.judge(t.Context(), repeatsWithin))(t), must.Get(w.leftovers(t.Context(), paused))(t))
	if took < flatFrom {
		t.Logf("memory and goroutines are NOT JUDGED: the jobs took less than %v", flatFrom)
	} else {
		wrongs = append(wrongs, judgeFlat(samples)...)
	}
	t.Logf("%d jobs, %d rows in %v; strikes: %s; %d samples", len(w.jobs), rows, took.Round(time.Second), fmt.Sprint(strikes), len(samples))
	const shown = 30
	for _, wrong := range wrongs[:min(shown, len(wrongs))] {
		t.Error(wrong)
	}
	if len(wrongs) > shown {
		t.Errorf("%d wrongs in all", len(wrongs))
	}
}

// TestJudgeFlat checks that growth is found, and noise is not.
func TestJudgeFlat(t *testing.T) {
	t.Parallel()
	var flat, heap, routines []Sample
	for i := range 100 {
		noise := float64(i%7) * 1e6
		flat = append(flat, Sample{40e6 + noise, 300 + float64(i%5)})
		heap = append(heap, Sample{40e6 + noise + float64(i)*1e6, 300})
		routines = append(routines, Sample{40e6, 300 + float64(i)*5})
	}
	if wrongs := judgeFlat(flat); len(wrongs) > 0 {
		t.Errorf("flat samples are %q", wrongs)
	}
	if len(judgeFlat(heap)) != 1 || len(judgeFlat(routines)) != 1 || len(judgeFlat(nil)) != 1 {
		t.Errorf("growth is not seen: %q, %q, %q", judgeFlat(heap), judgeFlat(routines), judgeFlat(nil))
	}
}
