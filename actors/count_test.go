package actors_test

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/internal/must"
)

// The normal end of a job's actor must not count as a crash.
func TestAJobIsCountedOnce(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		b := setup(t, &scripted{answer: echo}, func(c *actors.Config) { c.Registerer = reg })
		for range 5 {
			b.checkEcho(b.end(b.submit(rowmill.Spec{Inline: numbered(3)})), numbered(3))
		}
		must.Succeed(t, b.system.Stop(context.Background()))
		families := must.Get(reg.Gather())(t)
		got := make(map[string]float64)
		for _, f := range families {
			if f.GetName() == "rowmill_jobs_total" {
				for _, m := range f.GetMetric() {
					got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
		if len(got) != 1 || got["succeeded"] != 5 {
			t.Errorf("jobs counted: %v, want 5 that succeeded", got)
		}
	})
}
