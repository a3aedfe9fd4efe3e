package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill/actors"
	apinodes "github.com/rowmill/rowmill/http/nodes"
)

// engineRateWindow is the length of the recent time from which the rate of an engine is
// computed.
const engineRateWindow = time.Minute

// A metricsSampler is the part of a node that reads the node's own metrics at intervals. The
// readings give the points of the console's charts and the rates of the engines.
type metricsSampler struct {
	partBase
	read func(time.Time) (metricsSample, error)

	mu     sync.Mutex
	last   *metricsSample  // the latest sample; nil before the first one
	recent []metricsSample // the samples within engineRateWindow, oldest first
	points []apinodes.StatsPoint
}

// A metricsSample holds the values of the node's metrics at one time.
type metricsSample struct {
	at                        time.Time
	done, failed              float64
	inputTokens, outputTokens float64
	answers                   map[string]float64 // number of answered rows since the start, by engine name
	inFlight, window          int
}

// sampleMetrics reads the metrics, and adds a StatsPoint with the changes since the last
// metricsSample. It drops old StatsPoints and metricsSamples.
func (m *metricsSampler) sampleMetrics(now time.Time) error {
	r, err := m.read(now)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if last := m.last; last != nil {
		m.points = append(m.points, apinodes.StatsPoint{
			At: now.UTC(), Rows: int64(r.done - last.done + r.failed - last.failed), Failed: int64(r.failed - last.failed),
			InputTokens: int64(r.inputTokens - last.inputTokens), OutputTokens: int64(r.outputTokens - last.outputTokens),
			InFlight: r.inFlight, Window: r.window,
		})
		m.points = slices.DeleteFunc(m.points, func(p apinodes.StatsPoint) bool { return now.Sub(p.At) > apinodes.StatsKept })
	}
	m.last = &r
	m.recent = slices.DeleteFunc(append(m.recent, r), func(r metricsSample) bool { return now.Sub(r.at) > engineRateWindow })
	return nil
}

func (m *metricsSampler) recentPoints() []apinodes.StatsPoint {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.points)
}

// engineRate returns the rows per second of an engine within engineRateWindow; nil before the
// second reading.
func (m *metricsSampler) engineRate(engine string) *float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.recent) < 2 {
		return nil
	}
	first, last := m.recent[0], m.recent[len(m.recent)-1]
	rate := max(0, last.answers[engine]-first.answers[engine]) / last.at.Sub(first.at).Seconds() // an engine that is missing in first counts as 0 there
	return &rate
}

// Start reads the metrics every apinodes.StatsStep.
func (m *metricsSampler) Start(ctx context.Context) error {
	m.runInBackground(ctx, "meter", func(ctx context.Context) {
		due := time.NewTicker(apinodes.StatsStep)
		defer due.Stop()
		for {
			if err := m.sampleMetrics(m.now()); err != nil {
				m.Logger.Warn("reading the node's own metrics failed", "err", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-due.C:
			}
		}
	})
	return nil
}

// readMetrics returns a reading of a node's metrics and of the load of its engines.
func readMetrics(now time.Time, metrics prometheus.Gatherer, engines []actors.EngineStatus) (metricsSample, error) {
	r := metricsSample{at: now, answers: map[string]float64{}}
	families, err := metrics.Gather()
	if err != nil {
		return r, err
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			label := func(name string) string {
				for _, pair := range metric.GetLabel() {
					if pair.GetName() == name {
						return pair.GetValue()
					}
				}
				return ""
			}
			count := metric.GetCounter().GetValue()
			switch family.GetName() + " " + label("outcome") + label("direction") {
			case "rowmill_rows_total done":
				r.done += count
			case "rowmill_rows_total failed":
				r.failed += count
			case "rowmill_tokens_total input":
				r.inputTokens += count
			case "rowmill_tokens_total output":
				r.outputTokens += count
			case "rowmill_engine_request_seconds ":
				r.answers[label("engine")] += float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	for _, e := range engines {
		if e.Up {
			limit, inFlight, _ := e.Load()
			r.window, r.inFlight = r.window+limit, r.inFlight+inFlight
		}
	}
	return r, nil
}
