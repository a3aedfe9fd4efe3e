package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// TestKilled kills the owner of a job, a worker and Redis, each after a quarter of the rows,
// and starts it again. Each row must have its answer and be charged once.
func TestKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	c := startHere(t, Config{Roles: []string{"both", "both", "both"}})
	for _, kill := range []struct {
		name   string
		strike func(context.Context, *Trial) error
	}{
		{"owner", killNode(owner)},
		{"worker", killNode(worker)},
		{"redis-server", killRedis},
	} {
		t.Run(kill.name, func(t *testing.T) {
			for rows := 1500; !c.killed(t, rows, kill.strike); rows *= 2 {
				if rows > 10_000 {
					t.Fatalf("%d rows were done before the kill", rows)
				}
			}
		})
	}
	t.Run("40 requests at once", c.repeated)
}

// killed runs a job and strikes after a quarter of its rows. It reports whether the job was
// still running at that time.
func (c *Cluster) killed(t *testing.T, rows int, strike func(context.Context, *Trial) error) bool {
	t.Helper()
	ctx := t.Context()
	inputs := make([]string, rows)
	for i := range inputs {
		inputs[i] = fmt.Sprintf("row %d of a job of %s", i, t.Name())
	}
	want, err := c.answers(ctx, inputs)
	must.Succeed(t, err)
	trial := &Trial{Cluster: c, random: rand.New(rand.NewPCG(1, 0))}
	if trial.Job, err = c.submit(ctx, fmt.Sprint(t.Name(), rows), inputs); err != nil {
		t.Fatal(err)
	}
	if trial.watched, err = c.watch(ctx, trial.Job); err != nil {
		t.Fatal(err)
	}
	defer trial.watched.stop()
	must.Succeed(t, trial.watched.until(ctx, "a quarter done", func(g Glimpse) bool { return g.RowsDone >= int64(rows/4) }))
	if err := strike(ctx, trial); err != nil && trial.over() == nil {
		t.Fatal(err)
	}
	ran := len(trial.strikes) == 1 && trial.strikes[0].Done < int64(rows)
	must.Succeed(t, trial.watched.until(ctx, "over", func(g Glimpse) bool { return g.Over }))
	must.Succeed(t, c.Repair(ctx))
	c.wantRows(t, trial.Job, want)
	return ran
}

// wantRows checks that a job succeeded with these answers, and that all jobs so far were
// charged once for each row.
func (c *Cluster) wantRows(t *testing.T, job string, want []Answer) {
	t.Helper()
	ctx := t.Context()
	record := must.Get(c.record(ctx, job))(t)
	if record.Status != "succeeded" || record.RowsDone != int64(len(want)) || record.FailedRows != 0 {
		t.Fatalf("the job of %d rows ended as %+v", len(want), record)
	}
	results := must.Get(c.results(ctx, job))(t)
	if len(results.Outputs) != len(want) {
		t.Fatalf("%d results of %d rows", len(results.Outputs), len(want))
	}
	for i, answer := range want {
		if results.Outputs[i] == nil || *results.Outputs[i] != answer.Text {
			t.Fatalf("row %d is not %q", i, answer.Text)
		}
	}
	c.account.charge(want)
	charged := must.Get(c.ledger(ctx))(t)
	for _, wrong := range JudgeLedger(charged, c.account) {
		t.Error(wrong)
	}
}
