package main

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/http/nodes"
	"github.com/rowmill/rowmill/internal/must"
)

func TestMeter(t *testing.T) {
	t.Parallel()
	var next metricsSample
	var trouble error
	m := &metricsSampler{read: func(now time.Time) (metricsSample, error) {
		next.at = now
		return next, trouble
	}}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	take := func(r metricsSample) {
		t.Helper()
		next = r
		must.Succeed(t, m.sampleMetrics(now))
		now = now.Add(nodes.StatsStep)
	}
	take(metricsSample{done: 100, answers: map[string]float64{"a": 50}})
	if points := m.recentPoints(); len(points) != 0 || m.engineRate("a") != nil {
		t.Errorf("points %v", points)
	}
	take(metricsSample{done: 110, failed: 2, inputTokens: 500, outputTokens: 90, inFlight: 7, window: 8, answers: map[string]float64{"a": 150, "b": 5}})
	want := []nodes.StatsPoint{{At: now.Add(-nodes.StatsStep), Rows: 12, Failed: 2, InputTokens: 500, OutputTokens: 90, InFlight: 7, Window: 8}}
	if diff := cmp.Diff(want, m.recentPoints()); diff != "" {
		t.Error(diff)
	}
	if a, b := m.engineRate("a"), m.engineRate("b"); a == nil || *a != 20 || b == nil || *b != 1 {
		t.Errorf("rates %v, %v", a, b)
	}
	for range 2 * int(nodes.StatsKept/nodes.StatsStep) {
		take(metricsSample{answers: map[string]float64{"a": 150}})
	}
	if n, most := len(m.recentPoints()), int(nodes.StatsKept/nodes.StatsStep)+1; n != most {
		t.Errorf("%d points, want %d", n, most)
	}
	if a := m.engineRate("a"); a == nil || *a != 0 {
		t.Errorf("rate %v", a)
	}
	trouble = errors.New("no metrics")
	if err := m.sampleMetrics(now); !errors.Is(err, trouble) {
		t.Errorf("got %v", err)
	}
}
